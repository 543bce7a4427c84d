"""Rows of Spark as messages: checked, and in the columns that the database wants."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jmsql.exceptions import InvalidDestinationException, JMSException, MessageFormatException
from jmsql.messages.types import typed_json
from jmsql.spark.columns.text_columns import occurs
from jmsql.spark.writing.outgoing_properties import encode_properties
from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.values.destinations import Destination, Queue, Topic, parse_destination
from jmsql.values.postgresql_text import ESCAPE, to_postgresql

__all__ = ["OUTGOING_SCHEMA", "OutgoingMessages"]

_DEFAULT_PRIORITY = 4
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
        destination: Where all messages go, as a URI; None: the rows say so.
    """

    def __init__(self, destination: str | None) -> None:
        self._destination = destination
        self._position = 0

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of Spark's rows.

        Raises:
            JMSException: A row is no message; it names the column.
        """
        count = batch.num_rows
        position = self._position
        self._position += count
        kinds, bodies = _kinds_and_bodies(batch)
        properties, property_types = encode_properties(_column(batch, "properties"), _column(batch, "property_types"))
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
    early = timestamps.filter(pc.less(milliseconds, 1))
    if len(early):
        raise JMSException(
            f"The column {name!r} holds the timestamp {early[0]}; times are after 1970-01-01 00:00 UTC, and null where "
            "there is none."
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
                raise JMSException(f"A row of the type {kind} has a {name}, which such a message has not.")
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
            raise MessageFormatException(f"The column 'json_body' holds no body of a {kind}: {error}") from error
        texts.append(text)
        type_texts.append(type_text)
    return pa.array(texts, pa.string()), pa.array(type_texts, pa.string())


def _check_envelope(body: str) -> None:
    if not isinstance(typed_json.parse_json(body), dict):
        raise MessageFormatException("The content is no JSON object.")
    if "\\u0000" in body:
        raise MessageFormatException(r"PostgreSQL's JSON has no \u0000.")
