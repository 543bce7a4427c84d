"""AND, OR and NOT in selectors: JMS 1.1 chapter 3.8.1.2, tables 3-4 to 3-6."""

from __future__ import annotations

import pytest

from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters

OPERANDS = {"t": True, "f": False}
"""Properties that are true and false; `u` is not set, and so unknown."""


@pytest.mark.parametrize("case", selector_parameters("selector-and"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.operator.and", "selector.values.null")
@pytest.mark.parametrize(("left", "row"), [("t", "tfu"), ("f", "fff"), ("u", "ufu")])
def test_false_wins_over_unknown_in_a_conjunction(selecting: Selecting, left: str, row: str) -> None:
    outcomes = [selecting.truth(f"{left} and {right}", **OPERANDS) for right in "tfu"]
    assert outcomes == [OPERANDS.get(outcome) for outcome in row]


@pytest.mark.requirement("selector.operator.or", "selector.values.null")
@pytest.mark.parametrize(("left", "row"), [("t", "ttt"), ("f", "tfu"), ("u", "tuu")])
def test_true_wins_over_unknown_in_a_disjunction(selecting: Selecting, left: str, row: str) -> None:
    outcomes = [selecting.truth(f"{left} or {right}", **OPERANDS) for right in "tfu"]
    assert outcomes == [OPERANDS.get(outcome) for outcome in row]


@pytest.mark.requirement("selector.operator.not", "selector.values.null")
def test_opposite_of_unknown_is_unknown(selecting: Selecting) -> None:
    assert [selecting.truth(f"not {operand}", **OPERANDS) for operand in "tfu"] == [False, True, None]


@pytest.mark.requirement("selector.operator.logical.precedence")
@pytest.mark.parametrize(
    ("selector", "bracketed", "otherwise"),
    [
        ("not f or t", "(not f) or t", "not (f or t)"),
        ("not f and f", "(not f) and f", "not (f and f)"),
        ("t or t and f", "t or (t and f)", "(t or t) and f"),
        ("f and t or t", "(f and t) or t", "f and (t or t)"),
    ],
)
def test_not_binds_tighter_than_and_and_that_tighter_than_or(
    selecting: Selecting, selector: str, bracketed: str, otherwise: str
) -> None:
    truth = selecting.truth(selector, **OPERANDS)
    assert truth is selecting.truth(bracketed, **OPERANDS)
    assert truth is not selecting.truth(otherwise, **OPERANDS)


@pytest.mark.requirement("selector.expression.condition")
def test_conditions_are_made_of_conditions(selecting: Selecting) -> None:
    selector = "(a = 1 or flag) and not (color = 'red' and true) and (b is null or false)"
    assert selecting.truth(selector, a=2, flag=True, color="blue") is True
    assert selecting.truth(selector, a=2, flag=False, color="blue") is False
    assert selecting.truth(selector, a=2, flag=True, color="red") is False
