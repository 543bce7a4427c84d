"""Selectors in statements."""

from __future__ import annotations

from jmsql.selectors import Selector, SelectorSQL

__all__ = ["and_chosen", "selected"]


def selected(selector: Selector, first: int = 0) -> SelectorSQL:
    """Return the condition on a message `m` that a selector chooses, as statements write it, and its parameters.

    Args:
        selector: The selector.
        first: The number of its first placeholder, for a statement with several selectors.
    """
    chosen = selector.to_sql("jmsql", first)
    return chosen._replace(condition=chosen.condition.replace('"jmsql_internal".', "jmsql_internal."))


def and_chosen(selector: Selector | None) -> SelectorSQL:
    """Return what a selector adds to the conditions on a message `m`, and its parameters."""
    if selector is None:
        return SelectorSQL("", {})
    condition, parameters = selected(selector)
    return SelectorSQL(f"and ({condition})", parameters)
