"""Rows of Spark as messages: checked, and in the columns that the database wants."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from jmsql import Destination, InvalidDestinationException, JMSException, Message, MessageFormatException, Queue, Topic
from jmsql.extension.sending import DELAYED_COLUMNS
from jmsql.extension.values import (
    ESCAPE,
    Byte,
    Float,
    Long,
    Short,
    boolean,
    double,
    integer,
    is_settable,
    optional_to_postgresql,
    parse_destination,
    to_postgresql,
    typed_json,
    with_article,
)
from jmsql.spark.columns.properties import occurs

_DEFAULT_PRIORITY = 4
_LAST_MILLISECOND = 253_402_214_399_999
"""The last moment that the database takes."""

_MODES = {"PERSISTENT": 2, "NON_PERSISTENT": 1}
_BODIES = ("text_body", "json_body", "bytes_body")
_BODY_OF = {
    "Message": None,
    "TextMessage": "text_body",
    "BytesMessage": "bytes_body",
    "MapMessage": "json_body",
    "StreamMessage": "json_body",
    "ObjectMessage": "json_body",
}
_TYPES = {
    "position": pa.int64(),
    "jms_message_id": pa.binary(16),  # COPY sends a uuid as its bytes
    "inverse_priority": pa.int16(),
    "jms_delivery_mode": pa.int16(),
    "jms_expiration": pa.int64(),
    "jms_delivery_time": pa.int64(),
    "bytes_body": pa.binary(),
}
OUTGOING_SCHEMA = pa.schema(
    [
        pa.field(name, _TYPES.get(name, pa.string()))
        for name in ("position", *(name for name, _ in DELAYED_COLUMNS if name != "jms_timestamp"))
    ]
)
"""The columns of a message that the task fills."""


class OutgoingMessages:
    """Makes messages of the rows of one task.

    Args:
        destination: The destination of all rows; None: the rows name theirs.
        bad_records: The queue that takes the rows that are no messages; None: such a row is an error.
    """

    def __init__(self, destination: str | None, bad_records: str | None = None) -> None:
        self._destination = destination
        self._bad_records = bad_records
        self._position = 0

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of Spark's rows.

        Raises:
            JMSException: A row is no message; it names the column.
        """
        if self._bad_records is None:
            return self._convert(batch)
        parts = list(self._convert_good(batch, self._bad_records))
        return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]

    def _convert_good(self, batch: pa.RecordBatch, bad_records: str) -> Iterator[pa.RecordBatch]:
        """Convert rows, and in halves if one is no message, until it stands alone."""
        try:
            converted = self._convert(batch)
        except JMSException as error:
            if batch.num_rows > 1:
                middle = batch.num_rows // 2
                yield from self._convert_good(batch.slice(0, middle), bad_records)
                yield from self._convert_good(batch.slice(middle), bad_records)
                return
            outgoing = OutgoingMessages(bad_records)
            outgoing._position, self._position = self._position, self._position + 1
            converted = outgoing._convert(_record(batch, error))
        yield converted

    def _convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            _require_utf8(name, column)
        count = batch.num_rows
        position = self._position
        kinds, bodies = _kinds_and_bodies(batch)
        properties, property_types = _encode_properties(_column(batch, "properties"), _column(batch, "property_types"))
        columns = {
            **bodies,
            "position": pa.array(np.arange(position, position + count, dtype=np.int64)),
            "destination": self._destinations(batch),
            "jms_message_id": _message_ids(count),
            "message_type": kinds,
            "inverse_priority": _inverse_priorities(_column(batch, "priority", pa.int32())),
            "jms_delivery_mode": _modes(_column(batch, "delivery_mode")),
            "jms_expiration": _milliseconds(batch, "expires_at"),
            "jms_delivery_time": _milliseconds(batch, "delivery_time"),
            "jms_correlation_id": _text(_column(batch, "correlation_id")),
            "jms_reply_to": _reply_to(_column(batch, "reply_to")),
            "jms_type": _text(_column(batch, "jms_type")),
            "properties": properties,
            "property_types": property_types,
        }
        arrays = [columns[field.name].cast(field.type) for field in OUTGOING_SCHEMA]
        self._position += count
        return pa.RecordBatch.from_arrays(arrays, schema=OUTGOING_SCHEMA)

    def _destinations(self, batch: pa.RecordBatch) -> pa.Array:
        column = _column(batch, "destination")
        given = self._destination
        if given is not None:
            column = column.fill_null(given)
        for uri in pc.unique(column).to_pylist():
            if uri is None:
                raise JMSException(
                    "The column 'destination' is null in a row, and neither 'queue' nor 'topic' is given."
                )
            if type(_parse_destination("destination", uri)) not in {Queue, Topic}:
                raise JMSException(f"The column 'destination' says {uri!r}; write queue://NAME or topic://NAME.")
            if given is not None and uri != given:
                raise JMSException(
                    f"The column 'destination' says {uri!r}, and an option {given!r}. Drop the column to write all "
                    "rows there, or leave the option out."
                )
        return column


