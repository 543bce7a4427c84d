"""The duty to send due messages of schedules, for each client that has or had a consumer, or does the maintenance."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from jmsql.logs import contained_logger
from jmsql.store.errors import is_connection_lost, translate
from jmsql.store.schedules.ticking import MOST_TICKS, NextTick, fire, next_ticks, note_failure
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql")

_RACE_PAUSE = 0.1
"""Seconds until a tick is looked at again that another client was doing."""

_FAILURE_PAUSE = 10.0
"""Seconds until this client tries a tick again that has failed, or looks again where a look has."""


class Ticking:
    """Sends the messages of schedules.

    Every client that takes part tries each tick. The one whose statement comes first does it; the others lose the race,
    and have nothing to take back. So there is no leader whose death or freezing holds a tick up.

    Args:
        takes_part: Returns whether the client has or had a consumer, or does the maintenance.
        interval: Seconds between two looks where nothing is due: a schedule that was made without a notification is
            found then, and a change of the server's clock.
        is_possible: False where the role does not administer all destinations.
    """

    def __init__(self, takes_part: Callable[[], bool], interval: float, *, is_possible: bool) -> None:
        self._takes_part = takes_part
        self._interval = interval
        self._is_possible = is_possible
        self._next_look = 0.0
        self._postponed: dict[str, float] = {}

    def check_soon(self) -> None:
        """Note that a schedule was made or changed."""
        self._next_look = 0.0

    def seconds_to_next(self) -> float:
        """Return in how many seconds something is due."""
        if not self._is_active:
            return self._interval
        return max(0.0, self._next_look - monotonic())

    @property
    def _is_active(self) -> bool:
        return self._is_possible and self._takes_part()

    def run(self, control: Runner) -> None:
        """Send due messages."""
        started = monotonic()
        if not self._is_active or started < self._next_look:
            return
        self._postponed = {name: until for name, until in self._postponed.items() if until > started}
        self._next_look = started + min(self._interval, _FAILURE_PAUSE)  # if it fails
        ticks = control.run(next_ticks(self._interval, self._postponed))
        pauses = [self._interval, *(until - started for until in self._postponed.values())]
        pauses.extend(tick.seconds if tick.seconds > 0 else self._do(control, tick) for tick in ticks)
        if len(ticks) == MOST_TICKS:
            pauses.append(max(0.0, ticks[-1].seconds))
        self._next_look = started + max(0.0, min(pauses))

    def _do(self, control: Runner, tick: NextTick) -> float:
        """Do a tick that is due, and return in how many seconds to look at the schedule again."""
        try:
            decision = tick.decide()
            if not control.run(fire(tick, decision)):
                return _RACE_PAUSE
        except Exception as error:  # a row that one release wrote, and another cannot read, ends no connection
            if is_connection_lost(error):
                raise
            self._failed(control, tick.name, error)
            return _FAILURE_PAUSE
        return self._interval if decision.next is None else (decision.next - tick.now).total_seconds()

    def _failed(self, control: Runner, name: str, error: Exception) -> None:
        shown = translate(error, "sending") if isinstance(error, psycopg.Error) else error
        logger.warning("The schedule %r failed; retrying in %g s: %s", name, _FAILURE_PAUSE, shown)
        self._postponed[name] = monotonic() + _FAILURE_PAUSE
        control.run(note_failure(name, shown))
