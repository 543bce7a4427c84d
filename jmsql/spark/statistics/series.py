"""What of the statistics a plot shows: the destinations with the most messages, and the others together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from jmsql.spark.statistics.results import Results

__all__ = ["OTHERS", "Series", "busiest_destinations", "consumed_from", "series", "shortened"]

OTHERS = "others"
"""What all those are called that are not among the busiest."""

_LONGEST_BY_HOUR = timedelta(days=14)


class Series(NamedTuple):
    """Numbers over time.

    Args:
        timestamps: When each step begins, without gaps.
        step: How long a step is: ``hour`` or ``day``.
        values: By destination, a number for each step.
    """

    timestamps: list[datetime]
    step: str
    values: dict[str, list[float]]

    @property
    def total(self) -> float:
        """The sum of all."""
        return sum(map(sum, self.values.values()))

    def peak(self) -> tuple[float, datetime]:
        """The largest sum of a step, and when that was."""
        sums = [sum(numbers) for numbers in zip(*self.values.values(), strict=True)]
        place = max(range(len(sums)), key=sums.__getitem__)
        return sums[place], self.timestamps[place]


def busiest_destinations(results: Results, top: int) -> list[str]:
    """Return the destinations that the most messages have left, the busiest first."""
    counts = {row["destination"]: row["messages"] for row in results.rows("expiries")}
    return sorted(counts, key=lambda name: (-counts[name], name))[:top]


def series(results: Results, name: str, value: str, chosen: Sequence[str]) -> Series:
    """Add up a column of a statistic by step and destination.

    Steps are hours, or days where it is more than two weeks.

    Args:
        results: The statistics.
        name: The statistic's name.
        value: The column.
        chosen: The destinations that are shown by themselves; all others are `OTHERS`.
    """
    zone = ZoneInfo(results.time_zone)
    # All of them, so that plots of different statistics have one and the same time.
    everything = [row["hour"].astimezone(zone) for row in results.hours("expiries")]
    first, last = min(everything), max(everything)
    step = "hour" if last - first <= _LONGEST_BY_HOUR else "day"
    timestamps = list(_steps(first, last, step))
    found: Mapping[str, dict[datetime, float]] = defaultdict(lambda: defaultdict(float))
    for row in results.hours(name):
        destination = row["destination"] if row["destination"] in chosen else OTHERS
        found[destination][_begin(row["hour"].astimezone(zone), step)] += row[value]
    names = [each for each in (*chosen, OTHERS) if each in found]
    return Series(
        timestamps, step, {each: [found[each].get(timestamp, 0.0) for timestamp in timestamps] for each in names}
    )


def _begin(timestamp: datetime, step: str) -> datetime:
    return timestamp.replace(hour=0, minute=0) if step == "day" else timestamp


def _steps(first: datetime, last: datetime, step: str) -> Iterable[datetime]:
    """Return each step from the first to the last; hours go by the clock of UTC, days by the calendar."""
    timestamp = _begin(first, step)
    while timestamp <= last:
        yield timestamp
        if step == "day":
            timestamp += timedelta(days=1)
        else:
            timestamp = (timestamp.astimezone(UTC) + timedelta(hours=1)).astimezone(first.tzinfo)


def shortened(name: Any, most: int = 36) -> str:
    """Return a name that fits into a plot."""
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(name))
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


def consumed_from(row: Mapping[str, Any]) -> str:
    """Return what consumers share: a queue, or a subscription to a topic."""
    names = (row["destination"], row["subscription_client_id"], row["subscription"])
    return " ".join(name for name in names if name is not None)