def _require_utf8(name: str, column: pa.Array) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise JMSException(f"The column {name!r} holds a text that is not UTF-8.") from error


def _record(row: pa.RecordBatch, refusal: JMSException) -> pa.RecordBatch:
    """Return a text message that shows a row, and says why it is no message."""
    values = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = column[0].as_py()
        except ValueError:  # not UTF-8, or a time that Python does not have
            values[name] = str(column.cast(pa.binary())[0].as_py() if pa.types.is_string(column.type) else column[0])
    shown = {name: value for name, value in values.items() if value is not None}
    properties, _ = typed_json.write_object({"error": str(refusal)})
    return pa.RecordBatch.from_pydict(
        {"text_body": [json.dumps(shown, default=str, ensure_ascii=False)], "properties": [properties]}
    )


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column of the batch, or one full of nulls."""
    if name in batch.schema.names:
        return batch.column(name)
    return pa.nulls(batch.num_rows, kind or pa.string())


def _message_ids(count: int) -> pa.Array:
    """Make random UUIDs, of version 4."""
    ids = np.frombuffer(bytearray(os.urandom(16 * count)), np.uint8).reshape(count, 16)
    ids[:, 6] = ids[:, 6] & 0x0F | 0x40
    ids[:, 8] = ids[:, 8] & 0x3F | 0x80
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(ids.tobytes())])


def _inverse_priorities(priorities: pa.Array) -> pa.Array:
    priorities = priorities.fill_null(_DEFAULT_PRIORITY)
    wrong = priorities.filter(pc.or_(pc.less(priorities, 0), pc.greater(priorities, 9)))
    if len(wrong):
        raise JMSException(f"The column 'priority' holds {wrong[0]}; priorities are 0 to 9.")
    return pc.subtract(9, priorities)


def _modes(names: pa.Array) -> pa.Array:
    names = names.fill_null("PERSISTENT")
    for name in pc.unique(names).to_pylist():
        if name not in _MODES:
            raise JMSException(f"The column 'delivery_mode' holds {name!r}; write PERSISTENT or NON_PERSISTENT.")
    return pc.if_else(pc.equal(names, "PERSISTENT"), _MODES["PERSISTENT"], _MODES["NON_PERSISTENT"])


def _milliseconds(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.int64())
    timestamps = batch.column(name).cast(pa.timestamp("us", "UTC"))
    milliseconds = pc.divide(timestamps.cast(pa.int64()), 1000)
    wrong = timestamps.filter(pc.or_(pc.less(milliseconds, 1), pc.greater(milliseconds, _LAST_MILLISECOND)))
    if len(wrong):
        raise JMSException(
            f"The column {name!r} holds the timestamp {np.datetime64(wrong[0].value, 'us')}; times are after "
            "1970-01-01 00:00 UTC and before 9999-12-31, and null where there is none."
        )
    return milliseconds


def _text(column: pa.Array) -> pa.Array:
    if not occurs("\0", column) and not occurs(ESCAPE, column):
        return column
    return pa.array([None if text is None else to_postgresql(text) for text in column.to_pylist()], pa.string())


def _reply_to(column: pa.Array) -> pa.Array:
    for uri in pc.unique(column).to_pylist():
        if uri is not None:
            _parse_destination("reply_to", uri)
    return _text(column)


def _parse_destination(column: str, uri: str) -> Destination:
    try:
        return parse_destination(uri)
    except InvalidDestinationException as error:
        raise InvalidDestinationException(f"The column {column!r}: {error}") from error


def _kinds_and_bodies(batch: pa.RecordBatch) -> tuple[pa.Array, dict[str, pa.Array]]:
    """Find the kind of each message, and its body as that kind has it."""
    given = {name: _column(batch, name, pa.binary() if name == "bytes_body" else None) for name in _BODIES}
    if pc.max(_count_of_values(given.values())).as_py() > 1:
        raise JMSException(f"A row has several bodies; a message has one of {', '.join(_BODIES)}.")
    is_list = pc.starts_with(pc.utf8_ltrim_whitespace(given["json_body"]), "[")
    by_body = pc.case_when(
        pc.make_struct(*(given[name].is_valid() for name in _BODIES)),
        "TextMessage",
        pc.if_else(is_list, "StreamMessage", "MapMessage"),
        "BytesMessage",
        "Message",
    )
    kinds = pc.coalesce(_column(batch, "type"), by_body)
    for kind in pc.unique(kinds).to_pylist():
        if kind not in _BODY_OF:
            raise JMSException(f"The column 'type' holds {kind!r}; the kinds are {', '.join(_BODY_OF)}.")
        for name in set(_BODIES) - {_BODY_OF[kind]}:
            if pc.any(pc.and_(pc.equal(kinds, kind), given[name].is_valid())).as_py():
                raise JMSException(f"A row of the type {kind} has a {name}, which such a message does not have.")
    is_bytes = pc.equal(kinds, "BytesMessage")
    json_body, body_types = _json_bodies(kinds, given["json_body"], _column(batch, "body_types"))
    return kinds, {
        "text_body": _text(given["text_body"]),
        "bytes_body": pc.if_else(is_bytes, given["bytes_body"].fill_null(b""), pa.scalar(None, pa.binary())),
        "json_body": json_body,
        "body_types": body_types,
    }


def _count_of_values(columns: Iterable[pa.Array]) -> pa.Array:
    first, *others = (column.is_valid().cast(pa.int8()) for column in columns)
    total = first
    for count in others:
        total = pc.add(total, count)
    return total.fill_null(0) if len(total) else pa.array([0], pa.int8())


def _json_bodies(kinds: pa.Array, bodies: pa.Array, types: pa.Array) -> tuple[pa.Array, pa.Array]:
    structured = pc.is_in(kinds, pa.array(["MapMessage", "StreamMessage", "ObjectMessage"]))
    if not pc.any(structured).as_py():
        return bodies, pa.nulls(len(bodies), pa.string())
    texts, type_texts = [], []
    for kind, body, body_types in zip(kinds.to_pylist(), bodies.to_pylist(), types.to_pylist(), strict=True):
        text, type_text = body, None
        try:
            if kind == "MapMessage":
                text, type_text = typed_json.write_object(typed_json.read_object(body, body_types))
            elif kind == "StreamMessage":
                text, type_text = typed_json.write_array(typed_json.read_array(body, body_types))
            elif kind == "ObjectMessage" and body is not None:
                _check_envelope(body)
        except MessageFormatException as error:
            raise MessageFormatException(
                f"The column 'json_body' holds no body of {with_article(kind)}: {error}"
            ) from error
        texts.append(text)
        type_texts.append(type_text)
    return pa.array(texts, pa.string()), pa.array(type_texts, pa.string())


def _check_envelope(body: str) -> None:
    if not isinstance(typed_json.parse_json(body), dict):
        raise MessageFormatException("The content is not a JSON object.")
    if "\\u0000" in body:
        raise MessageFormatException(r"PostgreSQL's JSON has no \u0000.")


_SLICE = 4096
"""How many messages are written at once, or, if that does not go for one of them, one by one."""

_ESCAPED = '["\\\\\\x00-\\x1f]|' + ESCAPE
"""Characters that JSON or PostgreSQL does not take unescaped."""

_VALUES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "byte": ("long", Byte),
    "short": ("long", Short),
    "int": ("long", integer),
    "long": ("long", Long),
    "float": ("double", Float),
    "double": ("double", double),
    "boolean": ("boolean", boolean),
    "string": ("string", str),
}
"""The field that holds a property's value, and its conversion, by the property's type."""


_NOT_PLAIN = (ESCAPE, "\\", "[", "null", "\0")
"""Parts of JSON text that has to be read value by value, or that PostgreSQL does not take unescaped."""

_NOTHING = r"^\s*\{\s*\}\s*$"


def _encode_properties(column: pa.Array, types: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Write properties, maps or JSON objects as text, as JSON, and the types that it does not tell.

    Raises:
        MessageFormatException: A property cannot be set; the message names it.
    """
    nothing = pa.nulls(len(column), pa.string())
    if column.null_count == len(column) and types.null_count == len(types):
        return nothing, nothing
    parts = [_encode(column.slice(at, _SLICE), types.slice(at, _SLICE)) for at in range(0, len(column), _SLICE)]
    return pa.concat_arrays([texts for texts, _ in parts]), pa.concat_arrays([types for _, types in parts])


