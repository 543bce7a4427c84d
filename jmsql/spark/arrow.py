"""Rows as PostgreSQL hands them out, made into the Arrow columns that Spark expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from jmsql.messages import typed_json
from jmsql.messages.values import Byte, Float, Long, Short
from jmsql.postgresql_text import ESCAPE, from_postgresql
from jmsql.spark.schema import BODY

__all__ = ["Shaper"]

_TEXTS = {"correlation_id", "reply_to", "jms_type", "text_body", "json_body", "body_types"}
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
    booleans, longs, doubles, strings = fields.values()
    for text, types_text in zip(column.to_pylist(), types.to_pylist(), strict=True):
        if text is not None or types_text is not None:
            for name, value in typed_json.read_object(text, types_text).items():
                names.append(name)
                type_names.append(_TYPE_NAMES[type(value)])
                booleans.append(value if type(value) is bool else None)
                longs.append(value if isinstance(value, int) and type(value) is not bool else None)
                doubles.append(value if isinstance(value, float) else None)
                strings.append(value if isinstance(value, str) else None)
        offsets.append(len(names))
    values = pa.StructArray.from_arrays(
        [pa.array(type_names, pa.string()), *(pa.array(fields[name], _field_type(kind, name)) for name in fields)],
        fields=list(kind.item_type),
    )
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(names, pa.string()), values).cast(kind)


def _field_type(kind: pa.MapType, name: str) -> pa.DataType:
    return kind.item_type.field(name).type


def _parse_bodies(texts: list[str | None], kind: pa.StructType) -> pa.Array:
    """Parse JSON objects; null where there is none, or one that does not fit.

    All are parsed at once. If that fails, the halves are, until those that do not fit stand alone.
    """
    content = "\n".join("{}" if text is None else text for text in texts).encode()
    try:
        table = arrow_json.read_json(
            pa.BufferReader(content),
            arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema(list(kind)), newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        table = None
    if table is None or table.num_rows != len(texts):  # one of them is no object, or several
        if len(texts) == 1:
            return pa.nulls(1, kind)
        middle = len(texts) // 2
        return pa.concat_arrays([_parse_bodies(texts[:middle], kind), _parse_bodies(texts[middle:], kind)])
    columns = [table.column(field.name).combine_chunks() for field in kind]
    mask = pa.array([text is None for text in texts])
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)
