"""Durations: seconds, or a timedelta."""

from __future__ import annotations

from datetime import datetime, timedelta

LONGEST = 100 * 365 * 86_400
"""Seconds in about a hundred years; clocks and threads can bear little more."""


def seconds(duration: float | timedelta, name: str) -> float:
    """Return a duration in seconds.

    Raises:
        TypeError: It is neither, or a bool: ``keep_result=True`` is no second.
        ValueError: It is negative, not a number, or more than a hundred years.
    """
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if duration is True or duration is False:
        raise TypeError(f"{name} is a number of seconds or a timedelta, not {duration!r}.")
    try:
        is_valid = 0 <= value <= LONGEST
    except TypeError as error:
        given: object = duration
        advice = " Subtract now from it: moment - datetime.now(UTC)." if isinstance(given, datetime) else ""
        raise TypeError(f"{name} is a number of seconds or a timedelta, not {duration!r}.{advice}") from error
    except ArithmeticError:  # of a Decimal that is no number
        is_valid = False
    if not is_valid:
        raise ValueError(f"{name} is a number of seconds from 0 to {LONGEST} (a hundred years), not {duration!r}.")
    return value


def as_setting(duration: float) -> str:
    """Return a number of seconds as PostgreSQL's time-outs take it: in milliseconds, and not 0, which means none."""
    return f"{max(1, round(duration * 1000))}ms"
