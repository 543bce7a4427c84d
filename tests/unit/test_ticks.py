"""The ticks of schedules, compared to a clock on the wall that is looked at each minute.

``python -m tests.unit.test_ticks`` looks at it through three years in all time zones, which takes hours.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from jmsql.values.ticks import MOST_MISSED, Cron, Decision, Every, Missed, Timing, decide

MINUTE = timedelta(minutes=1)
NOON = datetime(2026, 5, 17, 12, tzinfo=UTC)

TEXTS = (
    "30 2 * * *",
    "0 3 * * *",
    "0 0 * * *",
    "15,45 1-3 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "30 */2 * * *",
    "7 0 * * SUN",
    "59 23 L * *",
    "30 1 1-7 3,10 FRI",
)
ZONES = (
    "Africa/Cairo",  # at midnight
    "America/New_York",
    "America/Scoresbysund",
    "Antarctica/Troll",  # by two hours
    "Asia/Kathmandu",  # never, 5:45 ahead
    "Australia/Lord_Howe",  # by half an hour
    "Europe/Berlin",
    "Pacific/Chatham",
    "UTC",
)
START, YEARS = datetime(2026, 1, 1, tzinfo=UTC), 3


class Reading(NamedTuple):
    """A look at the clock on the wall, and the times that it has left out since the look before."""

    moment: datetime
    shown: datetime
    comes_again: bool
    left_out: Sequence[datetime]


def readings(zone: str, start: datetime, end: datetime) -> Iterator[Reading]:
    """Look at a clock each minute."""
    place = ZoneInfo(zone)
    before = (start - MINUTE).astimezone(place).replace(tzinfo=None)
    moment = start
    while moment < end:
        local = moment.astimezone(place)
        shown = local.replace(tzinfo=None, fold=0)
        left_out = [before + n * MINUTE for n in range(1, (shown - before) // MINUTE)]
        yield Reading(moment, shown, local.fold == 1, left_out)
        before = shown
        moment += MINUTE


def ticks_by_the_clock(zone: str, start: datetime, end: datetime) -> dict[str, list[datetime]]:
    """Return the ticks as Debian's cron has them: by their texts, of times that stand in crontab's fields."""
    read = {text: CronSim(text, START) for text in TEXTS}

    def fits(fields: CronSim, shown: datetime) -> bool:
        return (
            shown.minute in fields.minutes
            and shown.hour in fields.hours
            and shown.month in fields.months
            and fields.match_day(shown.date())
        )

    found: dict[str, list[datetime]] = {text: [] for text in TEXTS}
    minutes = set().union(*(fields.minutes for fields in read.values()))
    for each in readings(zone, start, end):
        if each.shown.minute not in minutes and not each.left_out:
            continue
        for text, fields in read.items():
            follows = text.startswith("*") or text.split()[1].startswith("*")
            if follows and fits(fields, each.shown):
                found[text].append(each.moment)
            if not follows and (
                (fits(fields, each.shown) and not each.comes_again)
                or any(fits(fields, left_out) for left_out in each.left_out)
            ):
                found[text].append(each.moment)
    return found


def ticks(timing: Timing, start: datetime, end: datetime) -> list[datetime]:
    found = []
    tick = timing.after(start - timedelta(microseconds=1))
    while tick is not None and tick < end:
        found.append(tick)
        tick = timing.after(tick)
    return found


def changes(zone: str) -> list[datetime]:
    """Return the moments within an hour of which the clocks of a zone are changed."""
    hours = [START + timedelta(hours=n) for n in range(YEARS * 366 * 24)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    return [hour for hour, before, after in zip(hours, offsets, offsets[1:], strict=False) if before != after]


@pytest.mark.parametrize("zone", ZONES)
def test_ticks_are_those_of_a_clock_on_the_wall(zone: str) -> None:
    # Around the changes of two years, and somewhere else.
    anywhere = START + timedelta(hours=random.Random(zone).randrange(YEARS * 365 * 24))
    for moment in [*changes(zone)[:4], anywhere]:
        start, end = moment - timedelta(hours=5), moment + timedelta(hours=20)
        for text, expected in ticks_by_the_clock(zone, start, end).items():
            assert ticks(Cron(text, zone), start, end) == expected, text


def test_the_next_tick_does_not_depend_on_when_it_is_looked_for() -> None:
    chance = random.Random(5)
    for zone in ("Europe/Berlin", "Australia/Lord_Howe"):
        for change in changes(zone)[:2]:
            start, end = change - timedelta(hours=3), change + timedelta(hours=30)
            for text in ("30 2 * * *", "15,45 1-3 * * *", "*/20 * * * *"):
                timing = Cron(text, zone)
                all_ticks = ticks(timing, start, end)
                for _ in range(20):
                    moment = start + timedelta(seconds=chance.uniform(0, 26 * 3600))
                    assert timing.after(moment) == next(tick for tick in all_ticks if tick > moment)


def test_seconds_follow_the_same_rules() -> None:
    # The clocks of Berlin go from 3:00 back to 2:00 on 2026-10-25, and from 2:00 to 3:00 on 2026-03-29.
    for day in (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 3, 28, 12, tzinfo=UTC)):
        minutes = ticks(Cron("30 2 * * *", "Europe/Berlin"), day, day + timedelta(days=1))
        assert len(minutes) == 1
        seconds = ticks(Cron("10,50 30 2 * * *", "Europe/Berlin"), day, day + timedelta(days=1))
        assert seconds == [minutes[0] + timedelta(seconds=10), minutes[0] + timedelta(seconds=50)]
    assert len(ticks(Cron("* * * * * *"), NOON, NOON + MINUTE)) == 60


@pytest.mark.parametrize("alias", ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", " @Daily "])
def test_aliases_are_those_of_crontab(alias: str) -> None:
    assert Cron(alias).after(NOON) is not None


def test_intervals_follow_the_tick_before() -> None:
    timing = Every(timedelta(minutes=10))
    assert timing.after(NOON) == NOON + timedelta(minutes=10)
    assert timing.after(NOON + timedelta(minutes=25), NOON) == NOON + timedelta(minutes=30)
    assert timing.after(NOON + timedelta(minutes=30), NOON) == NOON + timedelta(minutes=40)


HOURLY = Cron("0 * * * *")
EACH_SECOND = Every(timedelta(seconds=1))


@pytest.mark.parametrize(
    ("timing", "missed", "late", "expected"),
    [
        (HOURLY, Missed.ONCE, timedelta(seconds=5), (0, True, 0, 1)),
        (HOURLY, Missed.SKIP, timedelta(seconds=5), (0, True, 0, 1)),
        (HOURLY, Missed.ALL, timedelta(seconds=5), (0, True, 0, 1)),
        (HOURLY, Missed.SKIP, timedelta(minutes=2), (0, False, 0, 1)),
        (HOURLY, Missed.ONCE, timedelta(hours=7.5), (7, True, 7, 8)),
        (HOURLY, Missed.SKIP, timedelta(hours=7.5), (7, False, 7, 8)),
        (HOURLY, Missed.SKIP, timedelta(hours=7), (7, True, 7, 8)),
        (HOURLY, Missed.ALL, timedelta(hours=7.5), (0, True, 0, 1)),
    ],
)
def test_missed_ticks_are_sent_as_the_schedule_says(
    timing: Timing, missed: Missed, late: timedelta, expected: tuple[int, bool, int, int]
) -> None:
    hour, is_sent, left_out, next_hour = expected
    assert decide(timing, missed, NOON, NOON + late) == Decision(
        NOON + timedelta(hours=hour), is_sent, left_out, NOON + timedelta(hours=next_hour)
    )


@pytest.mark.parametrize("timing", [EACH_SECOND, Cron("* * * * * *")], ids=str)
def test_years_of_missed_ticks_are_soon_decided(timing: Timing) -> None:
    now = NOON + timedelta(days=1000, seconds=0.5)
    last = now - timedelta(seconds=0.5)
    after = last + timedelta(seconds=1)
    assert decide(timing, Missed.ONCE, NOON, now) == Decision(last, True, MOST_MISSED, after)
    first = last - timedelta(seconds=MOST_MISSED - 1)
    assert decide(timing, Missed.ALL, NOON, now) == Decision(first, True, MOST_MISSED, first + timedelta(seconds=1))
    assert decide(timing, Missed.ALL, first, now) == Decision(first, True, 0, first + timedelta(seconds=1))


def walk_through_all_zones() -> None:
    """Compare all zones, those that have the same changes once."""
    end = START.replace(year=START.year + YEARS)
    places: dict[tuple[object, ...], str] = {}
    for zone in sorted(available_timezones()):
        first = START.astimezone(ZoneInfo(zone)).utcoffset()
        places.setdefault((first, *[(at, at.astimezone(ZoneInfo(zone)).utcoffset()) for at in changes(zone)]), zone)
    wrong = 0
    for number, zone in enumerate(places.values(), 1):
        for text, expected in ticks_by_the_clock(zone, START, end).items():
            found = ticks(Cron(text, zone), START, end)
            if expected != found:
                wrong += 1
                print(f"{zone}, {text}: {sorted(set(expected) ^ set(found))[:4]}", flush=True)  # noqa: T201
        print(f"{number} of {len(places)}: {zone}", flush=True)  # noqa: T201
    print(f"{len(places)} zones with changes of their own, {len(TEXTS)} texts, {wrong} wrong")  # noqa: T201


if __name__ == "__main__":
    walk_through_all_zones()
