"""What went through a destination in the last minutes, hours or days, as maintenance has noted it."""

from __future__ import annotations

from typing import NamedTuple

from jmsql.store.statement import SqlFile, Steps, rows, value


class Slot(NamedTuple):
    """What went through a destination in a part of a span; times are means in seconds, None if nothing has ended."""

    sent: int
    acknowledged: int
    rolled_back: int
    time_in_queue: float | None
    handling_time: float | None


_EMPTY = Slot(0, 0, 0, None, None)

_sql = SqlFile("rates")
_slots = _sql.statement("slots", "looking at rates", rows)
_days = _sql.statement("days", "looking at the configuration", value(int)).bind()


class PastRates(NamedTuple):
    """The slots of a span, the oldest first, and for how many days rates are kept; 0: they are not noted."""

    slots: list[Slot]
    days: int


def past_rates(number: int, start: float, seconds: int, slots: int) -> Steps[PastRates]:
    """Return what went through a destination.

    Args:
        number: That of a queue or subscription; negative of a topic; 0: all destinations together.
        start: The beginning, in seconds since the epoch.
        seconds: The duration of a slot.
        slots: How many there are.
    """
    found = [_EMPTY] * slots
    for slot, sent, acknowledged, rolled_back, waited, calls, handled in (
        yield from _slots.bind(destination_id=number, start=start, seconds=seconds)
    ):
        if 0 <= slot < slots:
            found[slot] = Slot(
                *(sent, acknowledged, rolled_back),
                waited / acknowledged / 1e6 if acknowledged else None,
                handled / calls / 1e6 if calls else None,
            )
    return PastRates(found, (yield from _days))
