"""How a read returns, or an archive stores, the properties of messages."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["PropertyFormat"]


class PropertyFormat(StrEnum):
    """As JSON text, with the types that it does not tell in a column beside it, or as a map of typed values."""

    json = "json"
    map = "map"
