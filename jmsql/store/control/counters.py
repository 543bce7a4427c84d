"""A client's counters, recorded once a second: the messages that it sends and receives, and its consumers.

Messages are counted when their transaction, or their acknowledgement, is over: a batch at a time, and never one that is
still under way. The control connection records its client's counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from operator import add
from typing import NamedTuple

from jmsql.store.statement import Query, SqlFile, array_literal, nothing
from jmsql.values.destinations import Destination
from jmsql.values.postgresql_text import to_postgresql

_sql = SqlFile("control")
_add = _sql.statement("add_counters", "recording counters", nothing)
_replace = _sql.statement("replace_consumers", "writing down the consumers", nothing)


class Counts(NamedTuple):
    """So many messages were sent, and so many deliveries ended, one way or the other.

    `redelivered` is how many of those that ended were not the first of their message. `duplicates` and `coalesced` were
    not sent, since their deduplication id was, or a message with their key waited. Acknowledged messages were in the
    queue for `waited` microseconds in all. `calls` of handlers took `handled` microseconds in all.
    """

    sent: int = 0
    acknowledged: int = 0
    rolled_back: int = 0
    redelivered: int = 0
    duplicates: int = 0
    coalesced: int = 0
    waited: int = 0
    calls: int = 0
    handled: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum."""
        return Counts._make(map(add, self, other))


Meter = Callable[[Destination, Counts], None]
"""Called with the counts, in the thread that has counted."""

meters: set[Meter] = set()
"""Further counters of this process, such as metrics."""


def measure(destination: Destination, counts: Counts) -> None:
    """Tell the other counters."""
    for meter in tuple(meters):
        meter(destination, counts)


class DestinationCounters:
    """A connection's counts, until they are recorded. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Lists, so that they are added to in place.
        self._counts: dict[int, list[int]] = {}

    def count(self, number: int, destination: Destination, counts: Counts) -> None:
        """Count messages.

        Args:
            number: The number of the queue, or of the topic (negative).
            destination: Its name, for who else counts.
            counts: How many there were.
        """
        if meters:
            measure(destination, counts)
        with self._lock:
            known = self._counts.get(number)
            if known is None:
                self._counts[number] = list(counts)
            else:
                known[0] += counts[0]
                known[1] += counts[1]
                known[2] += counts[2]
                known[3] += counts[3]
                known[6] += counts[6]

    def count_ended(
        self,
        number: int,
        destination: Destination,
        acknowledged: int,
        rolled_back: int,
        redelivered: int,
        waited: int,
        handled: int | None,
    ) -> None:
        """Count deliveries that have ended. This is called for each message of a worker: it makes no tuple.

        Args:
            number: The number of the queue.
            destination: Its name, for the other counters.
            acknowledged: How many ended with the message gone.
            rolled_back: How many failed, or were released.
            redelivered: How many were not the first of their message.
            waited: The time in queue of the acknowledged messages, in microseconds.
            handled: The duration of the handler's call, in microseconds; None: no handler had them.
        """
        calls = 0 if handled is None else 1
        if meters:
            counts = Counts(0, acknowledged, rolled_back, redelivered, 0, 0, waited, calls, handled or 0)
            measure(destination, counts)
        with self._lock:
            known = self._counts.get(number)
            if known is None:
                self._counts[number] = [0, acknowledged, rolled_back, redelivered, 0, 0, waited, calls, handled or 0]
                return
            known[1] += acknowledged
            known[6] += waited
            if rolled_back:
                known[2] += rolled_back
            if redelivered:
                known[3] += redelivered
            if handled is not None:
                known[7] += 1
                known[8] += handled

    def drain(self) -> dict[int, Counts]:
        """Return the counts since the last call."""
        if not self._counts:
            return {}
        with self._lock:
            counted, self._counts = self._counts, {}
        return {number: Counts._make(counts) for number, counts in counted.items()}

    def put_back(self, counted: Mapping[int, Counts]) -> None:
        """Keep counts that could not be recorded."""
        with self._lock:
            for number, counts in counted.items():
                known = self._counts.get(number, Counts())
                self._counts[number] = [added + before for added, before in zip(counts, known, strict=True)]


def add_counters(counted: Mapping[int, Counts], connection_id: int | None = None) -> Query[None]:
    """Add counts to the recorded ones; the statement commits by itself.

    Args:
        counted: The counts, by the number of the queue, or of the topic (negative).
        connection_id: The number of the client's connection; None: it is none of a client.
    """
    return _add.bind(
        connection_id=connection_id,
        destination_ids=array_literal(counted),
        sent=array_literal(counts.sent for counts in counted.values()),
        acknowledged=array_literal(counts.acknowledged for counts in counted.values()),
        rolled_back=array_literal(counts.rolled_back for counts in counted.values()),
        redelivered=array_literal(counts.redelivered for counts in counted.values()),
        waited=array_literal(counts.waited for counts in counted.values()),
        calls=array_literal(counts.calls for counts in counted.values()),
        handled=array_literal(counts.handled for counts in counted.values()),
    )


class Consumption(NamedTuple):
    """A consumer's messages: all of a queue, or a selector's choice."""

    queue_id: int
    selector: str | None
    listener: str | None = None
    """The name of the worker's listener; None: it is no worker."""


def replace_consumers(connection_id: int, consumers: Mapping[Consumption, int]) -> Query[None]:
    """Replace the record of a connection's consumers; the statement commits by itself.

    Args:
        connection_id: The number of the client's connection.
        consumers: How many consumers there are of each kind.
    """
    return _replace.bind(
        connection_id=connection_id,
        queue_ids=array_literal(each.queue_id for each in consumers),
        selectors=array_literal(to_postgresql(each.selector or "") for each in consumers),
        consumers=array_literal(consumers.values()),
        listeners=array_literal(to_postgresql(each.listener or "") for each in consumers),
    )
