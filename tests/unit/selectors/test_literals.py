"""Literals follow Java's syntax and ranges."""

from __future__ import annotations

import math
import sys

import pytest

from jmsql.exceptions import InvalidSelectorException
from jmsql.selectors.expressions import Comparison, Constant, Value
from tests.unit.selectors.reading import evaluate, parsed


def literal(text: str) -> Value:
    comparison = parsed(f"x <> {text}")
    assert isinstance(comparison, Comparison)
    assert isinstance(comparison.right, Constant)
    return comparison.right.value


@pytest.mark.requirement("selector.literal.exactnumeric")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("57", 57),
        ("-957", -957),
        ("+62", 62),
        ("57L", 57),
        ("57l", 57),
        ("1_000_000", 1_000_000),
        ("071", 57),
        ("00", 0),
        ("0x39", 57),
        ("0XfFl", 255),
        ("0b111001", 57),
        ("0x7fffffffffffffff", 2**63 - 1),
        ("0xffffffffffffffff", -1),
        ("01777777777777777777777", -1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("- 9223372036854775808", -(2**63)),
        ("--9223372036854775808", -(2**63)),
    ],
)
def test_integers_are_exact(text: str, value: int) -> None:
    found = literal(text)
    assert found == value
    assert isinstance(found, int)


@pytest.mark.requirement("selector.literal.approxnumeric")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7.", 7.0),
        (".5", 0.5),
        ("-95.7", -95.7),
        ("7E3", 7000.0),
        ("7e-3", 0.007),
        ("7.5E+3", 7500.0),
        ("92d", 92.0),
        ("93F", 93.0),
        ("0d", 0.0),
        ("010.5", 10.5),
        ("09e1", 90.0),
        ("1_0.2_5", 10.25),
        ("0.1f", 0.10000000149011612),
        ("0x1.8p1", 3.0),
        ("0x.8P+1D", 1.0),
        ("0x10p-4f", 1.0),
        ("4.9E-324", 5e-324),
        ("1.7976931348623157E308", sys.float_info.max),
        ("0e999", 0.0),
    ],
)
def test_numbers_with_a_point_exponent_or_type_are_approximate(text: str, value: float) -> None:
    found = literal(text)
    assert found == value
    assert isinstance(found, float)


def test_a_zero_keeps_its_sign() -> None:
    zero = literal("-0.0")
    assert isinstance(zero, float)
    assert math.copysign(1, zero) == -1


@pytest.mark.requirement("selector.literal.exactnumeric", "selector.literal.approxnumeric", "selector.validation")
@pytest.mark.parametrize(
    "text",
    [
        *("9223372036854775808", "+9223372036854775808", "-(9223372036854775808)", "-9223372036854775809", "1" * 5000),
        *("0x10000000000000000", "08", "0_", "1_", "_1 2", "0x", "0xg", "0b2", "1_.5", "1._5", "5lL", "5_L", "0x1.8"),
        *("1e400", "1e-400", "1e39f", "1e-60f", "0x1p1024", "0x1p-1080", "1e", "1e+", "1.5L", "..5", "1..5", "."),
        *("1.2.3", "1a", "1$", "2and", "1e5x", "0x1p", "1F2", "\u0661"),
    ],
)
def test_another_text_than_a_number_of_java_is_refused(text: str) -> None:
    with pytest.raises(InvalidSelectorException):
        parsed(f"x = {text}")


def test_the_smallest_integer_is_no_operand_of_a_binary_minus() -> None:
    with pytest.raises(InvalidSelectorException, match="64 bits"):
        parsed("x -9223372036854775808 = 0")


@pytest.mark.requirement("selector.literal.string")
@pytest.mark.parametrize(
    "text", ["", "a", "it's", "''", "\n", "\0", "\ud800", "\ufffe", "😀 ünïcödé", "a--b /* c */", '"']
)
def test_strings_hold_any_character(text: str) -> None:
    assert literal("'" + text.replace("'", "''") + "'") == text


@pytest.mark.requirement("selector.literal.boolean", "selector.reservedwords.case")
def test_booleans_in_any_case() -> None:
    assert literal("TRUE") is True
    assert literal("fAlSe") is False


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "matches"),
    [
        ("12%3", None, "123", True),
        ("12%3", None, "12993", True),
        ("12%3", None, "1234", False),
        ("l_se", None, "lose", True),
        ("l_se", None, "loose", False),
        (r"\_%", "\\", "_foo", True),
        (r"\_%", "\\", "bar", False),
        (r"\%", "\\", "%", True),
        (r"\\", "\\", "\\", True),
        ("%", None, "", True),
        ("_", None, "", False),
        ("", None, "", True),
        ("", None, "a", False),
        ("_", None, "\n", True),
        ("_", None, "😀", True),
        ("a.c", None, "abc", False),
        ("%%_%%", None, "x", True),
        ("%%_", "%", "%a", True),
        ("A", None, "a", False),
        ("%ab%ab", None, "ab ab", True),
        ("%ab%ab", None, "ab", False),
        ("ab%b", None, "ab", False),
    ],
)
@pytest.mark.requirement("selector.operator.like")
def test_like(pattern: str, escape: str | None, text: str, *, matches: bool) -> None:
    clause = "" if escape is None else f" escape '{escape}'"
    assert evaluate(f"s like '{pattern}'{clause}", s=text) is matches
    assert evaluate(f"s not like '{pattern}'{clause}", s=text) is not matches


@pytest.mark.requirement("selector.operator.like", "selector.validation")
@pytest.mark.parametrize(
    "clause", ["'a' escape ''", "'a' escape 'ab'", r"'a\' escape '\'", r"'\a' escape '\'", "5", "x"]
)
def test_a_wrong_pattern_or_escape_is_refused(clause: str) -> None:
    with pytest.raises(InvalidSelectorException):
        parsed(f"s like {clause}")
