"""The properties of messages to be sent, from Spark's maps or JSON text to the JSON that the database stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from jmsql.exceptions import JMSException, MessageFormatException
from jmsql.messages import Message
from jmsql.messages.properties import is_settable
from jmsql.messages.types import typed_json
from jmsql.messages.types.values import Byte, Float, Long, Short, boolean, double, integer
from jmsql.spark.columns.text_columns import occurs
from jmsql.values.postgresql_text import ESCAPE, optional_to_postgresql

__all__ = ["encode_properties"]

_SLICE = 4096
"""How many messages are written at once, or, if that does not go for one of them, one by one."""

_ESCAPED = '["\\\\\\x00-\\x1f]|' + ESCAPE
"""What does not stand in JSON as it is, or not in PostgreSQL."""

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
"""By the type of a property: the field that holds its value, and what makes the value of it."""


_NOT_PLAIN = (ESCAPE, "\\", "[", "null", "\0")
"""What stands in JSON text that is to be read value by value, or that PostgreSQL does not take as it is."""

_NOTHING = r"^\s*\{\s*\}\s*$"


def encode_properties(column: pa.Array, types: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Write properties as JSON, and the types that it does not tell.

    Args:
        column: The properties: maps, or JSON objects as text.
        types: For JSON objects, the types that they do not tell, as JSON objects.

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
    """Tell whether JSON text is what the database stores: objects of strings, booleans and exact numbers."""
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
    """Write what needs no types beside it and no escapes, with Arrow alone; None if there is something else."""
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
            # What was read has the characters that PostgreSQL does not.
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
    if row["type"] not in _VALUES:
        raise MessageFormatException(f"the type is one of {', '.join(_VALUES)} and null, not {row['type']!r}.")
    field, make = _VALUES[row["type"]]
    if row[field] is None:
        raise MessageFormatException(f"the type is {row['type']}, but the field {field!r} is null.")
    return make(row[field])
