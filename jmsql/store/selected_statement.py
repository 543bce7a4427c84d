"""A statement whose text depends on a selector."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SelectedStatement"]


class SelectedStatement(NamedTuple):
    """A statement with a selector's condition in it, and the condition's parameters."""

    text: str
    parameters: dict[str, object]
