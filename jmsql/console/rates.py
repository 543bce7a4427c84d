"""How many messages come and go, second by second, and what that was in the last quarter of an hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jmsql.store.administration.looks import COUNTED, Depth, DestinationLook

BUCKET = 10.0
"""Seconds that a point of a sparkline stands for."""
BUCKETS = 90
_MOST_KEPT = 2000


class Rate(NamedTuple):
    """Messages a second."""

    incoming: float
    outgoing: float


class _Before(NamedTuple):
    time: float
    sent: int
    acknowledged: int
    depth: int | None


class Rates:
    """The rates of destinations between two looks, and their past in memory."""

    def __init__(self) -> None:
        self._before: dict[int, _Before] = {}
        self._rates: dict[int, Rate] = {}
        self._past: dict[int, deque[tuple[int, float, float]]] = {}

    def see(self, now: float, destinations: Iterable[DestinationLook], depths: Mapping[int, Depth]) -> None:
        """Take in a look.

        What was sent by SQL, or in the transactions of applications, clients do not count; where all messages of a
        queue were counted twice, it shows in how many more there are.
        """
        before, self._before, self._rates = self._before, {}, {}
        bucket = int(now // BUCKET)
        for each in destinations:
            depth = depths.get(each.queue_id)
            known = None if depth is None or depth.messages > COUNTED else depth.messages
            self._before[each.queue_id] = _Before(now, each.sent, each.acknowledged, known)
            last = before.get(each.queue_id)
            if last is None or now <= last.time or each.sent < last.sent or each.acknowledged < last.acknowledged:
                continue
            outgoing = each.acknowledged - last.acknowledged
            incoming = each.sent - last.sent
            if known is not None and last.depth is not None:
                incoming = max(incoming, known - last.depth + outgoing)
            if incoming or outgoing:
                seconds = now - last.time
                self._rates[each.queue_id] = Rate(incoming / seconds, outgoing / seconds)
                self._note(each.queue_id, bucket, incoming, outgoing)
        self._forget(bucket)

    def _note(self, queue_id: int, bucket: int, incoming: int, outgoing: int) -> None:
        past = self._past.setdefault(queue_id, deque(maxlen=BUCKETS))
        if past and past[-1][0] == bucket:
            _, former_in, former_out = past.pop()
            past.append((bucket, former_in + incoming, former_out + outgoing))
        else:
            past.append((bucket, incoming, outgoing))

    def _forget(self, bucket: int) -> None:
        gone = [queue_id for queue_id, past in self._past.items() if past[-1][0] <= bucket - BUCKETS]
        extra = sorted(self._past, key=lambda queue_id: self._past[queue_id][-1][0])[: -_MOST_KEPT or None]
        for queue_id in {*gone, *(extra if len(self._past) > _MOST_KEPT else ())}:
            del self._past[queue_id]

    def rate(self, queue_id: int) -> Rate:
        """Return the rate of a destination at the last look."""
        return self._rates.get(queue_id, Rate(0.0, 0.0))

    def past(self, queue_id: int, now: float) -> list[Rate]:
        """Return the rates of the last quarter of an hour, the oldest first."""
        points = {bucket: (incoming, outgoing) for bucket, incoming, outgoing in self._past.get(queue_id, ())}
        last = int(now // BUCKET)
        return [
            Rate(*(number / BUCKET for number in points.get(bucket, (0.0, 0.0))))
            for bucket in range(last - BUCKETS + 1, last + 1)
        ]