def _encode(column: pa.Array, types: pa.Array) -> tuple[pa.Array, pa.Array]:
    if pa.types.is_map(column.type):
        texts = _encode_at_once(column)
        return _encode_maps(column) if texts is None else (texts, pa.nulls(len(column), pa.string()))
    if types.null_count == len(types) and _is_plain(column):
        is_nothing = pc.match_substring_regex(column, _NOTHING)
        return pc.if_else(is_nothing, pa.scalar(None, pa.string()), column), types
    return _encode_each(_read_texts(column, types), lambda value: value)


def _is_plain(column: pa.Array) -> bool:
    """Return whether JSON text has the database's own form: objects of strings, booleans and exact numbers."""
    if any(occurs(text, column) for text in _NOT_PLAIN):
        return False
    # Each stands in an object of its own, so that a text that makes more than one row shows by the count.
    content = "\n".join(f'{{"row": {"{}" if text is None else text}}}' for text in column.to_pylist()).encode()
    try:
        table = arrow_json.read_json(
            pa.BufferReader(content), arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
        )
    except pa.ArrowInvalid:
        return False
    if table.num_rows != len(column) or table.column_names != ["row"] or not pa.types.is_struct(table["row"].type):
        return False
    return all(
        is_settable(field.name)
        and not field.name.startswith("JMSX")
        # Arrow takes some texts for times.
        and (field.type in (pa.string(), pa.bool_(), pa.int64()) or pa.types.is_timestamp(field.type))
        for field in table["row"].type
    )


