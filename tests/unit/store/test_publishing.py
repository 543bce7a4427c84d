"""The statement that publishes messages for subscriptions with selectors."""

from __future__ import annotations

import pytest

from jmsql.selectors import selector_sql
from jmsql.store.sending.send import publish_statement


def test_many_literals_of_selectors_take_few_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL takes 65,535 in a statement, and a topic may have any number of subscriptions."""
    monkeypatch.setattr(selector_sql, "MOST_PARAMETERS", 100)
    selectors = tuple(f"number = {number} or number = -{number}" for number in range(100))
    statement = publish_statement(selectors, flush=True)
    assert sorted(statement.parameters) == ["known", "selectors_0", "selectors_1"]
    assert "selector_0" not in statement.text
