"""The rates of messages between two looks at a store."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from jmsql.store.administration.measurement import STATES, DestinationMeasurement, StoreMeasurement

_Name: TypeAlias = tuple[str, str, str, str]

_LONGEST_LAG = 5.0
"""Seconds after which what clients have counted is surely written down."""


class Look(NamedTuple):
    """The state of the store at a moment of the server's time."""

    store: StoreMeasurement
    destinations: Sequence[DestinationMeasurement]


class Order(StrEnum):
    """The order of the rows."""

    busy = "busy"
    depth = "depth"
    age = "age"
    name = "name"


class DestinationRates(NamedTuple):
    """A destination, and how many messages a second came in, went out and were released since the look before.

    None stands for what a first look cannot tell.
    """

    now: DestinationMeasurement
    in_rate: float | None = None
    out_rate: float | None = None
    rolled_back_rate: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        unknown = {} if self.now.browsable else dict.fromkeys((*STATES, "redelivered", "depth"))
        return (
            self.now._asdict()
            | {
                "depth": self.now.depth,
                "in_per_second": self.in_rate,
                "out_per_second": self.out_rate,
                "rolled_back_per_second": self.rolled_back_rate,
            }
            | unknown
        )


class Rates:
    """The rates of messages in a store, look by look.

    What was sent inside applications' own transactions, or by SQL, is not counted: it shows in what is there. What
    clients count is written down a moment after it shows there. So what has come in is the most that was seen to have
    come, by either account. The reckoning starts again when messages have gone in another way: purged, or expired.
    """

    def __init__(self) -> None:
        self._before: Look | None = None
        self._now: Look | None = None
        self._arrivals: dict[_Name, _Arrivals] = {}
        self._destinations: list[DestinationRates] = []

    def see(self, now: Look) -> None:
        """Take in a look."""
        self._before, self._now = self._now, now
        known = {} if self._before is None else {_name(each): each for each in self._before.destinations}
        seconds = 0.0 if self._before is None else now.store.server_time - self._before.store.server_time
        self._destinations = []
        for each in now.destinations:
            arrivals = self._arrivals.setdefault(_name(each), _Arrivals(each, now.store.server_time))
            arrived = arrivals.since_last(each, now.store.server_time)
            before = known.get(_name(each))
            self._destinations.append(
                DestinationRates(each)
                if before is None or seconds <= 0
                else _rates_between(before, each, arrived, seconds)
            )

    def sorted(self, order: Order) -> list[DestinationRates]:
        """Return the destinations as they were at the last look, those first that the order says."""
        match order:
            case Order.busy:
                return sorted(
                    self._destinations, key=lambda each: (-(each.in_rate or 0) - (each.out_rate or 0), -each.now.depth)
                )
            case Order.depth:
                return sorted(self._destinations, key=lambda each: -each.now.depth)
            case Order.age:
                return sorted(self._destinations, key=lambda each: -(each.now.oldest_seconds or 0.0))
            case Order.name:
                return sorted(self._destinations, key=lambda each: _name(each.now)[1:])


class _Arrivals:
    """How many messages have come to a destination since a first look."""

    def __init__(self, first: DestinationMeasurement, time: float) -> None:
        self._first = first
        self._most = 0
        self._reached = time

    def since_last(self, now: DestinationMeasurement, time: float) -> int:
        """Return how many more there are than at the last look."""
        first = self._first
        if now.sent < first.sent or now.acknowledged < first.acknowledged:  # it was deleted, and made again
            self._first, self._most, self._reached = now, 0, time
            return 0
        balance = now.depth + now.acknowledged - first.depth - first.acknowledged
        arrived = max(now.sent - first.sent, balance)
        more = max(0, arrived - self._most)
        self._most += more
        if balance >= self._most:
            self._reached = time
        elif time - self._reached > _LONGEST_LAG:  # some went without having been acknowledged
            self._first, self._most, self._reached = now, 0, time
        return more


def _rates_between(
    before: DestinationMeasurement, now: DestinationMeasurement, arrived: int, seconds: float
) -> DestinationRates:
    acknowledged = max(0, now.acknowledged - before.acknowledged)
    rolled_back = max(0, now.rolled_back - before.rolled_back)
    return DestinationRates(now, arrived / seconds, acknowledged / seconds, rolled_back / seconds)


def _name(each: DestinationMeasurement) -> _Name:
    return each.kind, each.destination, each.subscription or "", each.client_id or ""
