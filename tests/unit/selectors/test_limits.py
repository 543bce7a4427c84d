"""Whatever the text: a selector, or an InvalidSelectorException."""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.exceptions import InvalidSelectorException
from jmsql.selectors import Selector
from jmsql.selectors.builder import MAXIMUM_PATTERN, MAXIMUM_WILDCARDS
from jmsql.selectors.checker import MAXIMUM_DEPTH
from jmsql.selectors.parser import MAXIMUM_LENGTH
from tests.unit.selectors.reading import evaluate, parsed

FRAGMENTS = (
    *(
        "x",
        "JMSPriority",
        "JMSType",
        "JMSMessageID",
        "JMSDeliveryMode",
        "'PERSISTENT'",
        "größe",
        "JMSFoo",
        "1",
        "-1",
        "2.5",
    ),
    *(
        "9223372036854775808",
        "0x1F",
        "1e999",
        "07",
        "09",
        "1.",
        "'a'",
        "'it''s'",
        "'%_'",
        "'",
        '"',
        "TRUE",
        "false",
        "null",
    ),
    *(
        "not",
        "and",
        "or",
        "between",
        "like",
        "in",
        "is",
        "escape",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
    ),
    *("*", "/", "\0", "\ud800", "\ufffe", "\n", ";", "--", "/*", "%", "%s", "%(a)s", "{", "$1", "::", "\\"),
)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    use(text)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(" ".join))
def test_any_sequence_of_tokens(text: str) -> None:
    use(text)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_any_sequence_of_tokens_without_white_space(text: str) -> None:
    use(text)


def use(text: str) -> None:
    with suppress(InvalidSelectorException):
        selector = Selector.parse(text)
        if selector is not None:
            selector.to_sql().condition % selector.to_sql().parameters
            evaluate(text, x=1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x = 1 or " * 7000 + "x = 2", id="chain of OR"),
        pytest.param("(" * 30_000 + "x = 2" + ")" * 30_000, id="parentheses"),
        pytest.param("x = " + "-" * (MAXIMUM_DEPTH - 2) + "y", id="signs"),
    ],
)
def test_large_selectors_within_the_limits_work_on_a_small_stack(text: str) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 450)
    try:
        assert evaluate(text, x=2, y=2) is True
        use(text)
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("x = 1 or " * 8000 + "x = 1", f"longer than {MAXIMUM_LENGTH}", id="length"),
        pytest.param("not " * MAXIMUM_DEPTH + "x", "nested", id="NOT"),
        pytest.param("x = " + "-" * 60_000 + "y", "nested", id="signs"),
        pytest.param("x = 1" + " + 1" * 16_000, "nested", id="sum"),
        pytest.param("(y or x and " * 5000 + "x" + ")" * 5000, "nested", id="alternation"),
        pytest.param("(" * 30_000, "ends where a value belongs", id="open parentheses"),
        pytest.param(")" * 30_000, "stands where a value belongs", id="closing parentheses"),
        pytest.param("x like '" + "a" * MAXIMUM_PATTERN + "'", f"longer than {MAXIMUM_PATTERN}", id="pattern"),
        pytest.param("x like '" + "%a" * (MAXIMUM_WILDCARDS + 1) + "'", "wildcards", id="wildcards"),
        pytest.param("'" * 60_001, "no closing quote", id="quotes"),
        pytest.param("x = " + "1" * 60_000, "64 bits", id="digits"),
        pytest.param("x = " + "1" * 60_000 + ".0", "too large", id="digits and a point"),
    ],
)
def test_a_selector_beyond_the_limits_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidSelectorException, match=reason):
        parsed(text)


def test_importing_selectors_does_not_load_the_parser() -> None:
    """A program that uses no selector pays nothing for them."""
    program = "import sys, jmsql.selectors; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
