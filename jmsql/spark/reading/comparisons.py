"""Conditions on the columns of a read, which Spark has pushed down, as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jmsql.store.selected_statement import SelectedStatement

__all__ = ["Comparison", "filter_condition"]


class Comparison(NamedTuple):
    """A condition on one column.

    Args:
        column: The column of the read.
        operator: How it is compared, in SQL.
        value: What with: an array for `= any`; None for `is null`, which compares with nothing.
        negated: Whether the opposite is asked for.
    """

    column: str
    operator: str
    value: object = None
    negated: bool = False


def filter_condition(expressions: Mapping[str, str], comparisons: Sequence[Comparison]) -> SelectedStatement:
    """Compose what rows have to fulfil; each of its conditions begins with "and".

    Args:
        expressions: What each column is made of.
        comparisons: The conditions, all of which hold.
    """
    text = ""
    parameters: dict[str, object] = {}
    for number, comparison in enumerate(comparisons):
        condition = f"({expressions[comparison.column]}) {comparison.operator}"
        if comparison.value is not None:
            condition += f" (%(filter_{number})s)"
            parameters[f"filter_{number}"] = comparison.value
        text += f" and {'not ' if comparison.negated else ''}({condition})"
    return SelectedStatement(text, parameters)
