"""What Spark's tasks have staged, and how it becomes messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jmsql.destinations import Queue, Topic, parse_destination
from jmsql.postgresql_text import optional_to_postgresql
from jmsql.store.columns import DELAYED_COLUMNS, SEND_COLUMNS
from jmsql.store.counts import Counts
from jmsql.store.lookup import find_queue, find_topic, queue_id
from jmsql.store.send import Publisher, notify_sent, publish_statement, publish_with
from jmsql.store.statement import Query, SqlFile, Statement, Steps, fill, nothing, row_count, value

__all__ = [
    "MESSAGE_COLUMNS",
    "STAGED_COLUMNS",
    "Attempt",
    "StagedDestination",
    "begin_attempt",
    "forget_attempts",
    "missing_queues",
    "notify_places",
    "remove_staged",
    "send_staged",
    "sent_counts",
    "stage",
    "total",
]

STAGED_COLUMNS = tuple(name for name, _ in DELAYED_COLUMNS if name != "jms_timestamp")
"""The columns of a staged message that the task fills."""

MESSAGE_COLUMNS = ("queue_id", *(name for name, _ in SEND_COLUMNS[1:]))
"""The columns of a message that the task copies into its queue."""

_VALUES = {
    "jms_timestamp": "(select jmsql_internal.current_milliseconds())",
    "message_type": "s.message_type::jmsql_internal.message_type",
}
"""The SQL of those columns of a message that a staged row `s` does not have as they are."""


class StagedDestination(NamedTuple):
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
    staged: Mapping[StagedDestination, int]

    @property
    def messages(self) -> int:
        """How many messages it has staged."""
        return sum(self.staged.values())


def total(attempts: Iterable[Attempt]) -> Counter[StagedDestination]:
    """Return how many messages attempts have staged, by where they go."""
    counted: Counter[StagedDestination] = Counter()
    for attempt in attempts:
        counted.update(attempt.staged)
    return counted


def _columns_and_values(columns: Sequence[tuple[str, str]]) -> dict[str, str]:
    names = [name for name, _ in columns]
    values = (_VALUES.get(name, f"s.{name}") for name in names)
    return {"columns": ", ".join(names), "values": ", ".join(values), "for_destination": _sql["for_destination"]}


def _send(table: str, columns: Sequence[tuple[str, str]]) -> Statement[None]:
    parts = {"table": f"jmsql_internal.{table}", **_columns_and_values(columns[1:])}
    return _sql.statement("send_staged", "writing messages", nothing, parts)


_sql = SqlFile("writing", "jmsql.spark")
_begin_attempt = _sql.statement("begin_attempt", "staging messages", value(int))
stage = _sql.statement(
    "stage", "staging messages", nothing, {"columns": ", ".join(("attempt_id", "position", *STAGED_COLUMNS))}
)
"""Copies the staged rows of a task."""

_send_now = _send("message", SEND_COLUMNS)
_send_later = _send("delayed_message", DELAYED_COLUMNS)
_remove_staged = _sql.statement("remove_staged", "writing messages", row_count)
_forget_attempts = _sql.statement("forget_attempts", "discarding staged messages", row_count)


def begin_attempt(write_id: str | None = None, driver: int | None = None) -> Query[int]:
    """Return the number under which a task stages messages.

    Args:
        write_id: What its write is known by, if others are to see whose attempt it is.
        driver: The driver with whose end the attempt ends, by the number of its lock.
    """
    return _begin_attempt.bind(write_id=optional_to_postgresql(write_id), driver=driver)


def missing_queues(places: Iterable[StagedDestination]) -> Steps[list[str]]:
    """Return the names of the queues that are not there."""
    found = {}
    for name in sorted({place.name for place in places if place.is_queue}):
        found[name] = yield from find_queue(name)
    return [name for name, number in found.items() if number is None]


def send_staged(attempts: Sequence[Attempt], *, create: bool = True) -> Steps[None]:
    """Send what attempts have staged, in their order.

    Args:
        attempts: The attempts.
        create: Whether to create queues that are not there.

    Raises:
        InvalidDestinationException: A queue is not there.
    """
    for place in sorted(total(attempts)):
        numbers = [each.attempt_id for each in attempts if place in each.staged]
        parameters: dict[str, object] = {"staged_destination": place.destination, "is_delayed": place.is_delayed}
        if place.is_queue:
            parameters["queue_id"] = yield from queue_id(place.name, create=create)
            for attempt_id in numbers:
                yield from (_send_later if place.is_delayed else _send_now).bind(parameters, attempt_id=attempt_id)
        else:
            yield from _publish(numbers, place, parameters)


def _publish(attempts: list[int], place: StagedDestination, parameters: dict[str, object]) -> Steps[None]:
    columns = DELAYED_COLUMNS if place.is_delayed else SEND_COLUMNS
    source = fill(_sql["staged_messages"], **_columns_and_values(columns))
    yield from publish_with(
        Topic(place.name),
        lambda selectors: publish_statement(selectors, flush=True, delayed=place.is_delayed, source=source),
        {**parameters, "attempts": attempts},
        Publisher(),
    )


def remove_staged(attempts: Iterable[Attempt]) -> Query[int]:
    """Remove what was staged, and return how much that was. The attempts stay known."""
    return _remove_staged.bind(attempts=[attempt.attempt_id for attempt in attempts])


def forget_attempts(attempts: Iterable[Attempt]) -> Query[int]:
    """Remove attempts with what they have staged, and return how much that was."""
    return _forget_attempts.bind(attempts=[attempt.attempt_id for attempt in attempts])


def notify_places(places: Iterable[StagedDestination]) -> Steps[None]:
    """Tell all clients, with the commit of the open transaction, that there are new messages."""
    places = list(places)
    queues = {place.name for place in places if place.is_queue}
    topics = {place.name for place in places if not place.is_queue}
    yield from notify_sent(queues, topics, delayed=any(place.is_delayed for place in places))


def sent_counts(messages: Mapping[StagedDestination, int]) -> Steps[dict[int, Counts]]:
    """Return what was sent, by the number under which its destination is counted, if it is there."""
    sent: dict[int, Counts] = {}
    for place, count in messages.items():
        number = yield from find_queue(place.name) if place.is_queue else find_topic(place.name)
        if number is not None:
            key = number if place.is_queue else -number
            sent[key] = sent.get(key, Counts()).plus(Counts(sent=count))
    return sent
