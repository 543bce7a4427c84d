"""The messages of a task: committed where they belong, and hidden until the driver sends all tasks' messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Self

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

from jmsql import Destination, Queue, Topic
from jmsql.extension.scanning import queue_id
from jmsql.extension.sending import DELAYED_COLUMNS, Publisher, pending_transactions, publish_statement, publish_with
from jmsql.extension.statements import PsycopgRunner, SqlFile, Statement, Steps, fill, nothing, rows, value
from jmsql.spark.writing.commit import Attempt, names_of
from jmsql.spark.writing.destinations import is_there
from jmsql.spark.writing.outgoing import OUTGOING_SCHEMA

_JSON = {"properties", "property_types", "json_body", "body_types"}
_NAMES = tuple(name for name, _ in DELAYED_COLUMNS[1:])
_TYPES = {"queue_id": pa.int32(), "jms_timestamp": pa.int64()}
_MESSAGE_SCHEMA = pa.schema(
    [pa.field(name, _TYPES[name]) if name in _TYPES else OUTGOING_SCHEMA.field(name) for name in ("queue_id", *_NAMES)]
)
_VALUES = {
    "jms_timestamp": "(select jmsql_internal.current_milliseconds())",
    "message_type": "s.message_type::jmsql_internal.message_type",
}
"""The SQL of those columns of a message that a staged row `s` does not have as they are."""

_sql = SqlFile("writing", "jmsql.spark")
_parts = {
    "columns": ", ".join(_NAMES),
    "values": ", ".join(_VALUES.get(name, f"s.{name}") for name in _NAMES),
    "is_staged": _sql["is_staged"],
}
_begin = _sql.statement("begin_task", "writing messages", rows)
_current_milliseconds = _sql.statement("current_milliseconds", "writing messages", value(int))
_stage = _sql.statement("stage", "writing messages", nothing, {"columns": ", ".join(OUTGOING_SCHEMA.names)})
_send_staged = _sql.statement("send_staged", "writing messages", nothing, _parts)
_staged_messages = fill(_sql["staged_messages"], **_parts)
_forget_staged = _sql.statement("forget_staged", "writing messages", nothing)


@lru_cache(maxsize=64)
def _copy_messages(columns: tuple[str, ...]) -> Statement[None]:
    return _sql.statement("copy_messages", "writing messages", nothing, {"columns": ", ".join(columns)})


class TaskMessages:
    """Sends the messages of a task, in its open transaction.

    Messages for queues are copied. Where row security is active for the role, and for topics, SQL sends them.

    Made by `begin`.
    """

    def __init__(
        self,
        runner: PsycopgRunner,
        create: Callable[[Destination], None],
        *,
        may_copy: bool,
        first_sequence: int,
    ) -> None:
        self._runner = runner
        self._create = create
        self._may_copy = may_copy
        self._first_sequence = first_sequence
        self._queue_ids: dict[str, int] = {}
        self._messages: Counter[str] = Counter()
        self._staged: set[str] = set()
        self._delayed = 0

    @classmethod
    def open(cls, connection: psycopg.Connection[Any], schema: str, create: Callable[[Destination], None]) -> Self:
        """Open a task in a transaction; `create` makes a destination that is not there, and commits it."""
        runner = PsycopgRunner(connection, schema)
        [(may_copy, first_sequence)] = runner.run(_begin.bind())
        return cls(runner, create, may_copy=may_copy, first_sequence=first_sequence)

    def send(self, messages: pa.RecordBatch) -> None:
        """Send messages, of the schema `OUTGOING_SCHEMA`."""
        counted = {
            count["values"]: count["counts"] for count in messages.column("destination").value_counts().to_pylist()
        }
        self._messages.update(counted)
        self._delayed += len(messages) - messages.column("jms_delivery_time").null_count
        direct = {uri for uri in counted if self._may_copy and names_of(Queue, [uri])}
        self._staged |= counted.keys() - direct
        if direct == counted.keys():
            self._copy_to_queues(messages)
            return
        is_direct = pc.is_in(messages.column("destination"), pa.array(list(direct), pa.string()))
        if direct:
            self._copy_to_queues(messages.filter(is_direct))
        self._copy(_stage, messages.filter(pc.invert(is_direct)))

    def end(self, write_id: str, planned: int | None = None) -> Attempt:
        """Send the remaining messages; return the attempt's results once the transaction has committed.

        Args:
            write_id: The write that it is of.
            planned: The sequence at which the write was planned, if all tasks of it that began before are of drivers
                that are gone; their messages are never sent.
        """
        for uri in sorted(self._staged):
            self._runner.run(self._send_staged(uri))
        if self._staged:
            self._runner.run(_forget_staged.bind())
        transaction_id = self._runner.run(
            pending_transactions.hold_back(
                write_id, self._first_sequence, self._queue_ids.values(), names_of(Topic, self._messages)
            )
        )
        if planned is not None:  # last: a driver that decides waits for the rows
            self._runner.run(pending_transactions.abandon_before(write_id, planned))
        return Attempt(transaction_id, dict(self._messages), self._delayed, self._queue_ids)

    def _send_staged(self, uri: str) -> Steps[None]:
        if names_of(Queue, [uri]):
            yield from _send_staged.bind(destination=uri, queue_id=self._queue_id(uri))
            return
        [name] = names_of(Topic, [uri])
        self._require(Topic(name))
        yield from publish_with(
            Topic(name),
            lambda selectors: publish_statement(selectors, flush=True, delayed=True, source=_staged_messages),
            {"destination": uri},
            Publisher(),
        )

    def _copy_to_queues(self, messages: pa.RecordBatch) -> None:
        messages = self._for_queues(messages)
        # A column of nulls takes as much to write, and for the server to read, as another.
        filled = [name for name in messages.schema.names if messages.column(name).null_count < len(messages)]
        self._copy(_copy_messages(tuple(filled)), messages.select(filled))

    def _copy(self, statement: Statement[None], messages: pa.RecordBatch) -> None:
        encoder = binary_encoder(messages.schema)
        with self._runner.connection.cursor() as cursor, cursor.copy(statement.encoded(self._runner.schema)) as copy:
            copy.write(encoder.write_header())
            copy.write(encoder.write_batch(messages))
            copy.write(encoder.finish())

    def _for_queues(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        destinations = messages.column("destination").dictionary_encode()
        queue_ids = pa.array([self._queue_id(uri) for uri in destinations.dictionary.to_pylist()], pa.int32())
        columns = {
            "queue_id": queue_ids.take(destinations.indices),
            "jms_timestamp": pa.repeat(self._runner.run(_current_milliseconds.bind()), len(messages)),
        }
        return pa.RecordBatch.from_arrays(
            [columns[name] if name in columns else messages.column(name) for name in _MESSAGE_SCHEMA.names],
            schema=_MESSAGE_SCHEMA,
        )

    def _require(self, destination: Destination) -> None:
        if not self._runner.run(is_there(destination)):
            # For one that this transaction made, all other tasks would wait until it ends.
            self._create(destination)

    def _queue_id(self, uri: str) -> int:
        found = self._queue_ids.get(uri)
        if found is None:
            [name] = names_of(Queue, [uri])
            self._require(Queue(name))
            found = self._queue_ids[uri] = self._runner.run(queue_id(name, create=False))
        return found


def binary_encoder(schema: pa.Schema) -> ArrowToPostgresBinaryEncoder:
    """Return an encoder of batches of a schema, for COPY."""
    encoders = {
        field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
        if field.name in _JSON
        else ArrowToPostgresBinaryEncoder.infer_encoder(field)
        for field in schema
    }
    return ArrowToPostgresBinaryEncoder.new_with_encoders(schema, encoders)
