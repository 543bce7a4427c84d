"""Approximate numbers in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import math
import sys

import pytest

from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters


@pytest.mark.parametrize("case", selector_parameters("selector-float"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.literal.approxnumeric")
@pytest.mark.parametrize(
    ("literal", "value"),
    [
        *(("7.", 7.0), (".5", 0.5), ("-95.7", -95.7), ("+6.2", 6.2), ("7E3", 7000.0), ("-57.9e2", -5790.0)),
        *(("6e-2", 0.06), ("1e+2", 100.0), ("1.5F", 1.5), ("2D", 2.0), ("0.1f", 0.10000000149011612)),
        *(("1.7976931348623157E308", sys.float_info.max), ("4.9E-324", 5e-324), ("-0.0", 0.0)),
    ],
)
def test_literal_is_that_double(selecting: Selecting, literal: str, value: float) -> None:
    beside = math.nextafter(value, math.inf), math.nextafter(value, -math.inf)
    assert selecting.values(f"x = {literal}", "x", (value, *beside)) == [value]


@pytest.mark.requirement("selector.literal.approxnumeric", "selector.validation")
@pytest.mark.parametrize("literal", ["1e309", "-1e309", "1e-400", "1e", "1.2.3", ".", "1.0x", "NaN1.0"])
def test_other_literals_are_refused(selecting: Selecting, literal: str) -> None:
    selecting.check_invalid(f"x = {literal}")
