"""The properties of messages, from PostgreSQL's JSON to Spark's map of typed values."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import json as arrow_json

from jmsql import MessageFormatException
from jmsql.extension.values import ESCAPE, Byte, Char, Float, Long, Short, Value, typed_json


def occurs(text: str, column: pa.Array) -> bool:
    """Tell whether a text stands in a column of strings: somewhere, which is found out sooner than where.

    It may also stand across the end of a string, or where a null is: a hit has to be examined.
    """
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    bounds = memoryview(offsets).cast("b").cast("q" if pa.types.is_large_string(column.type) else "i")
    content = data[bounds[column.offset] : bounds[column.offset + len(column)]].to_pybytes()
    searched = text.encode()
    # A single byte, which hardly any text has if it is none of ASCII, is found a hundred times as fast.
    return searched[:1] in content and searched in content


def utf8(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8, and so Spark, does not have."""
    return text.encode("utf-8", "replace").decode()


_SLICE = 4096
"""How many messages are parsed at once: each name that occurs among them takes a column of that length."""

_KINDS: dict[type, tuple[str, str]] = {
    bool: ("boolean", "boolean"),
    Byte: ("byte", "long"),
    Short: ("short", "long"),
    int: ("int", "long"),
    Long: ("long", "long"),
    Float: ("float", "double"),
    float: ("double", "double"),
    str: ("string", "string"),
    Char: ("char", "string"),  # of another program: no client sets it
    type(None): ("null", "string"),
}
"""The name of a value's type, and the field that holds it, by type."""

_NO_VALUE = "json"
"""The type of values that another program has stored and no client can read: JSON text in the field `string`.

A record that cannot be read must not end a stream: it would come again with each start.
"""

_Column: TypeAlias = pa.Array | Sequence[Value]

_VALUE_TYPES = {"boolean": pa.bool_(), "long": pa.int64(), "double": pa.float64(), "string": pa.string()}


class PropertyShaper:
    """Makes the column `properties`.

    Where the JSON says all there is to say, which is the rule, Arrow parses many messages at once. Only where it does
    not are they read one by one.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()  # names whose values Arrow would take for times

    def shape(self, column: pa.Array, types: pa.Array, kind: pa.MapType) -> pa.Array:
        """Convert properties and their types, both JSON, to maps of the type that Spark expects."""
        slices = range(0, len(column), _SLICE)
        return pa.concat_arrays([self._shape(column.slice(at, _SLICE), types.slice(at, _SLICE), kind) for at in slices])

    def _shape(self, column: pa.Array, types: pa.Array, kind: pa.MapType) -> pa.Array:
        table = self._parse(column) if _is_plain(column, types) else None
        return _read_each(column, types, kind) if table is None else _interleave(table, kind)

    def _parse(self, column: pa.Array) -> pa.Table | None:
        """Parse objects to a column for each name; None if Arrow sees other values than are there."""
        content = "\n".join("{}" if text is None else text for text in column.to_pylist()).encode()
        try:
            table = _read_json(content, self._texts)
            times = {field.name for field in table.schema if pa.types.is_timestamp(field.type)}
            if times:
                self._texts |= times
                table = _read_json(content, self._texts)
        except pa.ArrowInvalid:
            self._texts.clear()
            return None
        if table.num_rows != len(column):
            return None
        if all(_says_all(field, column) for field in table.schema):
            return table
        return None


def _interleave(table: pa.Table, kind: pa.MapType) -> pa.Array:
    """Make a map of each row of a table, from the columns in which it has a value."""
    fields = [field for field in table.schema if field.type != pa.null()]
    if not fields:
        return _map(np.zeros(table.num_rows + 1, np.int32), [], [], {}, kind)
    columns = [table.column(field.name).combine_chunks() for field in fields]
    there = np.array([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
    # The values stand one column after the other; each row takes its own, at these places.
    places = np.arange(there.size).reshape(there.shape).T[there.T]
    offsets = np.concatenate(([0], np.cumsum(there.sum(axis=0))))
    names = pa.array([field.name for field in fields], pa.string()).take(pa.array(places // table.num_rows))
    types = pa.concat_arrays([_type_names(column) for column in columns]).take(pa.array(places))
    values = {
        name: pa.concat_arrays(
            [column if column.type == value_type else pa.nulls(len(column), value_type) for column in columns]
        ).take(pa.array(places))
        for name, value_type in _VALUE_TYPES.items()
    }
    return _map(offsets, names, types, values, kind)


def _read_each(column: pa.Array, types: pa.Array, kind: pa.MapType) -> pa.Array:
    offsets = [0]
    names: list[str] = []
    type_names: list[str] = []
    values: dict[str, list[Value]] = {name: [] for name in _VALUE_TYPES}
    for text, stated in zip(column.to_pylist(), types.to_pylist(), strict=True):
        for name, type_name, field, value in _read_properties(text, stated):
            names.append(utf8(name))
            type_names.append(type_name)
            for value_column in values.values():
                value_column.append(None)
            values[field][-1] = utf8(value) if isinstance(value, str) else value
        offsets.append(len(names))
    return _map(offsets, names, type_names, values, kind)


def _read_properties(text: str | None, stated: str | None) -> Iterator[tuple[str, str, str, Value]]:
    """Yield the name, the type, the field and the value of each property."""
    others: dict[str, str] = {}
    try:
        properties = typed_json.read_object(text, stated)
    except MessageFormatException:
        properties, others = typed_json.salvage_object(text or "{}", stated)
    for name, value in properties.items():
        if isinstance(value, bytes):  # of another program: no client sets it
            yield name, "bytes", "string", b2a_base64(value, newline=False).decode()
        else:
            yield name, *_KINDS[type(value)], value
    for name, json_text in others.items():
        yield name, _NO_VALUE, "string", json_text


def _map(
    offsets: Sequence[int] | NDArray[np.int64],
    names: _Column,
    types: _Column,
    values: Mapping[str, _Column],
    kind: pa.MapType,
) -> pa.Array:
    columns = [pa.array(values.get(name, []), value_type) for name, value_type in _VALUE_TYPES.items()]
    items = pa.StructArray.from_arrays([pa.array(types, pa.string()), *columns], fields=list(kind.item_type))
    maps = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(names, pa.string()), items)
    return maps.cast(kind)


def _is_plain(column: pa.Array, types: pa.Array) -> bool:
    """Tell whether the JSON says all that there is to say: no types beside it, no escapes, no special numbers."""
    return types.null_count == len(types) and not occurs(ESCAPE, column) and not occurs("[", column)


def _read_json(content: bytes, texts: Iterable[str]) -> pa.Table:
    return arrow_json.read_json(
        pa.BufferReader(content),
        arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1),
        arrow_json.ParseOptions(explicit_schema=pa.schema([(name, pa.string()) for name in texts])),
    )


def _says_all(field: pa.Field, column: pa.Array) -> bool:
    """Return whether each of a name's values has the type that Arrow has found for the name."""
    if field.type == pa.float64():
        # It makes exact numbers into doubles where both stand under one name.
        return not pc.any(pc.match_substring_regex(column, rf'"\Q{field.name}\E": -?[0-9]+[,}}]')).as_py()
    return field.type in _VALUE_TYPES.values() or field.type == pa.null()


def _type_names(column: pa.Array) -> pa.Array:
    if column.type == pa.int64():
        fits = pc.and_(pc.greater_equal(column, -(2**31)), pc.less(column, 2**31))
        return pc.if_else(fits, "int", "long")
    name = {pa.bool_(): "boolean", pa.float64(): "double", pa.string(): "string"}[column.type]
    return pa.repeat(name, len(column))
