"""What another program has stored so that nobody can read it: it is shown as such, and the command goes on."""

from __future__ import annotations

import psycopg
import pytest

from tests.integration.cli.conftest import Command
from tests.unreadable_messages import READABLE, UNREADABLE, store_unreadable


@pytest.fixture
def stored(jmsql: Command, jmsql_clean_url: str) -> dict[str, str]:
    """The identifiers of messages that cannot be read, each between two that can."""
    assert jmsql("send", "orders", "first").exit_code == 0
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        ids = store_unreadable(connection, "orders")
    assert jmsql("send", "orders", "last").exit_code == 0
    return ids


def unreadable(lines: list[dict[str, object]]) -> set[object]:
    return {line["message_id"] for line in lines if "unreadable" in line}


def test_browse_shows_each_message_and_why_it_cannot_be_read(jmsql: Command, stored: dict[str, str]) -> None:
    outcome = jmsql("browse", "orders", "--limit", "100", "--json")
    assert outcome.exit_code == 0
    assert len(outcome.lines) == len(UNREADABLE) + 2
    assert unreadable(outcome.lines) == {stored[wrong] for wrong in UNREADABLE if wrong not in READABLE}
    [huge] = [line for line in outcome.lines if line["message_id"] == stored["a huge number"]]
    assert huge["body"] == "text"
    assert "'huge'" in huge["unreadable"]["properties"]["reason"]
    assert '"color": "blue"' in huge["unreadable"]["properties"]["stored"]
    table = jmsql("browse", "orders", "--limit", "100")
    assert table.exit_code == 0
    assert all(message_id in table.text for message_id in stored.values())
    assert "(unreadable)" in table.text


def test_show_shows_it(jmsql: Command, stored: dict[str, str]) -> None:
    for wrong, message_id in stored.items():
        outcome = jmsql("show", message_id)
        assert outcome.exit_code == 0
        assert ("unreadable " in outcome.text) == (wrong not in READABLE)
        assert jmsql("show", message_id, "--json").exit_code == 0


@pytest.mark.parametrize("form", ["json", "full", "text"])
def test_receive_prints_it_as_it_is_stored_and_goes_on(jmsql: Command, stored: dict[str, str], form: str) -> None:
    outcome = jmsql("receive", "orders", "--all", "--format", form)
    assert outcome.exit_code == 0
    assert outcome.text.count("\n") >= len(UNREADABLE) + 2
    assert "last" in outcome.text
    assert "[" * 5000 in outcome.text
    if form == "json":
        assert unreadable(outcome.lines) == {stored[wrong] for wrong in UNREADABLE if wrong not in READABLE}
    if form == "text":
        assert stored["a nested body"] in outcome.errors
    assert jmsql("browse", "orders").exit_code == 1


@pytest.mark.usefixtures("stored")
def test_the_history_lists_it(jmsql: Command) -> None:
    assert jmsql("destination", "set", "orders", "--history").exit_code == 0
    assert jmsql("purge", "orders", "--yes").exit_code == 0
    outcome = jmsql("history", "list", "--limit", "100", "--json")
    assert outcome.exit_code == 0
    assert len(outcome.lines) == len(UNREADABLE) + 2
    assert len(unreadable(outcome.lines)) == len(UNREADABLE) - len(READABLE)
    table = jmsql("history", "list", "--limit", "100")
    assert table.exit_code == 0
    assert "(unreadable)" in table.text


def test_dead_letters_are_listed_and_returned(jmsql: Command, stored: dict[str, str], jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("select jmsql.create_queue('DLQ')")
        connection.execute(
            "update jmsql_internal.message set properties = coalesce(properties, '{}') || '"
            '{"JMS_jmsql_DeadLetterReason": "maximum deliveries", "JMS_jmsql_OriginalDestination": "queue://orders"}'
            "', queue_id = (select queue_id from jmsql_internal.queue where name = 'DLQ')"
        )
    for options in ([], ["--json"]):
        outcome = jmsql("dead-letters", "--limit", "100", *options)
        assert outcome.exit_code == 0
        assert all(message_id in outcome.text for message_id in stored.values())
    assert jmsql("retry").exit_code == 0
    assert jmsql("browse", "orders", "--limit", "100", "--json").text.count("\n") == len(UNREADABLE) + 2
