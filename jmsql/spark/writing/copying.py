"""Arrow batches into tables of PostgreSQL, by COPY in its binary format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg
import pyarrow as pa
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

__all__ = ["binary_encoder", "copy_batches"]

_JSON = {"properties", "property_types", "json_body", "body_types"}


def binary_encoder(schema: pa.Schema) -> ArrowToPostgresBinaryEncoder:
    """Return an encoder of batches of a schema."""
    encoders = {
        field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
        if field.name in _JSON
        else ArrowToPostgresBinaryEncoder.infer_encoder(field)
        for field in schema
    }
    return ArrowToPostgresBinaryEncoder.new_with_encoders(schema, encoders)


def copy_batches(
    connection: psycopg.Connection[Any], statement: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> None:
    """Run a COPY from standard input.

    Args:
        connection: The connection.
        statement: The statement, which names the columns of the schema.
        schema: The schema of the batches.
        batches: What is copied.
    """
    encoder = binary_encoder(schema)
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        copy.write(encoder.write_header())
        for batch in batches:
            copy.write(encoder.write_batch(batch))
        copy.write(encoder.finish())
