"""What Spark's tasks have staged, and how it becomes messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from jmsql.destinations import Queue, Topic, parse_destination
from jmsql.postgresql_text import optional_to_postgresql
from jmsql.store.columns import DELAYED_COLUMNS, SEND_COLUMNS
from jmsql.store.driver import Driver
from jmsql.store.identifier import Schema
from jmsql.store.lookup import find_queue, find_topic, queue_id
from jmsql.store.runner import Runner
from jmsql.store.send import Publisher, notify_sent, publish_statement, publish_with
from jmsql.store.traffic import Counts

__all__ = ["MESSAGE_COLUMNS", "STAGED_COLUMNS", "Attempt", "Place", "StagedMessages", "staging_statements", "total"]

STAGED_COLUMNS = tuple(name for name, _ in DELAYED_COLUMNS if name != "jms_timestamp")
"""The columns of a staged message that the task fills."""

MESSAGE_COLUMNS = ("queue_id", *(name for name, _ in SEND_COLUMNS[1:]))
"""The columns of a message that the task copies into its queue."""

_FOR_DESTINATION = "s.destination = %(staged_destination)s and (s.jms_delivery_time is not null) = %(is_delayed)s"


class Place(NamedTuple):
    """Where messages go.

    Args:
        destination: The queue or topic, which is not temporary, as a URI.
        is_delayed: Whether they are delivered later.
    """

    destination: str
    is_delayed: bool

    @property
    def name(self) -> str:
        """The plain name of the destination."""
        return parse_destination(self.destination).name

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue, and not a topic."""
        return isinstance(parse_destination(self.destination), Queue)


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

    @property
    def messages(self) -> int:
        """How many messages it has staged."""
        return sum(self.staged.values())


def total(attempts: Iterable[Attempt]) -> Counter[Place]:
    """Return how many messages attempts have staged, by where they go."""
    counted: Counter[Place] = Counter()
    for attempt in attempts:
        counted.update(attempt.staged)
    return counted


class StagingStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = self._schema = Schema(schema_name)
        self.begin_attempt = f"""
            insert into {schema.internal}.spark_attempt (write_id) values (%(write_id)s::text) returning attempt_id"""
        columns = ", ".join(("attempt_id", "position", *STAGED_COLUMNS))
        self.stage = f"copy {schema.internal}.spark_staging ({columns}) from stdin (format binary)"
        self.copy_messages = f"copy {schema.internal}.message ({', '.join(MESSAGE_COLUMNS)}) from stdin (format binary)"
        literal = schema.internal.replace("'", "''")
        self.may_copy = f"select not row_security_active('{literal}.message'::regclass)"
        self.current_milliseconds = f"select {schema.internal}.current_milliseconds()"
        self.remove = f"delete from {schema.internal}.spark_staging where attempt_id = any(%(attempts)s::bigint[])"
        self.forget_attempts = f"""
            with forgotten as (delete from {schema.internal}.spark_attempt
            where attempt_id = any(%(attempts)s::bigint[]))
            {self.remove}"""
        # Of tasks that have died, or whose driver has, or that another attempt was faster than. One attempt at a time.
        self.forget_abandoned = f"""
            with abandoned as materialized (
                select attempt_id from {schema.internal}.spark_attempt
                where started_at < statement_timestamp() - interval '1 day'
                order by attempt_id limit 1
                for update skip locked),
            deleted as (
                delete from {schema.internal}.spark_staging where ctid = any(array(
                    select s.ctid from abandoned join {schema.internal}.spark_staging s using (attempt_id)
                    limit %(limit)s))
                returning position),
            forgotten as (
                delete from {schema.internal}.spark_attempt a using abandoned b
                where a.attempt_id = b.attempt_id and (select count(*) from deleted) < %(limit)s
                returning a.attempt_id)
            select (select count(*) from deleted), (select count(*) from forgotten)"""

    def source(self, columns: Sequence[tuple[str, str]]) -> str:
        """Return the staged messages for one topic as rows with the columns of a publication and `position`."""
        names = ", ".join(name for name, _ in columns)
        return f"""(
            select {self._values(columns)}, row_number() over (order by a.ordinality, s.position)
            from unnest(%(attempts)s::bigint[]) with ordinality as a (attempt_id, ordinality)
            join {self._schema.internal}.spark_staging s using (attempt_id)
            where {_FOR_DESTINATION}) as m ({names}, position)"""

    def send(self, *, delayed: bool) -> str:
        """Insert what one attempt has staged for a queue, in its order, which the key of the staged has."""
        table, columns = ("delayed_message", DELAYED_COLUMNS) if delayed else ("message", SEND_COLUMNS)
        own = columns[1:]
        return f"""
            insert into {self._schema.internal}.{table} (queue_id, {", ".join(name for name, _ in own)})
            select %(queue_id)s, {self._values(own)}
            from {self._schema.internal}.spark_staging s
            where s.attempt_id = %(attempt_id)s and {_FOR_DESTINATION}
            order by s.position"""

    def _values(self, columns: Sequence[tuple[str, str]]) -> str:
        schema = self._schema
        special = {
            "jms_timestamp": f"(select {schema.internal}.current_milliseconds())",
            "message_type": f"s.message_type::{schema.internal}.message_type",
        }
        return ", ".join(special.get(name, f"s.{name}") for name, _ in columns)


