"""The properties of a message: typed values under the names of identifiers, which selectors compare.

Names that begin with "JMS" are not the application's. Of these a client sets ``JMSXGroupID`` (a String),
``JMSXGroupSeq`` (an int from 1) and names that begin with ``JMS_``, which other providers use and which pass through
unchanged. All other ``JMSX`` names are the provider's, headers are no properties, and names that begin with
``JMS_jmsql`` say of a dead letter where it comes from and why.

Source: JMS 1.1 chapter 3.5.

Three such names are conditions of a send (`SendConditions`). A client sets them; they do not travel with the message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

from jmsql.exceptions import InvalidDestinationException, MessageFormatException, MessageNotWriteableException
from jmsql.messages.encoded_message import SendConditions
from jmsql.messages.types import conversions
from jmsql.messages.types.typed_json import read_object, write_object
from jmsql.messages.types.values import (
    Byte,
    Float,
    Long,
    PropertyValue,
    Short,
    boolean,
    double,
    integer,
    property_value,
    string,
    type_name,
)
from jmsql.values.destinations import Destination, require_destination
from jmsql.values.identifiers import is_identifier

DELIVERY_COUNT = "JMSXDeliveryCount"
"""The property that tells how often the message was delivered, this delivery included."""

_OWN = "JMS_jmsql"
_GROUP_ID = "JMSXGroupID"
_GROUP_SEQUENCE = "JMSXGroupSeq"

DEDUPLICATION_ID = "JMS_jmsql_DeduplicationID"
"""The property by which a second send is recognised."""
COALESCE = "JMS_jmsql_Coalesce"
"""The property that names the key of which one message waits."""
COALESCE_BODY = "JMS_jmsql_CoalesceBody"
"""The property that says which body waits: `FIRST` or `LATEST`."""
FIRST = "first"
LATEST = "latest"
DEAD_LETTER_REASON = "JMS_jmsql_DeadLetterReason"
"""The property of a dead letter alone: why it is one."""
THEN = "JMS_Then"
"""The property that names the next steps of a chain, as a JSON array of destinations. It stays in a dead letter."""
BATCH = "JMS_jmsql_Batch"
"""The property with the number of the batch that a message belongs to. It travels with the message."""
CONDITIONS = frozenset((DEDUPLICATION_ID, COALESCE, COALESCE_BODY))
_LONGEST_CONDITION = 255


def is_settable(name: str) -> bool:
    """Tell whether a client may set a property of this name."""
    if not name.startswith("JMS"):
        return is_identifier(name)
    if name.startswith("JMS_"):
        return not name.startswith(_OWN) and is_identifier(name)
    return name in (_GROUP_ID, _GROUP_SEQUENCE)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"A property needs a name, not {name!r}.")
    if not is_settable(name) and name not in CONDITIONS and name != BATCH:
        if name.startswith("JMS") and is_identifier(name):
            raise MessageFormatException(
                f"The property {name!r} is the provider's to set; choose a name that does not begin with 'JMS'."
            )
        raise MessageFormatException(
            f"{name!r} cannot name a property: selectors take a letter, '_' or '$', then letters and digits, "
            "and no word of their own (NULL, TRUE, FALSE, NOT, AND, OR, BETWEEN, LIKE, IN, IS, ESCAPE)."
        )


def _check_group(name: str, value: PropertyValue) -> None:
    if name == _GROUP_ID and not (value is None or type(value) is str):
        raise MessageFormatException(f"{_GROUP_ID} is a String, not {type_name(value)}.")
    if name == BATCH and value is not None and (type(value) is not Long or value < 1):
        raise MessageFormatException(f"{BATCH} is a Long from 1, not {value!r} ({type_name(value)}).")
    if name == _GROUP_SEQUENCE and value is not None and (type(value) is not int or value < 1):
        raise MessageFormatException(f"{_GROUP_SEQUENCE} is an int from 1, not {value!r} ({type_name(value)}).")


def _check_condition(name: str, value: PropertyValue) -> None:
    if name not in CONDITIONS or value is None:
        return
    if type(value) is not str:
        raise MessageFormatException(f"{name} is a String, not {type_name(value)}.")
    if name == COALESCE_BODY and value not in (FIRST, LATEST):
        raise MessageFormatException(f"{name} is {FIRST!r} or {LATEST!r}, not {value!r}.")
    if not 1 <= len(value) <= _LONGEST_CONDITION:
        raise MessageFormatException(
            f"{name} has 1 to {_LONGEST_CONDITION} characters, not {len(value)}; send a hash of what is longer."
        )


class ReceivedProperties(NamedTuple):
    """The properties of a received message as PostgreSQL gave them."""

    values: str | None
    types: str | None
    delivery_count: int

    def decode(self) -> dict[str, PropertyValue]:
        """Read the values, and add the delivery count."""
        values: dict[str, PropertyValue] = read_object(self.values, self.types)  # type: ignore[assignment]
        values[DELIVERY_COUNT] = self.delivery_count
        return values


class PropertyAccess:
    """The part of a message that reads and writes its properties.

    Reading converts by table 3-2 of JMS. A pair that the table does not have raises MessageFormatException; a string
    that is no number raises NumberFormatException. A missing or null property raises NumberFormatException when it is
    read as an integer, and NullValueError as a float or a double; as a boolean it is False.

    Writing raises MessageNotWriteableException on a received message until `clear_properties`, ValueError if the
    name is empty or None, and MessageFormatException if the name cannot be set or the value does not fit the type.
    """

    __slots__ = ("_property_values", "_received_properties")

    _property_values: dict[str, PropertyValue] | None
    """None until the properties of a received message are first looked at."""

    _received_properties: ReceivedProperties | None
    """Present in a received message until its properties are cleared, which is as long as they are read-only."""

    def _properties_to_read(self) -> dict[str, PropertyValue]:
        values = self._property_values
        if values is None:
            assert self._received_properties is not None
            values = self._property_values = self._received_properties.decode()
        return values

    def _properties_to_write(self) -> dict[str, PropertyValue]:
        if self._received_properties is not None:
            raise MessageNotWriteableException(
                "The properties of a received message are read-only; call clear_properties() first."
            )
        return self._properties_to_read()

    def _set_property(self, name: str, value: PropertyValue) -> None:
        values = self._properties_to_write()
        _check_name(name)
        if name.startswith("JMS"):
            _check_group(name, value)
            _check_condition(name, value)
        values[name] = value

    def _encode_properties(self) -> tuple[str | None, str | None]:
        received = self._received_properties
        if received is not None:
            if received.values is None or _OWN not in received.values:
                return received.values, received.types
            # A dead letter's reasons do not travel with it when it is sent again.
            of_client = {name: value for name, value in self._properties_to_read().items() if is_settable(name)}
            return write_object(of_client, omit_nulls=True) if of_client else (None, None)
        values = self._property_values
        if not values:
            return None, None
        return write_object(values, omit_nulls=True)

    @property
    def send_conditions(self) -> SendConditions | None:
        """The conditions under which the message is sent; None: it is sent in any case."""
        values = self._property_values
        if not values or CONDITIONS.isdisjoint(values):
            return None
        deduplication_id, coalesce = values.get(DEDUPLICATION_ID), values.get(COALESCE)
        if deduplication_id is None and coalesce is None:
            return None
        return SendConditions(
            None if deduplication_id is None else str(deduplication_id),
            None if coalesce is None else str(coalesce),
            values.get(COALESCE_BODY) == LATEST,
        )

    @property
    def next_steps(self) -> tuple[Destination, ...]:
        """The destinations of the chain's next steps: one at least.

        Raises:
            MessageFormatException: The property is no list of queues and topics.
        """
        text = self._properties_to_read().get(THEN)
        try:
            names = json.loads(text) if isinstance(text, str) else None
            if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
                return tuple(map(require_destination, names))
        except (ValueError, RecursionError, InvalidDestinationException) as error:
            raise MessageFormatException(f"{THEN} is no JSON array of destinations: {error}") from error
        raise MessageFormatException(f"{THEN} is no JSON array of destinations.")

    @property
    def properties(self) -> MessageProperties:
        """The properties as a mapping, typed as `get_object_property` and `set_object_property` are."""
        return MessageProperties(self._properties_to_read, self._properties_to_write, self.set_object_property)

    @property
    def delivery_count(self) -> int | None:
        """JMSXDeliveryCount of a message as it was received, also if its properties cannot be read; else None."""
        return None if self._received_properties is None else self._received_properties.delivery_count

    @property
    def property_names(self) -> tuple[str, ...]:
        """The names of all properties, in no fixed order; headers are not among them."""
        return tuple(self._properties_to_read())

    def property_exists(self, name: str) -> bool:
        """Tell whether a property of this name was set, be it to null."""
        return name in self._properties_to_read()

    def clear_properties(self) -> None:
        """Remove all properties and allow new ones; the body stays (JMS 1.1 chapter 3.5.7)."""
        self._property_values = {}
        self._received_properties = None

    def get_boolean_property(self, name: str) -> bool:
        """Read a boolean, or a String: "true" in any case is True, all else False."""
        return conversions.to_boolean(self._properties_to_read().get(name), name)

    def get_byte_property(self, name: str) -> int:
        """Read a byte, or a String."""
        return conversions.to_byte(self._properties_to_read().get(name), name)

    def get_short_property(self, name: str) -> int:
        """Read a byte, a short, or a String."""
        return conversions.to_short(self._properties_to_read().get(name), name)

    def get_int_property(self, name: str) -> int:
        """Read a byte, a short, an int, or a String."""
        return conversions.to_int(self._properties_to_read().get(name), name)

    def get_long_property(self, name: str) -> int:
        """Read a byte, a short, an int, a long, or a String."""
        return conversions.to_long(self._properties_to_read().get(name), name)

    def get_float_property(self, name: str) -> float:
        """Read a float, or a String."""
        return conversions.to_float(self._properties_to_read().get(name), name)

    def get_double_property(self, name: str) -> float:
        """Read a float, a double, or a String."""
        return conversions.to_double(self._properties_to_read().get(name), name)

    def get_string_property(self, name: str) -> str | None:
        """Read any property, numbers written as Java does; None if it is missing."""
        return conversions.to_string(self._properties_to_read().get(name), name)

    def get_object_property(self, name: str) -> PropertyValue:
        """Read a property as it was set, its class telling the JMS type; None if it is missing."""
        return self._properties_to_read().get(name)

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set a boolean."""
        self._set_property(name, boolean(value))

    def set_byte_property(self, name: str, value: int) -> None:
        """Set a byte: -128 to 127."""
        self._set_property(name, Byte(value))

    def set_short_property(self, name: str, value: int) -> None:
        """Set a short: 16 bits."""
        self._set_property(name, Short(value))

    def set_int_property(self, name: str, value: int) -> None:
        """Set an int: 32 bits."""
        self._set_property(name, integer(value))

    def set_long_property(self, name: str, value: int) -> None:
        """Set a long: 64 bits."""
        self._set_property(name, Long(value))

    def set_float_property(self, name: str, value: float) -> None:
        """Set a float: the nearest number of 32 bits."""
        self._set_property(name, Float(value))

    def set_double_property(self, name: str, value: float) -> None:
        """Set a double."""
        self._set_property(name, double(value))

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set a String."""
        self._set_property(name, string(value))

    def set_object_property(self, name: str, value: PropertyValue) -> None:
        """Set a value of the type that its class tells.

        `bool` is boolean, `int` is int (long if it needs 64 bits), `float` is double, `str` is String, None is
        null; Byte, Short, Long and Float are themselves.
        """
        try:
            typed = property_value(value)
        except MessageFormatException as error:
            raise MessageFormatException(f"The property {name!r}: {error}") from error
        self._set_property(name, typed)


class MessageProperties(MutableMapping[str, PropertyValue]):
    """The properties of one message as a mapping; changes reach the message."""

    __slots__ = ("_read", "_set", "_write")

    def __init__(
        self,
        read: Callable[[], Mapping[str, PropertyValue]],
        write: Callable[[], MutableMapping[str, PropertyValue]],
        set_: Callable[[str, PropertyValue], None],
    ) -> None:
        self._read = read
        self._write = write
        self._set = set_

    def __getitem__(self, name: str) -> PropertyValue:
        return self._read()[name]

    def __setitem__(self, name: str, value: PropertyValue) -> None:
        self._set(name, value)

    def __delitem__(self, name: str) -> None:
        del self._write()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def __repr__(self) -> str:
        return f"<properties {', '.join(self)}>"
