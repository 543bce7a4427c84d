"""Strings in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters

TEXTS = (
    *(
        "",
        " ",
        "a",
        "A",
        "a ",
        "it's",
        "''",
        '"',
        "\\",
        "%",
        "--",
        "/* */",
        "%s",
        "%(x)s",
        "$1",
        ":x",
        "{}",
        "\n",
        "\t",
    ),
    *(
        "é",
        "e\u0301",
        "ß",
        "日本語",
        "😀",
        "\0",
        "a\0b",
        "\ud800",
        "\udfff",
        "\ufffe",
        "\ufffe0",
        "\uffff",
        "\U0010ffff",
    ),
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("case", selector_parameters("selector-string"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.literal.string", "selector.comparison.string")
@pytest.mark.parametrize("text", TEXTS)
def test_strings_are_equal_when_every_character_is(selecting: Selecting, text: str) -> None:
    others = [other for other in TEXTS if other != text]
    assert selecting.values(f"s = {quoted(text)}", "s", TEXTS) == [text]
    assert selecting.values(f"s <> {quoted(text)}", "s", TEXTS) == others


@pytest.mark.requirement("selector.comparison.string")
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_string_properties_are_in_no_order(selecting: Selecting, operator: str) -> None:
    assert selecting.truth(f"a {operator} b", a="x", b="y") is False
    assert selecting.truth(f"b {operator} a", a="x", b="y") is False
    assert selecting.truth(f"a {operator} a", a="x") is False


@pytest.mark.requirement("selector.property.conversion", "selector.operator.comparison.types")
@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
def test_string_of_digits_is_no_number(selecting: Selecting, operator: str) -> None:
    assert selecting.truth(f"NumberOfOrders {operator} 1", NumberOfOrders="2") is False


@pytest.mark.requirement("selector.property.conversion", "selector.operator.comparison.types")
def test_number_or_boolean_is_no_string(selecting: Selecting) -> None:
    values = (2, 2.0, True, "2", "true")
    assert selecting.values("x = '2'", "x", values) == ["2"]
    assert selecting.values("x <> '2'", "x", values) == ["true"]
    assert selecting.values("x = 2", "x", values) == [2, 2.0]
    assert selecting.values("x = true", "x", values) == [True]
