"""The times of schedules: cron's text or an interval, and the ticks that are due. Decisions only, no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo

from jmsql.public_names import set_module

if TYPE_CHECKING:
    from cronsim import CronSim

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST_TEXT = 1000
_SHORTEST = timedelta(seconds=1)
_LONGEST = timedelta(days=36_500)
_SECOND = timedelta(seconds=1)

MOST_MISSED = 1000
"""So many missed ticks are sent with `Missed.ALL`, and so many are counted."""

PUNCTUALITY = timedelta(minutes=1)
"""A tick that is sent within this time is not missed, unless the next one is due."""


@set_module("jmsql")
class Missed(StrEnum):
    """The ticks that a schedule sends late, after a time in which no client ran."""

    ONCE = "once"
    """One message for all of them, with the time of the last one and the number of the others."""
    SKIP = "skip"
    """None."""
    ALL = "all"
    """A message for each, the oldest first; the last 1,000 if there are more."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Times by cron's text, in a time zone.

    Args:
        text: Five fields as in Debian's crontab, or six, the first of which are the seconds; or such as ``@daily``.
        time_zone: The name of the zone, such as ``Europe/Berlin``.

    Raises:
        TypeError: A value is no string.
        ValueError: The text cannot be read, has no tick, or there is no such zone.
    """

    text: str
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"Expected cron's text such as '0 3 * * *', or a timedelta, not {self.text!r}.")
        if len(self.text) > _LONGEST_TEXT:
            raise ValueError(f"Cron's text has at most {_LONGEST_TEXT} characters, not {len(self.text)}.")
        self._parse(datetime(2000, 1, 1, tzinfo=find_zone(self.time_zone)))
        if self.after(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ValueError(f"The schedule {self.text!r} has no tick: no such day comes.")

    @property
    def _fields(self) -> str:
        text = " ".join(self.text.split())
        return _ALIASES.get(text.lower(), text)

    def _parse(self, start: datetime, fields: str | None = None) -> CronSim:
        from cronsim import CronSim  # when a program has a schedule

        try:
            return CronSim(self._fields if fields is None else fields, start)
        except Exception as error:  # its parser raises several kinds for unexpected text
            raise ValueError(
                f"Cannot read {self.text!r} as cron's text: {error}. Expected the fields minute, hour, "
                "day of the month, month and day of the week, such as '0 3 * * MON-FRI'."
            ) from error

    def after(self, moment: datetime, anchor: datetime | None = None) -> datetime | None:  # noqa: ARG002
        """Return the first tick after a moment, in UTC; None if there is none in fifty years."""
        return next(self._ticks(moment), None)

    def _ticks(self, moment: datetime) -> Iterator[datetime]:
        zone = find_zone(self.time_zone)
        fields = self._fields.split()
        # As Debian's cron, cronsim moves times that a change of the clocks leaves out, and fires once at those that
        # come twice, unless the minute or the hour is a wildcard. It does so for five fields alone.
        if len(fields) == 6 and not (fields[1].startswith("*") or fields[2].startswith("*")):
            seconds = sorted(self._parse(datetime(2000, 1, 1, tzinfo=UTC)).seconds)
            for minute in self._walk(moment - timedelta(minutes=1), zone, " ".join(fields[1:])):
                for second in seconds:
                    if (tick := minute + timedelta(seconds=second)) > moment:
                        yield tick
        else:
            yield from self._walk(moment, zone, " ".join(fields))

    def _walk(self, moment: datetime, zone: tzinfo, fields: str) -> Iterator[datetime]:
        last = moment
        for local in self._parse(moment.astimezone(zone), fields):
            tick = local.astimezone(UTC)
            # In the hour that comes again, cronsim starts with the first of the two.
            if tick > last:
                yield tick
                last = tick


@dataclass(frozen=True, slots=True)
class Every:
    """Times by an interval, the first of which is one interval after the schedule was made.

    Args:
        interval: A second or more.

    Raises:
        ValueError: It is less than a second, or more than a hundred years.
    """

    interval: timedelta

    def __post_init__(self) -> None:
        if not _SHORTEST <= self.interval <= _LONGEST:
            raise ValueError(f"The interval of a schedule is from 1 second to 36,500 days, not {self.interval}.")

    def after(self, moment: datetime, anchor: datetime | None = None) -> datetime | None:
        """Return the first tick after a moment.

        Args:
            moment: The moment.
            anchor: Some tick; None: the moment counts as one.
        """
        start = moment if anchor is None else anchor
        return start + ((moment - start) // self.interval + 1) * self.interval


Timing: TypeAlias = Cron | Every


def read_timing(when: str | timedelta, time_zone: str = "UTC") -> Timing:
    """Return the timing that a user has written; raises as `Cron` and `Every`."""
    if isinstance(when, timedelta):
        find_zone(time_zone)
        return Every(when)
    return Cron(when, time_zone)


def find_zone(name: str) -> tzinfo:
    """Return a time zone by its name.

    Raises:
        ValueError: There is none of that name here.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"There is no time zone {name!r} here. Expected a name such as 'Europe/Berlin'; where the system has no "
            "time zones, install the package tzdata."
        ) from error


class Decision(NamedTuple):
    """The step of a schedule that is due.

    Args:
        tick: The time of the tick that is sent or left out.
        is_sent: False if it is left out.
        missed: The number of ticks before it that are left out, counted up to `MOST_MISSED`.
        next: The next tick; None if there is none.
    """

    tick: datetime
    is_sent: bool
    missed: int
    next: datetime | None


def decide(timing: Timing, missed: Missed, due: datetime, now: datetime) -> Decision:
    """Return the next step of a schedule.

    Args:
        timing: Its times.
        missed: The ticks that it sends late.
        due: Its next tick, which the clock has reached.
        now: The time by the server's clock.
    """
    if missed is Missed.ALL:
        tick = due
        if len(list(islice(_ticks(timing, due, now), MOST_MISSED + 1))) > MOST_MISSED:
            tick = _latest(timing, due, now, MOST_MISSED)[0]
        return Decision(tick, is_sent=True, missed=_count(timing, due, tick), next=timing.after(tick, due))
    tick = _latest(timing, due, now, 1)[-1]
    is_sent = missed is Missed.ONCE or now - tick <= PUNCTUALITY
    return Decision(tick, is_sent=is_sent, missed=_count(timing, due, tick), next=timing.after(now, due))


def _ticks(timing: Timing, due: datetime, until: datetime, start: datetime | None = None) -> Iterator[datetime]:
    """Return the ticks of a schedule from `due`, or after a start, until a time."""
    tick = due if start is None else timing.after(start, due)
    while tick is not None and tick <= until:
        yield tick
        tick = timing.after(tick, due)


def _latest(timing: Timing, due: datetime, now: datetime, most: int) -> deque[datetime]:
    """Return the last ticks until now, none before `due`, in their order.

    Ever longer times are walked through, so that years of ticks each second need not be.
    """
    window = 2 * most * _SECOND
    while now - due > window:
        ticks = deque(_ticks(timing, due, now, now - window), maxlen=most)
        if len(ticks) == most:
            return ticks
        window *= 8
    return deque(_ticks(timing, due, now), maxlen=most)


def _count(timing: Timing, due: datetime, tick: datetime) -> int:
    """Return how many ticks there are before another one, up to a limit."""
    return sum(1 for _ in islice(_ticks(timing, due, tick - timedelta(microseconds=1)), MOST_MISSED))
