"""IN, LIKE and IS NULL in selectors: JMS 1.1 chapter 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql.messages import Byte, Float, Long, PropertyValue
from tests.compliance.selecting import Selecting

COUNTRIES = ("UK", "US", "France", "Peru", "uk", "", None, 1, True)


@pytest.mark.requirement("selector.operator.in", "selector.values.null")
def test_in_chooses_listed_strings_and_not_in_all_others(selecting: Selecting) -> None:
    assert selecting.values("Country in ('UK', 'US', 'France')", "Country", COUNTRIES) == ["UK", "US", "France"]
    assert selecting.values("Country not in ('UK', 'US', 'France')", "Country", COUNTRIES) == ["Peru", "uk", ""]


NO_STRINGS = (0, 1, 1.5, float("nan"), Byte(7), Long(8), Float(0.5), True, False)


@pytest.mark.requirement("selector.operator.in", "selector.operator.like", "selector.operator.comparison.types")
@pytest.mark.parametrize(
    "condition", ["x in ('a', '1', 'true')", "x not in ('a', '1', 'true')", "x like '%'", "x not like '1'"]
)
def test_comparison_of_strings_with_other_values_is_false_negated_or_not(selecting: Selecting, condition: str) -> None:
    assert selecting.values(condition, "x", NO_STRINGS) == []
    for value in NO_STRINGS:
        assert selecting.truth(condition, x=value) is False
        assert selecting.truth(f"not ({condition})", x=value) is True


@pytest.mark.requirement("selector.operator.between", "selector.operator.comparison.types")
@pytest.mark.parametrize("condition", ["x between 0 and 9", "x not between 0 and 9", "5 between x and 9"])
def test_comparison_of_numbers_with_other_values_is_false_negated_or_not(selecting: Selecting, condition: str) -> None:
    for value in ("5", "50", "", True, False):
        assert selecting.truth(condition, x=value) is False
        assert selecting.truth(f"not ({condition})", x=value) is True


@pytest.mark.requirement("selector.operator.in")
def test_in_with_one_string_that_holds_a_quote(selecting: Selecting) -> None:
    assert selecting.values("s in ('it''s')", "s", ("it's", "it''s", "its")) == ["it's"]


@pytest.mark.requirement("selector.operator.in", "selector.validation")
@pytest.mark.parametrize(
    "selector", ["s in ()", "s in ('a',)", "s in (1)", "s in (t)", "s in 'a'", "'a' in ('a')", "JMSPriority in ('4')"]
)
def test_in_takes_a_name_and_string_literals_alone(selecting: Selecting, selector: str) -> None:
    selecting.check_invalid(selector)


@pytest.mark.requirement("selector.operator.like")
@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("'12%3'", ["123", "12993"]),
        ("'l_se'", ["lose"]),
        ("'\\_%' escape '\\'", ["_foo"]),
        ("'_foo'", ["_foo", "xfoo"]),
        ("'%'", ["123", "12993", "1234", "lose", "loose", "_foo", "xfoo", "50%", "a.c", "a\nc", "it's", "😀", ""]),
        ("''", [""]),
        ("'_'", ["😀"]),
        ("'50!%' escape '!'", ["50%"]),
        ("'a.c'", ["a.c"]),
        ("'a_c'", ["a.c", "a\nc"]),
        ("'it''s'", ["it's"]),
        ("'%3%'", ["123", "12993", "1234"]),
    ],
)
def test_like_matches_the_pattern(selecting: Selecting, pattern: str, chosen: list[PropertyValue]) -> None:
    texts = ("123", "12993", "1234", "lose", "loose", "_foo", "xfoo", "50%", "a.c", "a\nc", "it's", "😀", "")
    values: tuple[PropertyValue, ...] = (*texts, None)
    assert selecting.values(f"s like {pattern}", "s", values) == chosen
    assert selecting.values(f"s not like {pattern}", "s", values) == [text for text in texts if text not in chosen]


@pytest.mark.requirement("selector.operator.like", "selector.validation")
@pytest.mark.parametrize(
    "selector", ["s like 1", "s like t", "'a' like 'a'", "s like 'a' escape '!!'", "s like 'a' escape", "1 like '1'"]
)
def test_like_takes_a_name_and_string_literals_alone(selecting: Selecting, selector: str) -> None:
    selecting.check_invalid(selector)


@pytest.mark.requirement("selector.operator.is", "selector.values.null")
def test_is_null_tells_null_and_missing_from_all_values(selecting: Selecting) -> None:
    values = (False, 0, 0.0, "", "null", None)
    assert selecting.values("x is null", "x", values) == [None]
    assert selecting.values("x is not null", "x", values) == [False, 0, 0.0, "", "null"]
    assert selecting.truth("missing is null") is True
    assert selecting.truth("missing is not null") is False


@pytest.mark.requirement("selector.values.null")
@pytest.mark.parametrize(
    "condition",
    [
        *("u = 1", "u <> 1", "u < 1", "1 >= u", "u = 'a'", "u <> true", "u = u", "u + 1 = 1", "-u = 1", "u * 0 = 0"),
        *("u between 1 and 2", "1 not between u and 2", "u in ('a')", "u not in ('a')", "u like '%'", "u not like ''"),
        "not u",
    ],
)
@pytest.mark.parametrize("properties", [{}, {"u": None}], ids=["missing", "null"])
def test_comparison_or_calculation_with_null_is_unknown(
    selecting: Selecting, condition: str, properties: dict[str, PropertyValue]
) -> None:
    assert selecting.truth(condition, **properties) is None
