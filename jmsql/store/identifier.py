"""Names in SQL."""

from __future__ import annotations

__all__ = ["quote_identifier"]


def quote_identifier(name: str) -> str:
    """Write `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
