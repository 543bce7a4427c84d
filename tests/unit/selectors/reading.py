"""What the tests of selectors share: evaluating a selector on given values."""

from __future__ import annotations

from jmsql.selectors.evaluator import truth
from jmsql.selectors.expressions import Expression, Value
from jmsql.selectors.selector import Selector


def parsed(text: str) -> Expression:
    """The expression of a selector."""
    selector = Selector.parse(text)
    assert selector is not None
    return selector._condition


def evaluate(text: str, **values: Value) -> bool | None:
    """What a selector says when names have these values, and all others none."""
    return truth(parsed(text), values.get)
