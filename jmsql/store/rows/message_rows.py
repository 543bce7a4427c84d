"""Messages as rows: their columns for a send, their columns as received, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, NewType

from jmsql.exceptions import JMSException
from jmsql.messages import MESSAGE_TYPES, Message
from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.store.statement import array_literal, integers_literal
from jmsql.values.destinations import Destination

LARGEST_MESSAGE = 256 * 1024 * 1024
"""The most bytes in a message. PostgreSQL's limit is four times that, on a whole statement with its quoting."""

LARGEST_PROPERTIES = 250 * 1024 * 1024
"""The most bytes in the properties, as JSON. PostgreSQL holds 5 MiB more, which a dead letter gets of its own."""

_MOST_BYTES_OF_A_CHARACTER = 4


class OutgoingMessage(NamedTuple):
    """A message on its way to the server, in the order of the send's parameters.

    `jms_message_id` is the bare UUID; None where the producer has disabled message ids or timestamps, without an
    expiration, or without a delay.
    """

    destination: str
    inverse_priority: int
    jms_message_id: str | None
    jms_timestamp: int | None
    jms_expiration: int | None
    jms_delivery_mode: int
    message_type: str
    jms_correlation_id: str | None
    jms_reply_to: str | None
    jms_type: str | None
    properties: str | None
    property_types: str | None
    text_body: str | None
    json_body: str | None
    body_types: str | None
    bytes_body: bytes | None
    jms_delivery_time: int | None = None

    def checked_size(self) -> int:
        """Return about how many bytes the message has: each character counts as one.

        PostgreSQL can take the message; beyond its limit it would end the connection.

        Raises:
            JMSException: Body, properties and headers together are larger than 256 MiB, or the properties than 250 MiB.
        """
        about = sum(map(len, filter(None, self[7:16])))  # the fields whose lengths the application determines
        if about > LARGEST_MESSAGE // _MOST_BYTES_OF_A_CHARACTER:
            _check_size("The message has", sum(map(_bytes_in, self[7:16])), LARGEST_MESSAGE)
            _check_size("The message's properties have", _bytes_in(self.properties), LARGEST_PROPERTIES)
        return about


def _bytes_in(part: str | bytes | None) -> int:
    if part is None:
        return 0
    return len(part) if isinstance(part, bytes) or part.isascii() else len(part.encode())


def _check_size(beginning: str, size: int, limit: int) -> None:
    if size > limit:
        raise JMSException(
            f"{beginning} {size:,} bytes; at most {limit:,} are allowed. "
            "Store its content elsewhere and send a reference.",
            "54000",
        )


Lock = NewType("Lock", str)
"""The address of a message's row, for the transaction that has locked it."""
Claim = NewType("Claim", int)
"""The number of a claim, which fences late acknowledgements."""


class MessageRow(NamedTuple):
    """A message as the server returns it. The subclasses tell how the receiver holds it, if it does.

    `handle` acknowledges it: the lock of a `LockedRow`, the claim of a `ClaimedRow`. Others have none.

    `snapshot` describes the transactions that were running (`Snapshot.parse`), in one of the rows that a scan
    returns.
    """

    inverse_priority: int
    sequence: int
    jms_message_id: str | None
    jms_timestamp: int | None
    jms_expiration: int | None
    jms_delivery_mode: int
    message_type: str
    jms_correlation_id: str | None
    jms_reply_to: str | None
    jms_type: str | None
    properties: str | None
    property_types: str | None
    text_body: str | None
    json_body: str | None
    body_types: str | None
    bytes_body: bytes | None
    jms_delivery_time: int | None
    group_hash: int | None
    delivery_count: int | None
    handle: Lock | Claim | None
    snapshot: str | None = None

    def message(self, destination: Destination, acknowledger: Callable[[], Any] | None = None) -> Message:
        """Make the message that a consumer of `destination` receives."""
        # Measured: to take it apart at once is faster than to read fields, and than slices.
        (
            inverse_priority,
            _,
            message_id,
            timestamp,
            expiration,
            delivery_mode,
            message_type,
            correlation_id,
            reply_to,
            kind,
            properties,
            property_types,
            text,
            json,
            types,
            content,
            delivery_time,
            _,
            delivery_count,
            _,
            _,
        ) = self
        message_class = MESSAGE_TYPES[message_type]
        message = message_class.__new__(message_class)
        message.restore(
            (message_type, correlation_id, reply_to, kind, properties, property_types, text, json, types, content),
            None if message_id is None else "ID:" + message_id,
            timestamp or 0,
            expiration or 0,
            9 - inverse_priority,
            delivery_mode,
            destination,
            bool(delivery_count),
            (delivery_count or 0) + 1,
            acknowledger,
            delivery_time or timestamp or 0,
        )
        return message

    def with_lock(self, lock: Lock) -> LockedRow:
        """Return the message as one that the open transaction has locked."""
        return LockedRow._make((*self[:_HANDLE], lock, self.snapshot))

    def with_claim(self, claim: Claim) -> ClaimedRow:
        """Return the message as one that the client has claimed."""
        return ClaimedRow._make((*self[:_HANDLE], claim, self.snapshot))


class LockedRow(MessageRow):
    """A message that the open transaction has locked."""

    __slots__ = ()
    handle: Lock


class ClaimedRow(MessageRow):
    """A message that the client has claimed."""

    __slots__ = ()
    handle: Claim


class LastRow(MessageRow):
    """A dequeued message that no other one follows in the queue."""

    __slots__ = ()


_HANDLE = MessageRow._fields.index("handle")

