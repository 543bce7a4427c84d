"""Selectors in statements."""

from __future__ import annotations

from jmsql.selectors import Selector, SelectorSQL

__all__ = ["and_chosen"]


def and_chosen(selector: Selector | None) -> SelectorSQL:
    """Return what a selector adds to the conditions on a message `m`, and its parameters."""
    if selector is None:
        return SelectorSQL("", {})
    condition, parameters = selector.to_sql()
    return SelectorSQL(f"and ({condition})", parameters)
