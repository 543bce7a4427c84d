"""`jmsql selector explain` and `jmsql destination index`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.cli.conftest import Command

BLUE = "color = 'blue'"


@pytest.fixture(autouse=True)
def no_index_stays(database: psycopg.Connection) -> Iterator[None]:
    yield
    for (name,) in database.execute(
        "select indexrelid::regclass::text from pg_index where indrelid = 'jmsql_internal.message'::regclass "
        "and indexrelid::regclass::text like '%message_selector_%'"
    ).fetchall():
        database.execute(f"drop index {name}")


def test_a_selector_is_explained_and_its_index_made_listed_and_dropped(jmsql: Command) -> None:
    jmsql("send", "orders", "x", "-p", "color=red", "--count", "500")
    jmsql("send", "orders", "x", "-p", "color=blue")
    before = jmsql("selector", "explain", "orders", BLUE, "--json").document
    assert before["condition"] == "((m.properties->'color'::text) = %(selector_0)s::jsonb)"
    assert before["parameters"] == {"selector_0": '"blue"'}
    assert (before["uses"], before["rows"], before["found"]) == ("message_pkey", 501, 1)
    assert before["served_by"] is None
    assert "destination index orders" in before["advice"]

    made = jmsql("destination", "index", "orders", BLUE, "--json").document
    assert made["made"] is True
    after = jmsql("selector", "explain", "orders", BLUE, "--json").document
    assert (after["uses"], after["rows"], after["found"]) == (made["name"], 1, 1)
    assert after["served_by"]["expressions"] == ["(properties->'color')"]

    text = jmsql("selector", "explain", "orders", BLUE).text
    assert f"Index Scan using {made['name']}" in text
    assert "Read 1 message for the first 1" in text
    assert jmsql("destination", "index", "orders", BLUE).text.startswith("There already is the index")
    assert made["name"] in jmsql("destination", "index").text
    assert [each["name"] for each in jmsql("destination", "index", "--json").document] == [made["name"]]
    assert jmsql("destination", "index", "orders", BLUE, "--drop").text == f"Dropped the index {made['name']}.\n"
    outcome = jmsql("destination", "index", "orders", BLUE, "--drop")
    assert outcome.exit_code == 1
    assert "There is no index" in jmsql("destination", "index").text


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (("selector", "explain", "orders", "color ="), 2, "selector"),
        (("selector", "explain", "orders", " "), 2, "chooses all messages"),
        (("selector", "explain", "nowhere", BLUE), 3, "There is no queue"),
        (("destination", "index", "orders", "weight > 5"), 2, "No index serves"),
        (("destination", "index", "orders"), 2, "Name the selector"),
    ],
)
def test_refusals(jmsql: Command, arguments: tuple[str, ...], exit_code: int, says: str) -> None:
    jmsql("send", "orders", "x")
    outcome = jmsql(*arguments)
    assert outcome.exit_code == exit_code
    assert says in outcome.errors
