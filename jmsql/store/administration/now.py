"""Consumers at this moment: the messages that each holds, its progress, and its rate."""

import threading
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from jmsql.public_names import set_module
from jmsql.store.administration.looks import ClientLook, read_client
from jmsql.store.administration.places import Place
from jmsql.store.statement import Query, SqlFile, Steps, records, rows
from jmsql.values.clock import monotonic
from jmsql.values.postgresql_text import from_postgresql

_WINDOW = 15_000
"""How many rows of claims, and of consumers, are read."""
_MOST_KNOWN = 10_000
_LEAST_PAUSE = 0.5
"""Seconds between two looks from which a rate follows."""


@set_module("jmsql.admin")
class ConsumerNow(NamedTuple):
    """A connection's work on a queue or subscription at this moment.

    The clients write their counts down once a second. Messages that an open transaction has locked do not count as
    held.
    """

    connection_id: int
    """Its number in the view ``clients``."""
    client_id: str | None
    user_name: str | None
    """Its role in PostgreSQL; None: the connection is gone, and its messages are about to be free."""
    host: str | None
    process_id: int | None
    number: int
    """The number of the queue or subscription, as in an overview."""
    destination: str
    """The name of the queue, or of the topic."""
    subscription: str | None
    subscription_client_id: str | None
    consumers: int
    """How many consumers it has there; 0: it holds messages alone."""
    selector: str | None
    listeners: str | None
    """The names of the worker's listeners; None: it is no worker."""
    acknowledged: int
    """How many deliveries it has ended with the message gone."""
    rolled_back: int
    """How many it has released."""
    last_at: datetime | None
    """When it has ended the last one; None: none yet."""
    held: int
    """How many messages it holds: those that it handles, and those that it has fetched ahead."""
    held_since: datetime | None
    """Since when it holds the oldest of these."""
    place: Place | None
    """Where that one stands."""
    message_id: str | None
    """The JMSMessageID of that one."""
    progress: float | None
    """The part of it that is done, from 0 to 1, if its handler reports that."""
    note: str | None
    """The text that its handler reports."""
    reported_at: datetime | None
    per_second: float | None = None
    """The deliveries that ended in a second, since the look before; None: it was the first look."""


class HeldMessage(NamedTuple):
    """A message that a connection holds."""

    queue_id: int
    place: Place
    claimed_at: datetime
    delivery_count: int
    message_id: str | None
    progress: float | None
    note: str | None


def _read(text: str | None) -> str | None:
    return None if text is None else from_postgresql(text)


def _to_consumer(row: tuple[Any, ...]) -> ConsumerNow:
    *values, first, sequence, message_id, progress, note, reported_at = row
    place = None if sequence is None else Place(first, sequence)
    found = ConsumerNow._make([*values, place, message_id, progress, _read(note), reported_at, None])
    return found._replace(
        client_id=_read(found.client_id),
        subscription=_read(found.subscription),
        subscription_client_id=_read(found.subscription_client_id),
        selector=_read(found.selector),
        listeners=_read(found.listeners),
    )


def _to_held(row: tuple[Any, ...]) -> HeldMessage:
    queue_id, first, sequence, claimed_at, deliveries, message_id, progress, note = row
    return HeldMessage(queue_id, Place(first, sequence), claimed_at, deliveries, message_id, progress, _read(note))


_sql = SqlFile("now")
_consumers = _sql.statement("consumers", "looking at the consumers", records(_to_consumer))
_connection = _sql.statement("connection", "looking at the connection", records(read_client))
_held_messages = _sql.statement("held_messages", "looking at what a client holds", records(_to_held))
_usual_times = _sql.statement("usual_times", "looking at times of handling", rows)


def consumers_now(limit: int, *, connection_id: int | None = None, like: str | None = None) -> Query[list[ConsumerNow]]:
    """Return the connections' work on queues and subscriptions, the slow ones first.

    Args:
        limit: How many at most.
        connection_id: The connection; None: all.
        like: A pattern as for SQL's LIKE, for the name of the destination or subscription; None: all.
    """
    return _consumers.bind(limit=limit, connection_id=connection_id, like=like, window=_WINDOW)


def connection_now(connection_id: int) -> Query[list[ClientLook]]:
    """Return a connection, if it is there."""
    return _connection.bind(connection_id=connection_id)


def held_messages(connection_id: int, limit: int) -> Query[list[HeldMessage]]:
    """Return messages that a connection holds, the oldest claim first."""
    return _held_messages.bind(connection_id=connection_id, limit=limit, window=_WINDOW)


def usual_times(numbers: Collection[int]) -> Steps[dict[int, float]]:
    """Return the mean seconds of the calls of handlers, by queue or subscription; those without calls are left out."""
    return dict((yield from _usual_times.bind(numbers=sorted(set(numbers))))) if numbers else {}


class Rates:
    """How fast consumers end deliveries, from one look to the next. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Mapping[tuple[int, int], tuple[float, int, float | None]] = {}

    def of(self, found: list[ConsumerNow]) -> list[ConsumerNow]:
        """Return the same with rates."""
        now = monotonic()
        with self._lock:
            known = dict(self._known)
            rated = []
            for each in found:
                key, ended = (each.connection_id, each.number), each.acknowledged + each.rolled_back
                rate = None
                if key in known:
                    at, before, rate = known[key]
                    if now - at >= _LEAST_PAUSE:
                        rate = max(0, ended - before) / (now - at)
                        known[key] = now, ended, rate
                else:
                    known[key] = now, ended, None
                rated.append(each._replace(per_second=rate))
            if len(known) > _MOST_KNOWN:
                current = {(each.connection_id, each.number) for each in found}
                known = {key: value for key, value in known.items() if key in current}
            self._known = known
        return rated
