"""Which part of a selector an index can serve: comparisons of a property, or of JMSType and the like, for equality."""

from __future__ import annotations

import re

from jmsql.selectors.expressions import And, Comparison, Constant, Expression, Identifier
from jmsql.selectors.sql import compile_condition

__all__ = ["indexable_expressions"]

_EQUALITY = re.compile(
    r"\((?P<expression>\(m\.properties->'[^']+'\)|m\.jms_type|m\.jms_correlation_id)"
    r" = (?:%\(selector_0\)s|'true'|'false')::(?:jsonb|text)\)"
)


def indexable_expressions(condition: Expression) -> tuple[str, ...]:
    """Return what an index has to have for a selector: expressions of SQL that are to be equal to something.

    All messages that it chooses must fulfil these comparisons, and PostgreSQL can look them up as they are written.
    None are returned for a selector that no index serves.
    """
    found: dict[str, None] = {}
    for part in _required(condition):
        match part:
            case Comparison(left=Identifier(), right=Constant()) | Comparison(left=Constant(), right=Identifier()):
                equality = _EQUALITY.fullmatch(compile_condition(part).condition)
                if equality is not None:
                    found[equality["expression"].replace("m.", "")] = None
    return tuple(found)


def _required(condition: Expression) -> list[Expression]:
    """Return the conditions that must all hold."""
    if isinstance(condition, And):
        return [part for operand in condition.operands for part in _required(operand)]
    return [condition]
