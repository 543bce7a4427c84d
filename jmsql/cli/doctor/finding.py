"""What a doctor finds."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = ["Finding", "Health", "shortened"]

_QUERY_LENGTH = 100


class Health(StrEnum):
    """How well a thing is."""

    ok = "ok"
    note = "note"
    problem = "problem"


class Finding(NamedTuple):
    """What was found about one thing, and what to do about it."""

    check: str
    health: Health
    says: str
    advice: str | None = None


def shortened(query: str | None) -> str:
    """Return a statement in one line that is not long."""
    text = " ".join((query or "").split())
    return f"{text[:_QUERY_LENGTH]}{'…' if len(text) > _QUERY_LENGTH else ''}"
