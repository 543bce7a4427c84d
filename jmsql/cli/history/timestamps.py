"""Points in time as they are written on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

__all__ = ["read_timestamp"]

_AGO = re.compile(r"(\d+)\s*(s|min|h|d)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}


def read_timestamp(text: str | None) -> datetime | None:
    """Read a date, a date with a time, or how long ago it was.

    Args:
        text: As in 2026-03-01, 2026-03-01T12:30, 2026-03-01T12:30:00+01:00, or 90s, 30min, 2h, 7d. Without a time zone,
            it is this computer's.

    Raises:
        BadParameter: It is none of these.
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{text!r} is no time; write 2026-03-01, 2026-03-01T12:30, or how long ago, such as 30min, 2h or 7d."
        ) from error
