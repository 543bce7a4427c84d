"""Rows as PostgreSQL hands them out, made into the Arrow columns that Spark expects."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jmsql.messages import typed_json
from jmsql.messages.values import Byte, Float, Long, Short, Value
from jmsql.postgresql_text import ESCAPE, from_postgresql
from jmsql.spark.schema import BODY

__all__ = ["Shaper"]

_TEXTS = {"correlation_id", "reply_to", "jms_type", "text_body", "json_body", "body_types"}
_FIELDS: dict[type, str] = {
    bool: "boolean",
    Byte: "long",
    Short: "long",
    int: "long",
    Long: "long",
    Float: "double",
    float: "double",
    str: "string",
}
_TYPE_NAMES = {
    bool: "boolean",
    Byte: "byte",
    Short: "short",
    int: "int",
    Long: "long",
    Float: "float",
    float: "double",
    str: "string",
    type(None): "null",
}


class Shaper:
    """Makes batches of one schema.

    Args:
        schema: The schema that Spark expects.
    """

    def __init__(self, schema: StructType) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        names = schema.fieldNames()
        self.columns = (*names, *(("property_types",) if "properties" in names else ()))
        """The columns to read, in their order."""

    def shape(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert batches with the columns `columns`, none of which is empty."""
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [self._column(batch, field) for field in self._schema], schema=self._schema
                )

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        column = batch.column(field.name)
        if field.name == "properties":
            return _properties(column, batch.column("property_types"), field.type)
        if field.name == BODY:
            return _parse_bodies(column.to_pylist(), field.type)
        if field.name in _TEXTS:
            column = _from_postgresql(column)
        return column if column.type == field.type else column.cast(field.type)


def _from_postgresql(column: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring(column, ESCAPE)).as_py():
        return column
    # Spark's strings are UTF-8, which has no lone surrogates.
    texts = [
        None if text is None else from_postgresql(text).encode("utf-8", "replace").decode()
        for text in column.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _properties(column: pa.Array, types: pa.Array, kind: pa.MapType) -> pa.Array:
    offsets = [0]
    names: list[str] = []
    type_names: list[str] = []
    fields: dict[str, list[Any]] = {"boolean": [], "long": [], "double": [], "string": []}
    for values in _property_values(column, types):
        for name, value in values.items():
            names.append(name)
            type_names.append(_TYPE_NAMES[type(value)])
            for field in fields.values():
                field.append(None)
            if value is not None:
                fields[_FIELDS[type(value)]][-1] = value
        offsets.append(len(names))
    items = pa.StructArray.from_arrays(
        [pa.array(type_names, pa.string()), *(pa.array(fields[name], _field_type(kind, name)) for name in fields)],
        fields=list(kind.item_type),
    )
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(names, pa.string()), items).cast(kind)


def _property_values(column: pa.Array, types: pa.Array) -> Iterable[Mapping[str, Value]]:
    """Read the properties of each message.

    Where the JSON of all of them says all there is to say, it is parsed at once, at a seventh of the time.
    """
    texts = column.to_pylist()
    special = pc.or_(pc.match_substring(column, ESCAPE), pc.match_substring(column, "["))
    if types.null_count < len(types) or pc.any(special).as_py():
        type_texts = types.to_pylist()
        return (typed_json.read_object(text, stated) for text, stated in zip(texts, type_texts, strict=True))
    rows = json.loads(f"[{','.join('{}' if text is None else text for text in texts)}]", parse_int=_integer)
    return cast("list[dict[str, Value]]", rows)


def _integer(digits: str) -> int:
    number = int(digits)
    return number if -(2**31) <= number < 2**31 else Long(number)


def _field_type(kind: pa.MapType, name: str) -> pa.DataType:
    return kind.item_type.field(name).type


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
                explicit_schema=pa.schema([(BODY, kind)]), newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        table = None
    if table is not None and table.num_rows == len(texts):
        return table.column(BODY).combine_chunks()
    if len(texts) == 1:
        return pa.nulls(1, kind)
    middle = len(texts) // 2
    return pa.concat_arrays([_parse_bodies(texts[:middle], kind), _parse_bodies(texts[middle:], kind)])
