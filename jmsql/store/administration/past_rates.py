"""Rates of destinations in the last minutes, hours or days, as maintenance has noted them."""

from datetime import datetime
from typing import NamedTuple

from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, Steps, nothing, records, rows, value
from jmsql.values.postgresql_text import to_postgresql


@set_module("jmsql.admin")
class DestinationRate(NamedTuple):
    """The messages of a destination from a minute on: a row of the view ``rates``.

    Rates of the last hour stand for a minute, older ones for ten.
    """

    kind: str
    """``queue``, ``topic`` or ``subscription``; ``all``: all destinations together."""
    destination: str | None
    """The name of the queue or topic; None: all."""
    subscription: str | None
    client_id: str | None
    """The client identifier of the subscription."""
    minute: datetime
    """The beginning of the minute, or of the ten."""
    sent: int
    acknowledged: int
    rolled_back: int
    redelivered: int
    calls: int
    """Calls of workers' handlers that ended."""
    time_in_queue: float | None
    """Mean seconds from the sending, or the delivery time, to the acknowledgement; None: nothing was acknowledged."""
    handling_time: float | None
    """Mean seconds of a call, with its commit; None: none ended."""


class Slot(NamedTuple):
    """The messages of a destination in a part of a span; times are means in seconds, None if nothing has ended."""

    sent: int
    acknowledged: int
    rolled_back: int
    time_in_queue: float | None
    handling_time: float | None


_EMPTY = Slot(0, 0, 0, None, None)

_sql = SqlFile("rates")
_slots = _sql.statement("slots", "looking at rates", rows)
_rates = _sql.statement("rates", "looking at rates", records(DestinationRate._make))
_keep = _sql.statement("keep", "changing how long rates are kept", nothing)
rates_days = _sql.statement("days", "looking at the configuration", value(int)).bind()
"""How many days rates are kept; 0: they are not noted."""


class PastRates(NamedTuple):
    """The slots of a span, the oldest first, and for how many days rates are kept; 0: they are not noted."""

    slots: list[Slot]
    days: int


def past_rates(number: int, start: float, seconds: int, slots: int) -> Steps[PastRates]:
    """Return a destination's rates.

    Args:
        number: The number of a queue or subscription; negative for a topic; 0: all destinations together.
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
    return PastRates(found, (yield from rates_days))


def rates(name: str | None, limit: int) -> Query[list[DestinationRate]]:
    """Return the last rates of a queue, or of a topic and its subscriptions; None: all destinations together."""
    return _rates.bind(name=None if name is None else to_postgresql(name), limit=limit)


def keep_rates(days: int) -> Query[None]:
    """Change how many days rates are kept."""
    return _keep.bind(days=days)
