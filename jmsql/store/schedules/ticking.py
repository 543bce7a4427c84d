"""The ticks that are due: which there are, and the transaction of each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from jmsql.store.schedules.definition import stored_timing
from jmsql.store.schedules.publishing import publish_scheduled
from jmsql.store.statement import Query, SqlFile, Steps, array_literal, in_transaction, nothing, record, records
from jmsql.values.postgresql_text import to_postgresql
from jmsql.values.ticks import Decision, Missed, decide

_LONGEST_ERROR = 1000

MOST_TICKS = 20
"""How many ticks are looked up with one statement."""


class NextTick(NamedTuple):
    """The next tick of a schedule, and the server's time when it was looked up."""

    name: str
    revision: int
    cron: str | None
    every: timedelta | None
    time_zone: str
    missed: str
    is_topic: bool
    due: datetime
    now: datetime

    @property
    def seconds(self) -> float:
        """The time until it is due; negative or 0: it is."""
        return (self.due - self.now).total_seconds()

    def decide(self) -> Decision:
        """Return the step of the schedule now that the tick is due.

        Raises:
            ValueError: Its times cannot be read here.
        """
        timing = stored_timing(self.cron, self.every, self.time_zone)
        return decide(timing, Missed(self.missed), self.due, self.now)


class _Fired(NamedTuple):
    outcome: str
    message_id: object


_sql = SqlFile("schedules")
_next_ticks = _sql.statement("next_ticks", "looking for schedules", records(NextTick._make))
_fire = _sql.statement("fire", "sending the message of the schedule {name!r}", record(_Fired._make))
_note_failure = _sql.statement("note_failure", "noting the failure of a schedule", nothing)


def next_ticks(within: float, postponed: Iterable[str]) -> Query[list[NextTick]]:
    """Return the next ticks, by their times.

    Args:
        within: For how many seconds ahead.
        postponed: Schedules that are left out, since their ticks have failed just now.
    """
    return _next_ticks.bind(within=timedelta(seconds=within), postponed=array_literal(postponed), most=MOST_TICKS)


def fire(tick: NextTick, decision: Decision) -> Steps[bool]:
    """Do a tick, on a connection in autocommit mode; return False if another client did, or the schedule has changed.

    To a queue it is one statement, so that a client that freezes holds no lock. A topic takes several.
    """
    if tick.is_topic and decision.is_sent:
        return (yield from in_transaction(_publish(tick, decision)))
    return (yield from _fire_one(tick, decision)) != "lost"


def _fire_one(tick: NextTick, decision: Decision) -> Steps[str]:
    fired = yield from _fire.bind(
        name=tick.name,
        revision=tick.revision,
        due=tick.due,
        next_due=decision.next,
        tick=decision.tick,
        left_out=decision.missed,
        is_sent=decision.is_sent,
    )
    return fired.outcome


def _publish(tick: NextTick, decision: Decision) -> Steps[bool]:
    outcome = yield from _fire_one(tick, decision)
    if outcome == "sent":
        yield from publish_scheduled(tick.name, decision.tick, decision.missed)
    return outcome != "lost"


def note_failure(name: str, error: Exception) -> Query[None]:
    """Note in the schedule's row why its tick has failed, for administrators."""
    return _note_failure.bind(name=name, error=to_postgresql(str(error)[:_LONGEST_ERROR]))