def _encode_at_once(column: pa.MapArray) -> pa.Array | None:
    """Write values that need no types beside them and no escapes, with Arrow alone; None if there is something else."""
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    names, items = column.keys.slice(first, last - first), column.items.slice(first, last - first)
    if not all(is_settable(name) and not name.startswith("JMSX") for name in pc.unique(names).to_pylist()):
        return None
    values = _plain_values(items)
    if values is None or values.null_count:
        return None
    entries = pc.binary_join_element_wise('"', names, '": ', values, "")
    joined = pc.binary_join(pa.ListArray.from_arrays(pc.subtract(column.offsets, first), entries), ", ")
    objects = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), objects)


def _plain_values(items: pa.Array) -> pa.Array | None:
    if not pa.types.is_struct(items.type):
        return _quoted(items)
    if items.null_count:
        return None
    types, exact = items.field("type"), items.field("long")
    if not set(pc.unique(types).to_pylist()) <= {"string", "boolean", "int"}:
        return None
    is_exact = pc.equal(types, "int")
    fits = pc.and_(pc.greater_equal(exact, -(2**31)), pc.less(exact, 2**31))
    texts = _quoted(items.field("string"))
    if texts is None or not pc.all(fits.filter(is_exact)).as_py():
        return None
    numbers = pc.if_else(is_exact, exact.cast(pa.string()), items.field("boolean").cast(pa.string()))
    return pc.if_else(pc.equal(types, "string"), texts, numbers)


def _quoted(texts: pa.Array) -> pa.Array | None:
    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return None
    return pc.binary_join_element_wise('"', texts, '"', "")


def _encode_maps(column: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    is_typed = pa.types.is_struct(column.type.item_type)
    rows = (items or () for items in column.to_pylist())
    return _encode_each(rows, _value if is_typed else lambda value: value)


def _read_texts(column: pa.Array, types: pa.Array) -> Iterator[Iterable[tuple[str, Any]]]:
    for text, stated in zip(column.to_pylist(), types.to_pylist(), strict=True):
        try:
            # The values that were read have characters that PostgreSQL does not take.
            properties = typed_json.read_object(optional_to_postgresql(text), optional_to_postgresql(stated))
        except MessageFormatException as error:
            raise MessageFormatException(f"The column 'properties' holds no properties: {error}") from error
        yield properties.items()


def _encode_each(
    rows: Iterable[Iterable[tuple[str, Any]]], value_of: Callable[[Any], Any]
) -> tuple[pa.Array, pa.Array]:
    texts, type_texts = [], []
    for items in rows:
        message = Message()
        for name, value in items:
            try:
                message.set_object_property(name, value_of(value))
            except (JMSException, KeyError, TypeError, ValueError) as error:
                raise MessageFormatException(f"The column 'properties', {name!r}: {error}") from error
        encoded = message.encode()
        texts.append(encoded.properties)
        type_texts.append(encoded.property_types)
    return pa.array(texts, pa.string()), pa.array(type_texts, pa.string())


def _value(row: dict[str, Any] | None) -> Any:
    if row is None or row["type"] == "null":
        return None
    if row["type"] == "json":
        raise MessageFormatException(f"no message has such a value: {row['string']}.")
    if row["type"] not in _VALUES:
        raise MessageFormatException(f"the type is one of {', '.join(_VALUES)} and null, not {row['type']!r}.")
    field, make = _VALUES[row["type"]]
    if row[field] is None:
        raise MessageFormatException(f"the type is {row['type']}, but the field {field!r} is null.")
    return make(row[field])
