"""Arrow batches into tables of PostgreSQL, by COPY in its binary format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

from jmsql.spark.writing.outgoing import STAGED_SCHEMA
from jmsql.spark.writing.staging import MESSAGE_COLUMNS, StagedDestination, missing_queues, stage
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.store.lookup import queue_id
from jmsql.store.statement import SqlFile, Statement, nothing, value

__all__ = ["QueueCopy", "binary_encoder", "stage_batches"]

_JSON = {"properties", "property_types", "json_body", "body_types"}
_TYPES = {"queue_id": pa.int32(), "jms_timestamp": pa.int64()}
_MESSAGE_SCHEMA = pa.schema(
    [pa.field(name, _TYPES[name]) if name in _TYPES else STAGED_SCHEMA.field(name) for name in MESSAGE_COLUMNS]
)

_sql = SqlFile("writing", "jmsql.spark")
_copy_messages = _sql.statement("copy_messages", "writing messages", nothing, {"columns": ", ".join(MESSAGE_COLUMNS)})
_may_copy = _sql.statement("may_copy", "writing messages", value(bool))
_current_milliseconds = _sql.statement("current_milliseconds", "writing messages", value(int))


def binary_encoder(schema: pa.Schema) -> ArrowToPostgresBinaryEncoder:
    """Return an encoder of batches of a schema."""
    encoders = {
        field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
        if field.name in _JSON
        else ArrowToPostgresBinaryEncoder.infer_encoder(field)
        for field in schema
    }
    return ArrowToPostgresBinaryEncoder.new_with_encoders(schema, encoders)


def stage_batches(connection: psycopg.Connection[Any], schema: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Stage rows.

    Args:
        connection: The task's connection.
        schema: The name of the PostgreSQL schema.
        batches: The rows, of the schema `STAGED_SCHEMA`.
    """
    _copy(connection, stage, schema, STAGED_SCHEMA, batches)


def _copy(
    connection: psycopg.Connection[Any],
    statement: Statement[None],
    schema: str,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> None:
    encoder = binary_encoder(columns)
    with connection.cursor() as cursor, cursor.copy(statement.encoded(schema)) as copy:
        copy.write(encoder.write_header())
        for batch in batches:
            copy.write(encoder.write_batch(batch))
        copy.write(encoder.finish())


class QueueCopy:
    """Copies rows for queues into the table of messages, without staging them, in the open transaction of a task.

    Args:
        connection: The task's connection.
        schema: The name of the schema.
        make_queues: Makes queues, and commits them, given the names of those that are not there.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, make_queues: Callable[[Sequence[str]], None]
    ) -> None:
        self._connection = connection
        self._runner = PsycopgRunner(connection, schema)
        self._may_copy: bool | None = None
        self._make_queues = make_queues
        self._queue_ids: dict[str, int] = {}

    def copy(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Copy the rows that are for queues and not delayed, if that may be.

        Args:
            rows: Rows as they would be staged.

        Returns:
            The rows that remain to be staged.
        """
        if self._may_copy is None:
            self._may_copy = self._runner.run(_may_copy.bind())  # COPY knows no row security
        if not self._may_copy:
            return rows
        destinations = rows.column("destination")
        queues = [uri for uri in pc.unique(destinations).to_pylist() if _place(uri).is_queue]
        is_direct = pc.and_(
            pc.is_in(destinations, pa.array(queues, pa.string())), rows.column("jms_delivery_time").is_null()
        )
        direct = rows.filter(is_direct)
        if direct.num_rows:
            messages = self._as_messages(direct)
            _copy(self._connection, _copy_messages, self._runner.schema, _MESSAGE_SCHEMA, [messages])
        return rows.filter(pc.invert(is_direct))

    def _as_messages(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        destinations = rows.column("destination").dictionary_encode()
        queue_ids = pa.array([self._queue_id(uri) for uri in destinations.dictionary.to_pylist()], pa.int32())
        now = pa.array([self._runner.run(_current_milliseconds.bind())], pa.int64())
        columns = {
            "queue_id": queue_ids.take(destinations.indices),
            "jms_timestamp": now.take(pa.array([0] * rows.num_rows)),
        }
        return pa.RecordBatch.from_arrays(
            [columns[name] if name in columns else rows.column(name) for name in _MESSAGE_SCHEMA.names],
            schema=_MESSAGE_SCHEMA,
        )

    def _queue_id(self, uri: str) -> int:
        if uri not in self._queue_ids:
            place = _place(uri)
            self._make_queues(self._runner.run(missing_queues([place])))
            self._queue_ids[uri] = self._runner.run(queue_id(place.name, create=False))
        return self._queue_ids[uri]


def _place(uri: str) -> StagedDestination:
    return StagedDestination(uri, is_delayed=False)
