"""A selector as SQL."""

from __future__ import annotations

from typing import NamedTuple


class SelectorSQL(NamedTuple):
    """A condition for a WHERE clause on ``message as m``."""

    condition: str
    """SQL with psycopg's named placeholders, ``%(selector_0)s`` and so on; each states its type."""
    parameters: dict[str, object]
    """The values of the placeholders."""
