"""Facts by which a list of destinations is sorted, beside an overview's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jmsql.exceptions import InvalidDestinationException
from jmsql.store.statement import Query, SqlFile, Steps, column, record, records, rows
from jmsql.values.destinations import Destination, Topic, parse_destination
from jmsql.values.postgresql_text import optional_to_postgresql, to_postgresql


class Origin(NamedTuple):
    """The queue or subscription that a dead letter comes from, as the letter names it."""

    destination: str
    subscription: str | None = None
    client_id: str | None = None


class Lag(NamedTuple):
    """How many subscriptions a topic has, a hundred at most, and the number of the one that lags most."""

    topic_id: int
    subscriptions: int
    slowest: int | None


class Totals(NamedTuple):
    """The counters of all destinations together, and the number of connections that receive."""

    sent: int
    acknowledged: int
    rolled_back: int
    receiving: int


_sql = SqlFile("lists")
totals = _sql.statement("totals", "looking at the destinations", record(Totals._make)).bind()
"""The totals, of ten thousand destinations and consumers at most."""
_numbers_of = _sql.statement("numbers_of", "looking for destinations", rows)
_topic_of_name = _sql.statement("topic_of_name", "looking for a topic", column)
_most_consumers = _sql.statement("most_consumers", "looking at consumers", column)
_lagging = _sql.statement("lagging", "looking at subscriptions", records(Lag._make))
_queue_names = _sql.statement("queue_names", "looking at the queues", column)


def numbers_of(origins: Sequence[Origin]) -> Steps[dict[Origin, int]]:
    """Return the numbers of the origins that are there: of queues, and of subscriptions."""
    named = [(each, destination) for each in origins if (destination := _read(each.destination)) is not None]
    if not named:
        return {}
    found = yield from _numbers_of.bind(
        names=[to_postgresql(destination.name) for _, destination in named],
        topics=[isinstance(destination, Topic) for _, destination in named],
        subscriptions=[optional_to_postgresql(each.subscription) for each, _ in named],
        clients=[optional_to_postgresql(each.client_id) for each, _ in named],
    )
    return {named[position - 1][0]: number for position, number in found}


def topic_number(origin: Origin) -> Steps[int | None]:
    """Return the number of an origin's topic, or None if it is no topic, or gone."""
    destination = _read(origin.destination)
    if not isinstance(destination, Topic):
        return None
    found = yield from _topic_of_name.bind(name=to_postgresql(destination.name))
    return found[0] if found else None


def _read(uri: str) -> Destination | None:
    try:
        return parse_destination(uri)
    except InvalidDestinationException:
        return None


def most_consumers(limit: int) -> Query[list[int]]:
    """Return the queues and subscriptions with the most consumers."""
    return _most_consumers.bind(limit=limit)


def lagging(topic_ids: Sequence[int]) -> Query[list[Lag]]:
    """Return how far the subscriptions of topics are behind."""
    return _lagging.bind(topic_ids=list(topic_ids))


def queue_names(limit: int) -> Query[list[str]]:
    """Return the first names of queues."""
    return _queue_names.bind(limit=limit)
