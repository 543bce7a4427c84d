"""BETWEEN in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters


@pytest.mark.parametrize("case", selector_parameters("selector-between"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.operator.between")
def test_both_ends_belong_to_the_range(selecting: Selecting) -> None:
    ages = (14, 15, 15.0, 17, 18.5, 19, 19.5, 20)
    assert selecting.values("age between 15 and 19", "age", ages) == [15, 15.0, 17, 18.5, 19]
    assert selecting.values("age not between 15 and 19", "age", ages) == [14, 19.5, 20]


@pytest.mark.requirement("selector.operator.between", "selector.expression.arithmetic")
def test_all_three_places_take_arithmetic(selecting: Selecting) -> None:
    numbers = range(10)
    assert selecting.values("n * 2 between n + 3 and 20 - n", "n", numbers) == [3, 4, 5, 6]
    assert selecting.values("n * 2 not between n + 3 and 20 - n", "n", numbers) == [0, 1, 2, 7, 8, 9]
