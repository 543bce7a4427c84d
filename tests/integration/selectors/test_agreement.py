"""The SQL of a selector says the same as its meaning in Python, for every selector and message."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from random import Random

import pytest

from jmsql.selectors import Selector, selector_sql
from jmsql.selectors.evaluator import truth, value_in
from tests.integration.selectors.conftest import MessageTable
from tests.integration.selectors.generation import SelectorGenerator, random_message

SEED = int(os.environ.get("JMSQL_SELECTOR_SEED", "20130101"))
PAIRS = int(os.environ.get("JMSQL_SELECTOR_PAIRS", "40000"))
"""How many pairs of a selector and a message are compared; set the variable for a longer run."""

MESSAGES = 80


def test_sql_and_evaluator_agree(message_table: MessageTable) -> None:
    """True, false and unknown alike, and each of them often enough for the comparison to mean something."""
    random = Random(SEED)
    messages = [random_message(random) for _ in range(MESSAGES)]
    for message in messages:
        message_table.insert(message)
    generator = SelectorGenerator(random)
    seen: Counter[bool | None] = Counter()
    while seen.total() < PAIRS:
        text = generator.selector()
        selector = Selector.parse(text)
        assert selector is not None
        sql = message_table.condition(selector)
        found = message_table.evaluate_sql(sql)
        expected = [truth(selector._condition, partial(value_in, message)) for message in messages]
        for message, in_sql, in_python in zip(messages, found, expected, strict=True):
            assert in_sql is in_python, f"{text!r} with {dict(message.properties)!r}: {sql}"
        assert [selector.matches(message) for message in messages] == [outcome is True for outcome in expected]
        seen.update(expected)
    assert min(seen[outcome] for outcome in (True, False, None)) > PAIRS // 10, seen


def test_literals_in_arrays_mean_the_same(message_table: MessageTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selector_sql, "MOST_PARAMETERS", 0)
    random = Random(SEED)
    for _ in range(20):
        message_table.insert(random_message(random))
    generator = SelectorGenerator(random)
    for _ in range(200):
        selector = Selector.parse(generator.selector())
        assert selector is not None
        sql = message_table.condition(selector)
        assert message_table.evaluate_sql(sql.packed()) == message_table.evaluate_sql(sql), selector.text
