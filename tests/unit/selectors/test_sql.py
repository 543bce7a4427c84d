"""The SQL of a selector: plain where that is possible, and free of the selector's text."""

from __future__ import annotations

import re

import pytest

from jmsql.selectors import Selector, SelectorSQL
from jmsql.selectors.sql import json_value
from jmsql.store.identifier import in_schema


def sql(text: str) -> SelectorSQL:
    selector = Selector.parse(text)
    assert selector is not None
    return selector.to_sql()


def test_an_equality_is_a_plain_comparison_of_jsonb() -> None:
    assert sql("color = 'red'") == (
        "((m.properties->'color'::text) = %(selector_0)s::jsonb)",
        {"selector_0": '"red"'},
    )


@pytest.mark.parametrize(
    "text",
    [
        *("color = 'a'", "'a' <> color", "x = 5", "5 > x", "x <= -2.5", "x <> 0", "x in ('a', 'b')", "x like 'a%'"),
        *("x is null", "x between 1 and 2.5", "x not between -1 and 1", "x", "x = false", "true <> x", "not x = 1"),
        *(
            "JMSPriority > 4",
            "JMSTimestamp < 1.5",
            "JMSType = 'a'",
            "JMSMessageID = 'a'",
            "JMSDeliveryMode <> 'PERSISTENT'",
        ),
    ],
)
def test_simple_comparisons_call_no_function_of_jmsql(text: str) -> None:
    assert "selector_compare" not in sql(text).condition


def test_a_message_id_is_compared_without_casting_the_column() -> None:
    text = "JMSMessageID = 'ID:01234567-89ab-cdef-0123-456789abcdef'"
    assert sql(text) == (
        "(m.jms_message_id = %(selector_0)s::uuid)",
        {"selector_0": "01234567-89ab-cdef-0123-456789abcdef"},
    )


def test_all_text_but_plain_names_is_in_parameters() -> None:
    condition, parameters = sql("größe = 'it''s; drop table' and s like 'q%' and s in ('q\\', '\"') and t = 77")
    assert re.search("größe|drop|q%|'q|77", condition) is None
    assert set(parameters.values()) == {
        "größe",
        '"it\'s; drop table"',
        "q%",
        "^q(?:\ufffe.|[^\ufffe])*$",
        r'{"\"q\\\\\"","\"\\\"\""}',
        "77",
    }


def test_functions_are_named_for_statements_to_put_them_into_their_schema() -> None:
    assert "(jmsql_internal.selector_compare(" in sql("x = y").condition
    assert in_schema(sql("x = y * 2").condition, "shop").count('"shop_internal".selector_') == 2


def test_the_length_is_linear() -> None:
    def length(terms: int) -> int:
        return len(
            sql(" and ".join(f"(a{term} + b * 2 between -c and d / 3 or e not like 'x%')" for term in range(terms)))[0]
        )

    assert length(400) < 4.2 * length(100)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (5.0, "5.0"),
        (1e22, "10000000000000000000000.0"),
        (1e-7, "0.0000001"),
        (True, "true"),
        ('a\0"', '"a\ufffe0\\""'),
        (float("nan"), '["NaN"]'),
        (float("inf"), '["Infinity"]'),
        (float("-inf"), '["-Infinity"]'),
        (-0.0, '["-0.0"]'),
    ],
)
def test_values_have_the_form_of_properties(value: bool | float | str, text: str) -> None:
    assert json_value(value) == text
