"""How many messages came and went in the last quarter of an hour, in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jmsql.admin import DestinationOverview
from jmsql.store.administration.past_rates import Slot

BUCKET = 10.0
"""Seconds that a point of a sparkline stands for."""
BUCKETS = 90
MINUTE = 60
_MOST_KEPT = 2000


class Rate(NamedTuple):
    """Messages a second."""

    incoming: float
    outgoing: float


class Past:
    """The rates of destinations in the last quarter of an hour."""

    def __init__(self) -> None:
        self._past: dict[int, deque[tuple[int, float, float]]] = {}
        self._rates: dict[int, Rate] = {}
        self._seen = 0.0

    def see(self, now: float, destinations: Iterable[DestinationOverview]) -> None:
        """Add a poll: the messages in and out since the previous one."""
        seconds, self._seen = now - self._seen, now
        bucket = int(now // BUCKET)
        self._rates = {
            each.number: Rate(each.incoming, each.outgoing)
            for each in destinations
            if each.incoming is not None and each.outgoing is not None
        }
        for number, rate in self._rates.items():
            if rate.incoming or rate.outgoing:
                self._note(number, bucket, rate.incoming * seconds, rate.outgoing * seconds)
        self._forget(bucket)

    def _note(self, number: int, bucket: int, incoming: float, outgoing: float) -> None:
        past = self._past.setdefault(number, deque(maxlen=BUCKETS))
        if past and past[-1][0] == bucket:
            _, former_in, former_out = past.pop()
            past.append((bucket, former_in + incoming, former_out + outgoing))
        else:
            past.append((bucket, incoming, outgoing))

    def _forget(self, bucket: int) -> None:
        gone = [number for number, past in self._past.items() if past[-1][0] <= bucket - BUCKETS]
        extra = sorted(self._past, key=lambda number: self._past[number][-1][0])[: -_MOST_KEPT or None]
        for number in {*gone, *(extra if len(self._past) > _MOST_KEPT else ())}:
            del self._past[number]

    def rate(self, number: int) -> Rate:
        """Return the rate of a destination at the last look."""
        return self._rates.get(number, Rate(0.0, 0.0))

    def rates(self, number: int, now: float) -> list[Rate]:
        """Return the rates of the last quarter of an hour, the oldest first."""
        points = {bucket: (incoming, outgoing) for bucket, incoming, outgoing in self._past.get(number, ())}
        last = int(now // BUCKET)
        return [
            Rate(*(each / BUCKET for each in points.get(bucket, (0.0, 0.0))))
            for bucket in range(last - BUCKETS + 1, last + 1)
        ]


def filled(past: list[Rate], slots: Sequence[Slot], start: float, now: float) -> list[Rate]:
    """Return the rates in memory, with the stored means of the minutes in which no poll has seen a message.

    Args:
        past: The rates of the last quarter of an hour.
        slots: The stored minutes.
        start: The beginning of the first stored minute, in seconds since the epoch.
        now: The time, in seconds since the epoch.
    """
    first = int(now // BUCKET) - len(past) + 1
    minutes = [int(((first + place) * BUCKET - start) // MINUTE) for place in range(len(past))]
    seen = {minute for minute, rate in zip(minutes, past, strict=True) if any(rate)}
    return [
        rate
        if minute in seen or not 0 <= minute < len(slots)
        else Rate(slots[minute].sent / MINUTE, slots[minute].acknowledged / MINUTE)
        for minute, rate in zip(minutes, past, strict=True)
    ]
