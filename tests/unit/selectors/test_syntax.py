"""The grammar: names, words, white space, precedence; and what an error says."""

from __future__ import annotations

from typing import cast

import pytest

from jmsql.exceptions import InvalidSelectorException
from jmsql.selectors import Selector
from jmsql.values.identifiers import RESERVED_WORDS
from tests.unit.selectors.reading import evaluate, parsed


@pytest.mark.parametrize("text", [None, "", " ", "\t\f\r\n "])
@pytest.mark.requirement("selector.null", "selector.empty")
def test_nothing_selects_everything(text: str | None) -> None:
    assert Selector.parse(text) is None


@pytest.mark.requirement("selector.whitespace")
def test_blank_tab_form_feed_and_line_ends_separate() -> None:
    assert evaluate("\n x\t=\f1\rand\r\ny\n<>2 ", x=1, y=1) is True


@pytest.mark.requirement("selector.whitespace")
@pytest.mark.parametrize("space", ["\v", "\u00a0", "\u3000", "\u2028"])
def test_other_white_space_does_not(space: str) -> None:
    with pytest.raises(InvalidSelectorException):
        parsed(f"x{space}= 1")


@pytest.mark.requirement("selector.identifier.name", "selector.properties.JMSprefixed")
@pytest.mark.parametrize(
    "name", ["x", "_", "$", "größe", "名前", "a1", "Ⅷ", "€", "x\u0301", "JMSXGroupID", "JMS_acme", "jms", "n" * 9000]
)
def test_names_are_java_identifiers(name: str) -> None:
    assert evaluate(f"{name} = 1", **{name: 1}) is True


