"""Rows as PostgreSQL hands them out, made into the Arrow columns that Spark, or an archive, expects."""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from jmsql.extension.values import ESCAPE, from_postgresql
from jmsql.spark.columns.expressions import BYTES, MILLISECONDS, RARE, SMALL, SMALL_FIELDS, SmallField
from jmsql.spark.columns.properties import PropertyShaper, occurs, utf8

BODY = "body"
"""The column with the parsed JSON body, which is there if its schema is given."""

_TEXTS = {
    "properties",
    "property_types",
    "correlation_id",
    "reply_to",
    "jms_type",
    "text_body",
    "json_body",
    "body_types",
    "subscription",
    "subscription_client_id",
    "client_id",
}
_JSON = {"properties", "property_types", "json_body", "body_types"}
_LAST_MILLISECOND = (2**63 - 1) // 1000

_PLAIN_IDENTIFIER = np.frombuffer(b"ID:00000000-0000-0000-0000-000000000000", np.uint8)
_DIGITS = np.dtype([("1", "V8"), ("2", "V4"), ("3", "V4"), ("4", "V4"), ("5", "V12")])
"""The hexadecimal digits of a UUID, in groups."""

_IDENTIFIER = np.dtype(
    [
        *(("ID:", "V3"), ("1", "V8"), ("-2", "V1"), ("2", "V4"), ("-3", "V1"), ("3", "V4")),
        *(("-4", "V1"), ("4", "V4"), ("-5", "V1"), ("5", "V12")),
    ]
)
"""Where they stand in the identifier of a message."""


class Shaper:
    """Makes batches of one schema.

    Args:
        schema: The columns that are expected.
        destination: Where all messages are from, which is not read then; None: they say so themselves.
        strict_json: Whether NUL in JSON is written as all parsers want it, and not as the character itself.
    """

    def __init__(self, schema: pa.Schema, destination: str | None = None, *, strict_json: bool = False) -> None:
        self._schema = schema
        self._strict = _JSON if strict_json else frozenset[str]()
        self._destination = destination
        # A row has one column at the least.
        names = [name for name in schema.names if destination is None or name != "destination"] or schema.names
        has_maps = any(field.name == "properties" and pa.types.is_map(field.type) for field in self._schema)
        self._properties = PropertyShaper()
        self.columns = (*names, *(("property_types",) if has_maps else ()))
        """The columns to read, in their order."""

    def shape(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert batches with the columns `columns`, the rare ones of which `select_list` may have made one."""
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [self._column(batch, field) for field in self._schema], schema=self._schema
                )

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == "destination" and self._destination is not None:
            return pa.repeat(self._destination, batch.num_rows)
        column = self._read(batch, field.name)
        if field.name == BODY:
            return _parse_bodies(_from_postgresql(column, escaped=True).to_pylist(), field.type)
        if field.name == "properties" and pa.types.is_map(field.type):
            return self._properties.shape(column, self._read(batch, "property_types"), field.type)
        if field.name == "message_id" and not pa.types.is_string(column.type):
            column = _message_ids(column)
        if field.name == "transaction_id" and pa.types.is_binary(column.type):
            column = _big_endian(column)
        if field.name in _TEXTS:
            column = _from_postgresql(column, escaped=field.name in self._strict)
        if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
            # A later expiration than Spark's last moment becomes that moment.
            column = pc.min_element_wise(column, _LAST_MILLISECOND, skip_nulls=False).cast(pa.timestamp("ms", "UTC"))
        return column if column.type == field.type else column.cast(field.type)

    def _read(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """Return a column as PostgreSQL has it, also if it is one of the rare or the small ones."""
        names = batch.schema.names
        if name in names:
            column = batch.column(name)
            return column.storage if isinstance(column, pa.ExtensionArray) else column
        if name in SMALL_FIELDS:
            return _small(batch.column(SMALL), SMALL_FIELDS[name])
        rare = batch.column(RARE)
        kind = pa.binary() if name == BYTES else pa.int64() if name in MILLISECONDS else pa.string()
        if rare.null_count == len(rare):
            return pa.nulls(len(rare), kind)
        packed = [each for each in self.columns if each not in names and each not in SMALL_FIELDS]
        texts = pc.list_element(rare, packed.index(name))
        if name == BYTES:
            return pa.array([None if text is None else bytes.fromhex(text) for text in texts.to_pylist()], kind)
        return texts.cast(kind)


def _small(column: pa.Array, field: SmallField) -> pa.Array:
    numbers = column.to_numpy() >> field.shift & (1 << field.bits) - 1
    return pa.array(field.texts, pa.string()).take(pa.array(numbers)) if field.texts else pa.array(numbers, pa.int32())


def _big_endian(numbers: pa.Array) -> pa.Array:
    """Return numbers of eight bytes, none of them null, as PostgreSQL sends them."""
    return pa.array(np.frombuffer(numbers.buffers()[2], ">i8", len(numbers), 8 * numbers.offset).astype(np.int64))


def _message_ids(uuids: pa.Array) -> pa.Array:
    """Return the identifiers of messages whose UUIDs are given, null where they are."""
    count = len(uuids)
    digits: NDArray[np.void] = np.frombuffer(hexlify(uuids.buffers()[1].slice(16 * uuids.offset, 16 * count)), _DIGITS)
    texts = np.tile(_PLAIN_IDENTIFIER, count)
    groups: NDArray[np.void] = texts.view(_IDENTIFIER)
    for group in "12345":
        groups[group] = digits[group]
    length = len(_PLAIN_IDENTIFIER)
    offsets = np.arange(0, length * (count + 1), length, dtype=np.int32)
    identifiers = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(texts))
    return pc.if_else(uuids.is_valid(), identifiers, None) if uuids.null_count else identifiers


def _from_postgresql(column: pa.Array, *, escaped: bool) -> pa.Array:
    if not occurs(ESCAPE, column):
        return column
    nul = "\\u0000" if escaped else "\0"
    texts = [None if text is None else utf8(from_postgresql(text).replace("\0", nul)) for text in column.to_pylist()]
    return pa.array(texts, pa.string())


def _parse_bodies(texts: list[str | None], kind: pa.StructType) -> pa.Array:
    """Parse JSON objects; null where there is none, or one that does not fit.

    All are parsed at once. If that fails, the halves are, until those that do not fit stand alone. Each stands in an
    object of its own, so that no text makes less than one row: one that makes more shows by the count.
    """
    content = "\n".join(f'{{"{BODY}": {"null" if text is None else text}}}' for text in texts).encode()
    try:
        table = arrow_json.read_json(
            pa.BufferReader(content),
            arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema([(BODY, _parsed_type(kind))]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
        table.validate(full=True)  # the parser takes decimals of more digits than their type has
        if table.num_rows == len(texts):
            return _read_texts(table.column(BODY).combine_chunks(), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    if len(texts) == 1:
        return pa.nulls(1, kind)
    middle = len(texts) // 2
    return pa.concat_arrays([_parse_bodies(texts[:middle], kind), _parse_bodies(texts[middle:], kind)])


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return a type as Arrow's parser reads it: dates are texts to it."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_parsed_type(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) else kind


def _read_texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a parsed column with its dates, which are texts so far.

    Raises:
        pyarrow.ArrowInvalid: A text is no date.
    """
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        children = [_read_texts(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        ends = pc.cumulative_sum(pc.list_value_length(column).fill_null(0))
        offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
        values = _read_texts(column.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(offsets, values, kind, mask=column.is_null())
    return column.cast(kind)
