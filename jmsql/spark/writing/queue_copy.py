"""Rows of Spark for queues, which become messages without being staged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from jmsql.spark.writing.copying import copy_batches
from jmsql.spark.writing.outgoing import STAGED_SCHEMA
from jmsql.spark.writing.staging import MESSAGE_COLUMNS, Place, StagedMessages, staging_statements
from jmsql.store.driver import PsycopgDriver

__all__ = ["QueueCopy"]

_TYPES = {"queue_id": pa.int32(), "jms_timestamp": pa.int64()}
_SCHEMA = pa.schema(
    [pa.field(name, _TYPES[name]) if name in _TYPES else STAGED_SCHEMA.field(name) for name in MESSAGE_COLUMNS]
)


class QueueCopy:
    """Copies rows into the table of messages, in the open transaction of a task.

    Args:
        connection: The task's connection.
        schema: The name of the schema.
        make_queues: Makes queues, and commits them, given the names of those that are not there.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, make_queues: Callable[[Sequence[str]], None]
    ) -> None:
        self._connection = connection
        self._statement = staging_statements(schema).copy_messages
        self._messages = StagedMessages(PsycopgDriver(connection), schema)
        self._may_copy = self._messages.may_copy()
        self._make_queues = make_queues
        self._queue_ids: dict[str, int] = {}

    def copy(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Copy the rows that are for queues and not delayed, if that may be.

        Args:
            rows: Rows as they would be staged.

        Returns:
            The rows that remain to be staged.
        """
        if not self._may_copy:
            return rows
        destinations = rows.column("destination")
        queues = [uri for uri in pc.unique(destinations).to_pylist() if _place(uri).is_queue]
        is_direct = pc.and_(
            pc.is_in(destinations, pa.array(queues, pa.string())), rows.column("jms_delivery_time").is_null()
        )
        direct = rows.filter(is_direct)
        if direct.num_rows:
            copy_batches(self._connection, self._statement, _SCHEMA, [self._as_messages(direct)])
        return rows.filter(pc.invert(is_direct))

    def _as_messages(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        destinations = rows.column("destination").dictionary_encode()
        queue_ids = pa.array([self._queue_id(uri) for uri in destinations.dictionary.to_pylist()], pa.int32())
        now = pa.array([self._messages.current_milliseconds()], pa.int64())
        columns = {
            "queue_id": queue_ids.take(destinations.indices),
            "jms_timestamp": now.take(pa.array([0] * rows.num_rows)),
        }
        return pa.RecordBatch.from_arrays(
            [columns[name] if name in columns else rows.column(name) for name in _SCHEMA.names], schema=_SCHEMA
        )

    def _queue_id(self, uri: str) -> int:
        if uri not in self._queue_ids:
            place = _place(uri)
            self._make_queues(self._messages.missing_queues([place]))
            self._queue_ids[uri] = self._messages.queue_id(place.name)
        return self._queue_ids[uri]


def _place(uri: str) -> Place:
    return Place(uri, is_delayed=False)
