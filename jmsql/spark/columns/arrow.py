"""Rows as PostgreSQL hands them out, made into the Arrow columns that Spark, or an archive, expects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from jmsql.spark.columns.properties import PropertyShaper
from jmsql.spark.columns.text_columns import occurs
from jmsql.values.postgresql_text import ESCAPE, from_postgresql

__all__ = ["BODY", "Shaper"]

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
_LAST_MILLISECOND = (2**63 - 1) // 1000


class Shaper:
    """Makes batches of one schema.

    Args:
        schema: The columns that are expected.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        names = schema.names
        has_maps = any(field.name == "properties" and pa.types.is_map(field.type) for field in self._schema)
        self._properties = PropertyShaper()
        self.columns = (*names, *(("property_types",) if has_maps else ()))
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
        if field.name == "properties" and pa.types.is_map(field.type):
            return self._properties.shape(column, batch.column("property_types"), field.type)
        if field.name == BODY:
            return _parse_bodies(column.to_pylist(), field.type)
        if field.name in _TEXTS:
            column = _from_postgresql(column)
        if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
            # What expires after Spark's last moment expires then.
            column = pc.min_element_wise(column, _LAST_MILLISECOND, skip_nulls=False).cast(pa.timestamp("ms", "UTC"))
        return column if column.type == field.type else column.cast(field.type)


def _from_postgresql(column: pa.Array) -> pa.Array:
    if not occurs(ESCAPE, column):
        return column
    # Spark's strings are UTF-8, which has no lone surrogates.
    texts = [
        None if text is None else from_postgresql(text).encode("utf-8", "replace").decode()
        for text in column.to_pylist()
    ]
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
