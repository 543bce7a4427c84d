"""Writing what Spark's tasks have staged: in one transaction, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from jmsql.destinations import Queue, Topic, parse_destination
from jmsql.exceptions import InvalidDestinationException, JMSException
from jmsql.postgresql_text import to_postgresql
from jmsql.store.driver import Driver
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import quote_identifier
from jmsql.store.message_store import MessageStore, Publisher
from jmsql.store.send_statements import DELAYED_COLUMNS, SEND_COLUMNS
from jmsql.store.topic_statements import topic_statements
from jmsql.store.traffic import Counts, write_traffic

__all__ = ["STAGED_COLUMNS", "Attempt", "Place", "SparkWrites", "write_statements"]

STAGED_COLUMNS = tuple(name for name, _ in DELAYED_COLUMNS if name != "jms_timestamp")
"""The columns of a staged message that the task fills."""

_KEPT_BATCHES = 100
"""How many batches of a streaming query stay in the ledger. Spark repeats the last one alone."""


_FOR_DESTINATION = "s.destination = %(staged_destination)s and (s.jms_delivery_time is not null) = %(is_delayed)s"


class Place(NamedTuple):
    """Where messages go.

    Args:
        destination: The queue or topic, as a URI.
        is_delayed: Whether they are delivered later.
    """

    destination: str
    is_delayed: bool


class Attempt(NamedTuple):
    """A task's attempt that has succeeded.

    Args:
        attempt_id: Its number.
        partition: The task's place among the tasks of the write.
        staged: How many messages it has staged, by where they go.
    """

    attempt_id: int
    partition: int
    staged: Mapping[Place, int]


class WriteStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = self._schema = quote_identifier(schema_name)
        self.begin_attempt = f"insert into {schema}.spark_attempt default values returning attempt_id"
        columns = ", ".join(("attempt_id", "position", *STAGED_COLUMNS))
        self.stage = f"copy {schema}.spark_staging ({columns}) from stdin (format binary)"
        self.begin_write = f"""
            insert into {schema}.spark_write (write_id, batch_id, messages)
            values (%(write_id)s, %(batch_id)s, %(messages)s) on conflict do nothing"""
        self.forget_writes = f"""
            delete from {schema}.spark_write where write_id = %(write_id)s and batch_id < %(batch_id)s"""
        self.forget_attempts = f"""
            with forgotten as (delete from {schema}.spark_attempt where attempt_id = any(%(attempts)s::bigint[]))
            delete from {schema}.spark_staging where attempt_id = any(%(attempts)s::bigint[])"""

    def source(self, columns: Sequence[tuple[str, str]]) -> str:
        """Return the staged messages for one topic as rows with the columns of a publication and `position`."""
        names = ", ".join(name for name, _ in columns)
        return f"""(
            select {self._values(columns)}, row_number() over (order by a.ordinality, s.position)
            from unnest(%(attempts)s::bigint[]) with ordinality as a (attempt_id, ordinality)
            join {self._schema}.spark_staging s using (attempt_id)
            where {_FOR_DESTINATION}) as m ({names}, position)"""

    def send(self, *, delayed: bool) -> str:
        """Insert what one attempt has staged for a queue, in its order, which the key of the staged has."""
        table, columns = ("delayed_message", DELAYED_COLUMNS) if delayed else ("message", SEND_COLUMNS)
        own = columns[1:]
        return f"""
            insert into {self._schema}.{table} (queue_id, {", ".join(name for name, _ in own)})
            select %(queue_id)s, {self._values(own)}
            from {self._schema}.spark_staging s
            where s.attempt_id = %(attempt_id)s and {_FOR_DESTINATION}
            order by s.position"""

    def _values(self, columns: Sequence[tuple[str, str]]) -> str:
        schema = self._schema
        special = {
            "jms_timestamp": f"(select {schema}.current_milliseconds())",
            "message_type": f"s.message_type::{schema}.message_type",
        }
        return ", ".join(special.get(name, f"s.{name}") for name, _ in columns)


@cache
def write_statements(schema_name: str) -> WriteStatements:
    """Return the statements for a schema."""
    return WriteStatements(schema_name)


class SparkWrites:
    """The writes of Spark, seen through one connection and its open transaction.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._schema = schema
        self._statements = write_statements(schema)

    def begin_attempt(self) -> int:
        """Return the number under which a task stages messages."""
        return int(self._driver.execute(self._statements.begin_attempt).rows[0][0])

    def write(self, attempts: Sequence[Attempt], write_id: str, batch_id: int, *, is_stream: bool) -> bool:
        """Send what was staged, unless the same write was done before; return whether it was sent now.

        Args:
            attempts: Those that succeeded, one for each task.
            write_id: What the write is known by.
            batch_id: Which batch of it this is.
            is_stream: Whether only the last batches can come again.

        Raises:
            JMSException: Something that was staged is gone.
        """
        attempts = sorted(attempts, key=lambda attempt: attempt.partition)
        staged = _total(attempts)
        total = staged.total()
        ledger = {"write_id": to_postgresql(write_id), "batch_id": batch_id, "messages": total}
        sent: dict[int, Counts] = {}
        with jms_errors("writing messages"):
            # Another driver that writes the same waits here until this transaction ends.
            is_new = self._driver.execute(self._statements.begin_write, ledger).row_count == 1
            if is_new:
                for place, messages in sorted(staged.items()):
                    number = self._send([each.attempt_id for each in attempts if place in each.staged], place)
                    if number is not None:
                        sent[number] = sent.get(number, Counts()).plus(Counts(sent=messages))
                if is_stream:
                    self._driver.execute(
                        self._statements.forget_writes, {**ledger, "batch_id": batch_id - _KEPT_BATCHES}
                    )
            # What is there now was there to be sent: nobody adds to what an attempt has staged.
            missing = total - self._forget(attempts)
            if is_new and missing:
                raise JMSException(
                    f"{missing} of {total} messages that Spark's tasks have staged are gone, as after a crash of the "
                    "server. Nothing was written; run the write again."
                )
            if sent:
                write_traffic(self._driver, self._schema, sent)  # last: its rows are shared by all who send
        return is_new

    def forget(self, attempts: Sequence[Attempt]) -> None:
        """Remove what was staged."""
        with jms_errors("discarding staged messages"):
            self._forget(attempts)

    def _forget(self, attempts: Sequence[Attempt]) -> int:
        """Remove what was staged, and return how much that was."""
        ids = [attempt.attempt_id for attempt in attempts]
        return self._driver.execute(self._statements.forget_attempts, {"attempts": ids}).row_count

    def _send(self, attempts: list[int], place: Place) -> int | None:
        """Send to a destination, and return the number under which its traffic is counted, if it is there."""
        uri, delayed = place
        destination = parse_destination(uri)
        store = MessageStore(self._driver, self._schema)
        parameters: dict[str, object] = {"staged_destination": uri, "is_delayed": delayed}
        if type(destination) is Queue:
            send = self._statements.send(delayed=delayed)
            queue_id = store.queue_id(destination.name)
            parameters["queue_id"] = queue_id
            for attempt_id in attempts:
                self._driver.execute(send, {**parameters, "attempt_id": attempt_id})
            store.notify([destination.name], [], delayed=delayed)
            return queue_id
        if type(destination) is Topic:
            source = self._statements.source(DELAYED_COLUMNS if delayed else SEND_COLUMNS)
            topics = topic_statements(self._schema)
            store.publish_with(
                destination,
                lambda selectors: topics.publish(selectors, flush=True, delayed=delayed, source=source),
                {**parameters, "attempts": attempts},
                Publisher(),
            )
            store.notify([], [destination.name], delayed=delayed)
            found = self._driver.execute(topics.find_topic, {"name": destination.name}).rows
            return -found[0][0] if found else None
        raise InvalidDestinationException(f"{uri} is temporary: only messages of its own client go there.")


def _total(attempts: Sequence[Attempt]) -> Counter[Place]:
    total: Counter[Place] = Counter()
    for attempt in attempts:
        total.update(attempt.staged)
    return total
