"""What moved between two looks at a store."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from jmsql.store.measurement import DestinationMeasurement, StoreMeasurement

__all__ = ["Look", "Movement", "Order", "movements"]


class Look(NamedTuple):
    """What was there at a moment of the server's time."""

    store: StoreMeasurement
    destinations: Sequence[DestinationMeasurement]


class Order(StrEnum):
    """What comes first."""

    busy = "busy"
    depth = "depth"
    age = "age"
    name = "name"


class Movement(NamedTuple):
    """A destination, and how many messages a second came in, went out and were given back since the look before.

    None stands for what a first look cannot tell.
    """

    now: DestinationMeasurement
    in_rate: float | None = None
    out_rate: float | None = None
    rolled_back_rate: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return self.now._asdict() | {
            "depth": self.now.depth,
            "in_per_second": self.in_rate,
            "out_per_second": self.out_rate,
            "rolled_back_per_second": self.rolled_back_rate,
        }


def movements(before: Look | None, now: Look, order: Order) -> list[Movement]:
    """Compare two looks.

    Args:
        before: The one before, if there is one.
        now: The last.
        order: What comes first.
    """
    known = {} if before is None else {_name(each): each for each in before.destinations}
    seconds = 0.0 if before is None else now.store.server_time - before.store.server_time
    moved = [_movement(known.get(_name(each)), each, seconds) for each in now.destinations]
    match order:
        case Order.busy:
            moved.sort(key=lambda each: (-(each.in_rate or 0) - (each.out_rate or 0), -each.now.depth))
        case Order.depth:
            moved.sort(key=lambda each: -each.now.depth)
        case Order.age:
            moved.sort(key=lambda each: -(each.now.oldest_seconds or 0.0))
        case Order.name:
            moved.sort(key=lambda each: _name(each.now)[1:])
    return moved


def _movement(before: DestinationMeasurement | None, now: DestinationMeasurement, seconds: float) -> Movement:
    if before is None or seconds <= 0:
        return Movement(now)
    acknowledged = max(0, now.acknowledged - before.acknowledged)
    # What was sent inside applications' own transactions, or by SQL, nobody counts: it shows in what is there.
    arrived = max(now.sent - before.sent, now.depth - before.depth + acknowledged, 0)
    rolled_back = max(0, now.rolled_back - before.rolled_back)
    return Movement(now, arrived / seconds, acknowledged / seconds, rolled_back / seconds)


def _name(each: DestinationMeasurement) -> tuple[str, str, str, str]:
    return each.kind, each.destination, each.subscription or "", each.client_id or ""
