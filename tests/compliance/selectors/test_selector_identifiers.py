"""Names in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from tests.compliance.selecting import Selecting
from tests.compliance.selector_cases import SelectorCase, selector_parameters

WORDS = ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")


@pytest.mark.parametrize("case", selector_parameters("selector-identifier"))
def test_suite_s_case(selecting: Selecting, case: SelectorCase) -> None:
    selecting.check(case)


@pytest.mark.requirement("selector.identifier.name")
@pytest.mark.parametrize("name", ["x", "_", "$", "$_9", "größe", "名前", "Ⅷ", "€", "x\u0301", "n" * 10_000])
def test_java_identifiers_of_any_length_are_names(selecting: Selecting, name: str) -> None:
    assert selecting.values(f"{name} = 1", name, (0, 1, 2)) == [1]


@pytest.mark.requirement("selector.identifier.name", "selector.validation")
@pytest.mark.parametrize("name", ["1x", "x-y z", "x.y", "@x", "#x", "x😀", "[x]", '"x"', "`x`", "x?", "\u0301x"])
def test_nothing_else_is_a_name(selecting: Selecting, name: str) -> None:
    selecting.check_invalid(f"{name} = 1")


@pytest.mark.requirement("selector.identifier.case")
def test_names_differ_by_case(selecting: Selecting) -> None:
    assert selecting.truth("color = 'red' and Color = 'green' and COLOR is null", color="red", Color="green") is True


@pytest.mark.requirement("selector.reservedwords", "selector.reservedwords.case", "selector.validation")
@pytest.mark.parametrize("word", WORDS)
def test_words_of_the_language_are_no_names(selecting: Selecting, word: str) -> None:
    for written in (word, word.lower(), word.title()):
        selecting.check_invalid(f"{written} > 1")


@pytest.mark.requirement("selector.reservedwords.case")
@pytest.mark.parametrize("change", [str.lower, str.upper, str.title, str.swapcase])
def test_words_of_the_language_may_be_written_in_any_case(selecting: Selecting, change: str) -> None:
    def word(text: str) -> str:
        return str(change(text))  # type: ignore[operator]

    selector = (
        f"N {word('Between')} 1 {word('aNd')} 3 {word('and')} S {word('like')} 'a!_%' {word('escape')} '!'"
        f" {word('and')} S {word('not')} {word('in')} ('b') {word('and')} ({word('false')} {word('or')} {word('true')})"
        f" {word('and')} M {word('is')} {word('null')}"
    )
    assert selecting.truth(selector, N=2, S="a_b") is True
    assert selecting.truth(selector, N=2, S="a_b", M=1) is False


@pytest.mark.requirement("selector.properties.JMSprefixed")
def test_names_of_jms_and_of_providers_are_properties(selecting: Selecting) -> None:
    assert selecting.values("JMSXGroupID = 'g'", "JMSXGroupID", ("f", "g")) == ["g"]
    assert selecting.values("JMS_acme = 1", "JMS_acme", (0, 1)) == [1]
    assert selecting.values("Jms = 1", "Jms", (0, 1)) == [1]
