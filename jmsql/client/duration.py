"""Durations: seconds, or a timedelta."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["seconds"]


def seconds(duration: float | timedelta, name: str) -> float:
    """Return a duration in seconds.

    Args:
        duration: Seconds, or a `timedelta`.
        name: What it is called, for the message.

    Raises:
        ValueError: It is negative or not a number.
    """
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not value >= 0:
        raise ValueError(f"{name} is a number of seconds, 0 or more, not {duration!r}.")
    return value