@pytest.mark.requirement("selector.identifier.name", "selector.validation")
@pytest.mark.parametrize(
    "name", ["1x", "x-", "x.y", "x y", "@x", "#x", "\u0301x", "x😀", "[x]", '"x"', "`x`", "x:y", "x?"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidSelectorException):
        parsed(f"{name} = 1")


@pytest.mark.requirement("selector.identifier.case")
def test_names_differ_by_case() -> None:
    assert evaluate("X = 1", x=1) is None


@pytest.mark.requirement("selector.reservedwords", "selector.reservedwords.case")
@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_words_are_no_names(word: str) -> None:
    for written in (word, word.lower(), word.title()):
        with pytest.raises(InvalidSelectorException):
            parsed(f"1 = {written} + 1")


@pytest.mark.requirement("selector.reservedwords.case")
def test_words_in_any_case() -> None:
    assert evaluate("nOt (x Is NuLl Or x iN ('a') oR x LiKe 'b' EsCaPe 'c' aNd y BeTwEeN 1 AnD 2)", x="z") is True


@pytest.mark.requirement("selector.identifier.header", "selector.properties.JMSprefixed")
@pytest.mark.parametrize(
    "name", ["JMSDestination", "JMSReplyTo", "JMSExpiration", "JMSRedelivered", "JMSDeliveryTime", "JMS", "JMSfoo"]
)
def test_other_headers_are_refused(name: str) -> None:
    with pytest.raises(InvalidSelectorException, match=f"{name} cannot be used"):
        parsed(f"{name} is null")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        pytest.param(
            "not a = 1 and b = 2",
            "(not (a = 1)) and (b = 2)",
            marks=pytest.mark.requirement("selector.operator.logical.precedence"),
        ),
        pytest.param(
            "a or b and c", "a or (b and c)", marks=pytest.mark.requirement("selector.operator.logical.precedence")
        ),
        pytest.param(
            "a and b or c", "(a and b) or c", marks=pytest.mark.requirement("selector.operator.logical.precedence")
        ),
        pytest.param(
            "a + b * c = d",
            "(a + (b * c)) = d",
            marks=pytest.mark.requirement("selector.operator.arithmetic.precedence"),
        ),
        pytest.param(
            "- a * b = d", "((- a) * b) = d", marks=pytest.mark.requirement("selector.operator.arithmetic.precedence")
        ),
        pytest.param("a - b - c = d", "((a - b) - c) = d", marks=pytest.mark.requirement("selector.evaluation.order")),
        pytest.param("a / b * c = d", "((a / b) * c) = d", marks=pytest.mark.requirement("selector.evaluation.order")),
        pytest.param("a + b > c", "(a + b) > c", marks=pytest.mark.requirement("selector.expression.arithmetic")),
        pytest.param(
            "a <> b = c", "a <> (b = c)", marks=pytest.mark.requirement("selector.operator.comparison.precedence")
        ),
        pytest.param(
            "a > b <> c", "(a > b) <> c", marks=pytest.mark.requirement("selector.operator.comparison.precedence")
        ),
        pytest.param(
            "a between b and c and d",
            "(a between b and c) and d",
            marks=pytest.mark.requirement("selector.operator.between"),
        ),
        pytest.param("not a in ('x')", "not (a in ('x'))", marks=pytest.mark.requirement("selector.operator.in")),
        pytest.param("a is not null", "not a is null", marks=pytest.mark.requirement("selector.operator.is")),
        pytest.param("a", "a = true", marks=pytest.mark.requirement("selector.expression.condition")),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert parsed(text) == parsed(same)


@pytest.mark.requirement("selector.evaluation.order", "selector.expression.condition")
def test_parentheses_override_precedence() -> None:
    assert evaluate("(a + b) * c = 9", a=1, b=2, c=3) is True
    assert evaluate("(a or b) and c", a=True, b=False, c=False) is False
    assert evaluate("((a) = (1)) = (true)", a=1) is True


@pytest.mark.requirement("selector.validation")
@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("color =", 8, "ends where a value belongs"),
        ("color = = 1", 9, "'=' stands where a value belongs"),
        ("color 'red'", 7, "\"'red'\" stands where the end or an operator belongs"),
        ("(color = 'red'", 15, r"ends where '\)' belongs"),
        ("color = 'red", 9, "no closing quote"),
        ('color = "red"', 9, "single quotes"),
        ("color & 'red'", 7, "no meaning outside a string"),
        ("color in 'red'", 10, r"stands where '\(' belongs"),
        ("color in ('red' 'blue')", 17, r"stands where '\)' or ',' belongs"),
        ("color is 5", 10, "stands where NOT or NULL belongs"),
        ("color not 5", 11, "stands where BETWEEN or IN or LIKE belongs"),
        ("weight > 1e", 10, "this is no number"),
        ("weight > 'x'", 10, "a string can be compared with = and <> only"),
        ("weight = 1 and 5", 16, "a number is no condition"),
        ("JMSType like 'a' and JMSPriority like 'b'", 22, "JMSPriority is a number"),
        ("5 in ('a')", 1, "name of a header or property"),
        ("5 is null", 1, "IS NULL tests a header or property"),
        ("JMSDeliveryMode in ('PERSISTENT', 'x')", 35, "'PERSISTENT' or 'NON_PERSISTENT'"),
        ("x = (y = 1) + 1", 6, "a condition stands here where a number belongs"),
    ],
)
def test_errors_say_where_and_why(text: str, position: int, reason: str) -> None:
    with pytest.raises(InvalidSelectorException, match=reason) as caught:
        parsed(text)
    heading, line, caret = str(caught.value).split("\n")
    assert f"position {position}:" in heading
    assert line == "    " + text
    assert caret == " " * (4 + position - 1) + "^"


def test_errors_show_the_line_of_a_long_selector() -> None:
    with pytest.raises(InvalidSelectorException) as caught:
        parsed("x = 1 and\n" + "y" * 100 + "\t = 'z' + 2\nor z = 1")
    assert str(caught.value).split("\n")[1:] == [
        "    " + "y" * 32 + "  = 'z' + 2",
        " " * 40 + "^",
    ]


def test_errors_fit_into_a_terminal_of_80_columns() -> None:
    with pytest.raises(InvalidSelectorException) as caught:
        parsed(" and ".join(["color = 'blue'"] * 20) + " = 5 and " + "z" * 100)
    _, line, caret = str(caught.value).split("\n")
    assert len(line) == 76
    assert line[caret.index("^") :].startswith("5 and")


@pytest.mark.parametrize(
    ("text", "columns"), [("名前 = 'はい' = 5", 16), ("e\u0301 = 'e\u0301' = 5", 10)], ids=["wide", "combining"]
)
def test_the_caret_stands_under_characters_of_any_width(text: str, columns: int) -> None:
    with pytest.raises(InvalidSelectorException) as caught:
        parsed(text)
    assert str(caught.value).split("\n")[2] == " " * (4 + columns) + "^"


@pytest.mark.parametrize("value", [1, True, b"x = 1", ["x = 1"]])
def test_only_a_string_is_a_selector(value: object) -> None:
    with pytest.raises(InvalidSelectorException, match="a string"):
        parsed(cast(str, value))
