"""Numbers and calculations in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql.types import Byte, Float, Long, Short
from tests.compliance.selecting import Selecting


@pytest.mark.requirement("selector.literal.exactnumeric")
@pytest.mark.parametrize(
    ("literal", "value"),
    [
        *(("57", 57), ("-957", -957), ("+62", 62), ("0", 0), ("2147483648", 2**31), ("9007199254740993", 2**53 + 1)),
        *(
            ("9223372036854775807", 2**63 - 1),
            ("-9223372036854775808", -(2**63)),
            ("57L", 57),
            ("0x1F", 31),
            ("017", 15),
        ),
    ],
)
def test_exact_literal_is_that_integer(selecting: Selecting, literal: str, value: int) -> None:
    beside = [other for other in (value - 1, value + 1) if -(2**63) <= other < 2**63]
    assert selecting.values(f"n = {literal}", "n", (value, *beside)) == [value]


@pytest.mark.requirement("selector.literal.exactnumeric", "selector.validation")
@pytest.mark.parametrize("literal", ["9223372036854775808", "-9223372036854775809", "1_", "08", "0x", "1l2"])
def test_no_integer_of_java_s_is_refused(selecting: Selecting, literal: str) -> None:
    selecting.check_invalid(f"n = {literal}")


@pytest.mark.requirement("selector.operator.arithmetic.precedence", "selector.evaluation.order")
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14),
        ("20 - 8 / 4", 18),
        ("-2 * -3 + +1", 7),
        ("- 2 - 3", -5),
        ("(2 + 3) * 4", 20),
        ("-(2 - 5)", 3),
        ("10 - 4 - 3", 3),
        ("10 - (4 - 3)", 9),
        ("100 / 10 / 2", 5),
        ("100 / (10 / 2)", 20),
        ("12 / 5 * 5", 10),
        ("12 * 5 / 5", 12),
    ],
)
def test_sign_binds_tightest_then_products_and_equals_are_read_from_the_left(
    selecting: Selecting, expression: str, value: int
) -> None:
    assert selecting.values(f"n = {expression}", "n", range(-10, 25)) == [value]


@pytest.mark.requirement("selector.expression.arithmetic")
def test_names_literals_and_calculations_make_calculations(selecting: Selecting) -> None:
    selector = "(weight + 2 * height) / 2.5 - -1 > limit"
    assert selecting.truth(selector, weight=Short(10), height=Float(20), limit=Byte(20)) is True
    assert selecting.truth(selector, weight=Short(10), height=Float(20), limit=Long(21)) is False


@pytest.mark.requirement("selector.expression.arithmetic", "selector.operator.comparison.types")
@pytest.mark.parametrize("expression", ["s + 1", "1 - s", "-s", "s * f", "f / 2"])
def test_arithmetic_with_other_values_than_numbers_is_unknown(selecting: Selecting, expression: str) -> None:
    for operator in ("=", "<>", "<", ">="):
        assert selecting.truth(f"{expression} {operator} 1", s="1", f=True) is None


@pytest.mark.requirement("selector.operator.arithmetic.promotion")
@pytest.mark.parametrize(
    "condition",
    [
        *("7 / 2 = 3", "-7 / 2 = -3", "7 / 2.0 = 3.5", "7.0 / 2 = 3.5", "b / 2 = 3", "b / 2.0 = 3.5", "f / 2 = 3.75"),
        *("i + 1 = 2147483648", "l + 1 = -9223372036854775808", "l + 1.0 = 9223372036854775808.0"),
        *("f * i > 1.5e10", "s * s = 1073676289", "0.1 + 0.2 <> 0.3", "1 / 3.0 * 3 = 1"),
    ],
)
def test_numbers_are_promoted_as_in_java(selecting: Selecting, condition: str) -> None:
    numbers = {"b": Byte(7), "s": Short(32767), "i": 2**31 - 1, "l": Long(2**63 - 1), "f": Float(7.5)}
    assert selecting.truth(condition, **numbers) is True


@pytest.mark.requirement("selector.operator.comparison.types")
@pytest.mark.parametrize("value", [Byte(2), Short(2), 2, Long(2), Float(2), 2.0])
def test_numbers_of_all_types_compare(selecting: Selecting, value: float) -> None:
    condition = "n = 2 and n = 2.0 and n >= 2 and n < 2.5 and n <> 3 and n between 1.5 and 2"
    assert selecting.truth(condition, n=value) is True


@pytest.mark.requirement("selector.operator.comparison.types", "selector.values.null")
def test_unlike_types_give_false_and_null_unknown(selecting: Selecting) -> None:
    for operator in ("=", "<>"):
        assert selecting.truth(f"a {operator} b", a="1", b=1) is False
        assert selecting.truth(f"a {operator} b", a=True, b=1) is False
        assert selecting.truth(f"a {operator} b", a=True, b="true") is False
        assert selecting.truth(f"a {operator} b", a=True) is None


@pytest.mark.requirement("selector.operator.comparison.precedence", "selector.evaluation.order")
@pytest.mark.parametrize(
    ("operator", "chosen"), [("=", [2]), (">", [3]), (">=", [2, 3]), ("<", [1]), ("<=", [1, 2]), ("<>", [1, 3])]
)
def test_six_comparisons_bind_tighter_than_logic_and_looser_than_arithmetic(
    selecting: Selecting, operator: str, chosen: list[int]
) -> None:
    assert selecting.values(f"n {operator} 2", "n", (1, 2, 3)) == chosen
    assert selecting.values(f"true and n + 1 {operator} 2 + 1 and true", "n", (1, 2, 3)) == chosen
    assert selecting.values(f"not n {operator} 2", "n", (1, 2, 3)) == [n for n in (1, 2, 3) if n not in chosen]
    assert selecting.values(f"(n {operator} 2) = true", "n", (1, 2, 3)) == chosen