# Measured: these take half the time of a named tuple's constructor.
as_locked_rows = partial(map, partial(tuple.__new__, LockedRow))
"""Makes rows of tuples that have locks."""
as_claimed_rows = partial(map, partial(tuple.__new__, ClaimedRow))
"""Makes rows of tuples that have claims."""


def as_dequeued_row(columns: tuple[Any, ...]) -> MessageRow:
    """Make a row of a tuple that tells in place of a handle if another message follows."""
    return (MessageRow if columns[_HANDLE] else LastRow)._make((*columns[:_HANDLE], None, columns[-1]))


def claim_of(row: MessageRow) -> Claim | None:
    """Return the claim on a message; None: it was not claimed."""
    return row.handle if isinstance(row, ClaimedRow) else None


def size_of(rows: Sequence[MessageRow]) -> int:
    """Return about how many bytes the bodies of messages have together."""
    size = 0
    for row in rows:
        size += len(row.text_body or "") + len(row.json_body or "") + len(row.bytes_body or b"")
    return size


def single_send_parameters(message: OutgoingMessage) -> dict[str, object]:
    """Turn one message into the parameters of a send: those that have a value.

    Numbers go as text: psycopg tells the server a type by their size, and each type is another prepared statement.
    """
    return {
        name: str(value) if isinstance(value, int) else value
        for name, value in zip(OutgoingMessage._fields, message, strict=True)
        if value is not None
    }


def send_parameters(messages: Sequence[OutgoingMessage]) -> dict[str, str | bytes | None]:
    """Turn messages into the parameters of a send.

    A column without any value goes as a null instead of an array of nulls, which unnest fills up.
    """
    return {
        name: None if values.count(None) == len(values) else array_literal(values)
        for (name, _), values in zip(DELAYED_COLUMNS, zip(*messages, strict=True), strict=True)
    }


class MessageKey(NamedTuple):
    """The key of a message in the store, and its group if it is in one.

    With the sequence 0, which none has: all that are in the queue.
    """

    queue_id: int
    inverse_priority: int
    sequence: int
    group_hash: int | None = None


class GroupKey(NamedTuple):
    """The key of a message group in the store."""

    queue_id: int
    group_hash: int


def key_of(queue_id: int, row: MessageRow) -> MessageKey:
    """Return the key of a message in a queue."""
    # Measured: the constructor of a named tuple takes twice as long.
    return tuple.__new__(MessageKey, (queue_id, row.inverse_priority, row.sequence, row.group_hash))


def array(name: str, kind: str) -> str:
    """Return an array that is a parameter, of whose length the planner knows nothing: it takes it for ten.

    Else it would compare a plan for the one element that there is with a plan that it could keep, which is for ten. It
    would find the former cheaper each time, and so plan each time, which takes longer than to delete a message.
    """
    return f"(select %({name})s::{kind}[])::{kind}[]"


KEYS = f"{array('queue_ids', 'integer')}, %(inverse_priorities)s::smallint[], %(sequences)s::bigint[]"
"""The keys of messages, as arguments of `unnest`: as many rows as the longest of them are expected."""


def key_parameters(keys: Sequence[MessageKey]) -> dict[str, str]:
    """Turn keys into the parameters that statements on many messages have."""
    queue_ids, inverse_priorities, sequences, _ = zip(*keys, strict=True)
    return {
        "queue_ids": integers_literal(queue_ids),
        "inverse_priorities": integers_literal(inverse_priorities),
        "sequences": integers_literal(sequences),
    }


_NULL = "\\N"
_SPECIAL = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
"""How COPY has characters that would end a value or a row, the backslash first."""


def copied_rows(messages: Sequence[OutgoingMessage], queue_ids: Mapping[str, int]) -> tuple[tuple[str, ...], bytes]:
    """Write messages as rows of the table of messages, or of the delayed ones, in the text format of COPY.

    PostgreSQL takes a batch so at half the cost of an INSERT. A column at a time: measured at 0.6 µs a message, which
    psycopg takes three times as long for, row after row.

    Returns:
        Which columns the rows have: those in which some message has a value; and the rows, in UTF-8.
    """
    destinations, *columns = zip(*messages, strict=True)
    names = ["queue_id"]
    values: list[Iterable[str]] = [_numbers([queue_ids[name] for name in destinations])]
    for (name, kind), column in zip(DELAYED_COLUMNS[1:], columns, strict=True):
        if column.count(None) < len(column):
            names.append(name)
            values.append(_writers[kind](column))
    rows = map("\t".join, zip(*values, strict=False))
    return tuple(names), ("\n".join(rows) + "\n").encode()


def _texts(values: Sequence[str | None]) -> Iterable[str]:
    present = "".join(filter(None, values))
    for character, written in _SPECIAL.items():
        if character in present:
            values = [None if value is None else value.replace(character, written) for value in values]
    return _with_nulls(values)


def _numbers(values: Sequence[int | None]) -> Iterable[str]:
    first = values[0]
    if values.count(first) == len(values):
        return repeat(str(first), len(values))
    return [_NULL if value is None else str(value) for value in values]


def _bytes(values: Sequence[bytes | None]) -> Iterable[str]:
    return [_NULL if value is None else f"\\\\x{value.hex()}" for value in values]


def _with_nulls(values: Sequence[str | None]) -> Iterable[str]:
    return [_NULL if value is None else value for value in values]


_writers: dict[str, Callable[[Sequence[Any]], Iterable[str]]] = {
    "text": _texts,
    "jsonb": _texts,
    "bytea": _bytes,
    "smallint": _numbers,
    "bigint": _numbers,
    "uuid": _with_nulls,
    "message_type": _with_nulls,
}
