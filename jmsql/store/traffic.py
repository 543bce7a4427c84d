"""What goes through: how many messages a connection has sent, and what became of those that it received.

Messages are counted when their transaction, or their acknowledgement, is over: a batch at a time, and never one that is
still under way. Each control connection writes down, once a second, what its client has counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from jmsql.destinations import Destination
from jmsql.store.driver import Driver
from jmsql.store.identifier import quote_identifier
from jmsql.store.rows import array_literal

__all__ = ["Counts", "Meter", "Traffic", "measure", "meters", "write_traffic"]


class Counts(NamedTuple):
    """So many messages were sent, and so many deliveries ended, one way or the other.

    `redelivered` is how many of those that ended were not the first of their message.
    """

    sent: int = 0
    acknowledged: int = 0
    rolled_back: int = 0
    redelivered: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum."""
        return Counts(
            self.sent + other.sent,
            self.acknowledged + other.acknowledged,
            self.rolled_back + other.rolled_back,
            self.redelivered + other.redelivered,
        )


Meter = Callable[[Destination, Counts], None]
"""Called with what was counted, in the thread that has done it."""

meters: set[Meter] = set()
"""Who else in this process counts: nobody, unless somebody wants to see it."""


def measure(destination: Destination, counts: Counts) -> None:
    """Tell whoever else counts."""
    for meter in tuple(meters):
        meter(destination, counts)


class Traffic:
    """The traffic of one connection, until it is written down. Any thread may count."""

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
            self._add(number, counts)

    def take(self) -> dict[int, Counts]:
        """Return what was counted since the last time."""
        if not self._counts:
            return {}
        with self._lock:
            counted, self._counts = self._counts, {}
        return {number: Counts._make(counts) for number, counts in counted.items()}

    def put_back(self, counted: Mapping[int, Counts]) -> None:
        """Keep what could not be written down."""
        with self._lock:
            for number, counts in counted.items():
                self._add(number, counts)

    def _add(self, number: int, counts: Counts) -> None:
        known = self._counts.get(number)
        if known is None:
            self._counts[number] = list(counts)
            return
        known[0] += counts[0]
        known[1] += counts[1]
        known[2] += counts[2]
        known[3] += counts[3]


@cache
def _statement(schema_name: str) -> str:
    # In one order, so that two clients do not wait for each other. What was deleted meanwhile is not counted.
    schema = quote_identifier(schema_name)
    columns = ", ".join(Counts._fields)
    arrays = ", ".join(f"%({name})s::bigint[]" for name in Counts._fields)
    sums = ", ".join(f"{name} = t.{name} + excluded.{name}" for name in Counts._fields)
    return f"""
        insert into {schema}.destination_traffic as t (destination_id, {columns})
        select c.* from unnest(%(destination_ids)s::integer[], {arrays}) as c (destination_id, {columns})
        where exists (select from {schema}.queue q where q.queue_id = c.destination_id)
           or exists (select from {schema}.topic o where o.topic_id = -c.destination_id)
        order by c.destination_id
        on conflict (destination_id) do update set {sums}"""


def write_traffic(driver: Driver, schema_name: str, counted: Mapping[int, Counts]) -> None:
    """Add to what is written down.

    Args:
        driver: A connection in autocommit mode.
        schema_name: The plain name of the schema.
        counted: What was counted, by the number of the queue, or of the topic (negative).
    """
    parameters = {
        name: array_literal(counts[position] for counts in counted.values())
        for position, name in enumerate(Counts._fields)
    }
    driver.execute(_statement(schema_name), {"destination_ids": array_literal(counted), **parameters})
