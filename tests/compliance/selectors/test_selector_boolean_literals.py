"""Booleans in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters


@pytest.mark.parametrize("case", selector_parameters("selector-boolean"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.literal.boolean")
@pytest.mark.parametrize("name", ["yes", "on", "T", "unknown"])
def test_other_words_are_properties(selecting: Selecting, name: str) -> None:
    assert selecting.truth(name) is None
    assert selecting.truth(name, **{name: True}) is True


@pytest.mark.requirement("selector.literal.boolean", "selector.validation")
@pytest.mark.parametrize("literal", ["1", "0", "'true'"])
def test_literals_of_other_types_are_no_booleans(selecting: Selecting, literal: str) -> None:
    selecting.check_invalid(literal)
    selecting.check_invalid(f"true = {literal}")


@pytest.mark.requirement("selector.comparison.boolean", "selector.expression.condition")
def test_boolean_properties_are_compared_with_equal_and_unequal(selecting: Selecting) -> None:
    values = (True, False, "true", 1, None)
    assert selecting.values("flag", "flag", values) == [True]
    assert selecting.values("flag = true", "flag", values) == [True]
    assert selecting.values("flag <> true", "flag", values) == [False]
    assert selecting.values("flag = false", "flag", values) == [False]


@pytest.mark.requirement("selector.comparison.boolean")
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_boolean_properties_are_in_no_order(selecting: Selecting, operator: str) -> None:
    assert selecting.values(f"flag {operator} flag", "flag", (True, False)) == []
    selecting.check_invalid(f"flag {operator} true")
