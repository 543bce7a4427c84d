"""How many messages a second come and go, between one look at a destination and the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_LONGEST_LAG = 5.0
"""Seconds after which clients have certainly recorded their counts."""
_FORGOTTEN_AFTER = 900.0
"""Seconds for which a destination is remembered that was not looked at."""


class Counters(NamedTuple):
    """The clients' counts of a destination, and its number of messages; None: too much was there."""

    sent: int
    acknowledged: int
    rolled_back: int
    depth: int | None


class Rate(NamedTuple):
    """Messages a second: that came in, that were acknowledged, and that were rolled back."""

    incoming: float
    outgoing: float
    rolled_back: float


class Rates:
    """The rates of destinations, look by look.

    Messages sent inside applications' own transactions, or by SQL, are not counted: they show in the number of
    messages. Clients record their counts a moment after the messages show there. So the messages in are the larger
    number of the two accounts. The reckoning starts again when messages have gone in another way: purged, or expired.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Destination] = {}

    def see(self, time: float, looked_at: Mapping[int, Counters]) -> dict[int, Rate]:
        """Take in a look, and return the rates since the look before, of the destinations that were in that, too."""
        for number in [each for each, known in self._known.items() if time - known.time > _FORGOTTEN_AFTER]:
            del self._known[number]
        rates = {}
        for number, now in looked_at.items():
            known = self._known.get(number)
            if known is None:
                self._known[number] = _Destination(now, time)
                continue
            rate = known.see(now, time)
            if rate is not None:
                rates[number] = rate
        return rates


class _Destination:
    """How many have come and gone since a first look."""

    def __init__(self, now: Counters, time: float) -> None:
        self.time = time
        self._last = now
        self._start(now, time)

    def _start(self, now: Counters, time: float) -> None:
        self._first = now
        self._most = 0
        self._reached = time

    def see(self, now: Counters, time: float) -> Rate | None:
        arrived = self._arrived(now, time)
        last, seconds = self._last, time - self.time
        self._last, self.time = now, time
        if seconds <= 0:
            return None
        acknowledged = max(0, now.acknowledged - last.acknowledged)
        rolled_back = max(0, now.rolled_back - last.rolled_back)
        return Rate(arrived / seconds, acknowledged / seconds, rolled_back / seconds)

    def _arrived(self, now: Counters, time: float) -> int:
        """Return how many more have come since the last look."""
        first = self._first
        if now.sent < first.sent or now.acknowledged < first.acknowledged:  # it was deleted, and made again
            self._start(now, time)
            return 0
        if now.depth is None or first.depth is None:
            arrived = max(0, now.sent - self._last.sent)
            self._start(now, time)
            return arrived
        balance = now.depth + now.acknowledged - first.depth - first.acknowledged
        arrived = max(now.sent - first.sent, balance)
        more = max(0, arrived - self._most)
        self._most += more
        if balance >= self._most:
            self._reached = time
        elif time - self._reached > _LONGEST_LAG:  # some went without having been acknowledged
            self._start(now, time)
        return more