@cache
def staging_statements(schema_name: str) -> StagingStatements:
    """Return the statements for a schema."""
    return StagingStatements(schema_name)


class StagedMessages:
    """What Spark's tasks have staged, seen through one connection and its open transaction.

    Args:
        driver: Runs the statements.
        schema: The name of the schema.
    """

    def __init__(self, driver: Driver, schema: str) -> None:
        self._driver = driver
        self._runner = Runner(driver, schema)
        self._statements = staging_statements(schema)

    def begin_attempt(self, write_id: str | None = None) -> int:
        """Return the number under which a task stages messages.

        Args:
            write_id: What its write is known by, if others are to see whose attempt it is.
        """
        parameters = {"write_id": optional_to_postgresql(write_id)}
        return int(self._driver.execute(self._statements.begin_attempt, parameters).rows[0][0])

    def missing_queues(self, places: Iterable[Place]) -> list[str]:
        """Return the names of the queues that are not there."""
        names = {place.name for place in places if place.is_queue}
        return sorted(name for name in names if self._runner.run(find_queue(name)) is None)

    def queue_id(self, name: str) -> int:
        """Return the number of a queue that is there."""
        return self._runner.run(queue_id(name, create=False))

    def may_copy(self) -> bool:
        """Return whether messages can be copied into their table. COPY knows no row security."""
        return bool(self._driver.execute(self._statements.may_copy).rows[0][0])

    def current_milliseconds(self) -> int:
        """Return the server's time, in milliseconds since the epoch."""
        return int(self._driver.execute(self._statements.current_milliseconds).rows[0][0])

    def send(self, attempts: Sequence[Attempt], *, create: bool = True) -> None:
        """Send what attempts have staged, in their order.

        Args:
            attempts: The attempts.
            create: Whether to create queues that are not there.
        """
        for place in sorted(total(attempts)):
            self._send([each.attempt_id for each in attempts if place in each.staged], place, create=create)

    def remove(self, attempts: Sequence[Attempt]) -> int:
        """Remove what was staged, and return how much that was. The attempts stay known."""
        return self._driver.execute(self._statements.remove, _numbers(attempts)).row_count

    def forget(self, attempts: Sequence[Attempt]) -> int:
        """Remove what was staged, and return how much that was."""
        return self._driver.execute(self._statements.forget_attempts, _numbers(attempts)).row_count

    def notify(self, places: Iterable[Place]) -> None:
        """Tell all clients, with the commit of the open transaction, that there are new messages."""
        places = list(places)
        queues = {place.name for place in places if place.is_queue}
        topics = {place.name for place in places if not place.is_queue}
        self._runner.run(notify_sent(queues, topics, delayed=any(place.is_delayed for place in places)))

    def traffic(self, messages: Mapping[Place, int]) -> dict[int, Counts]:
        """Return what was sent, by the number under which the traffic of its destination is counted, if it is there."""
        sent: dict[int, Counts] = {}
        for place, count in messages.items():
            number = self._number(place)
            if number is not None:
                sent[number] = sent.get(number, Counts()).plus(Counts(sent=count))
        return sent

    def _number(self, place: Place) -> int | None:
        if place.is_queue:
            return self._runner.run(find_queue(place.name))
        found = self._runner.run(find_topic(place.name))
        return None if found is None else -found

    def _send(self, attempts: list[int], place: Place, *, create: bool) -> None:
        parameters: dict[str, object] = {"staged_destination": place.destination, "is_delayed": place.is_delayed}
        if place.is_queue:
            send = self._statements.send(delayed=place.is_delayed)
            parameters["queue_id"] = self._runner.run(queue_id(place.name, create=create))
            for attempt_id in attempts:
                self._driver.execute(send, {**parameters, "attempt_id": attempt_id})
            return
        source = self._statements.source(DELAYED_COLUMNS if place.is_delayed else SEND_COLUMNS)
        publication = publish_with(
            Topic(place.name),
            lambda selectors: publish_statement(selectors, flush=True, delayed=place.is_delayed, source=source),
            {**parameters, "attempts": attempts},
            Publisher(),
        )
        self._runner.run(publication)


def _numbers(attempts: Iterable[Attempt]) -> dict[str, object]:
    return {"attempts": [attempt.attempt_id for attempt in attempts]}
