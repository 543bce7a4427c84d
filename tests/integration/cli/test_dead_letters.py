"""`jmsql dead-letters`, `retry`, and the redelivery settings of `destination set`."""

from __future__ import annotations

import pytest

import jmsql as library
from tests.integration.cli.conftest import Command


@pytest.fixture
def dead(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    """Two dead letters, "a" and "b", that come from a queue which delivers each message once."""
    jmsql("destination", "create", "orders")
    assert jmsql("destination", "set", "orders", "--maximum-deliveries", "1").exit_code == 0
    for text in ("a", "b"):
        jmsql("send", "orders", text)
    with jmsql_factory.create_context(session_mode=library.AcknowledgeMode.TRANSACTED) as context:
        consumer = context.create_consumer(library.Queue("orders"))
        for text in ("a", "b"):
            assert consumer.receive_body(str, timeout=60) == text
            context.rollback(ValueError(f"no {text}"))


@pytest.mark.usefixtures("dead")
def test_dead_letters_are_listed_with_their_reasons(jmsql: Command) -> None:
    last, first = jmsql("dead-letters", "--json").document
    assert (last["body"], first["body"]) == ("b", "a")
    assert first["original_destination"] == "queue://orders"
    assert first["reason"] == "maximum deliveries"
    assert first["last_error"] == "ValueError: no a\n"
    header, *rows = jmsql("dead-letters", "DLQ").text.splitlines()
    assert header.split()[:4] == ["queue", "from", "reason", "deliveries"]
    assert [row.split()[:2] for row in rows] == [["DLQ", "queue://orders"]] * 2
    assert "ValueError: no b" in rows[0]
    chosen = jmsql("dead-letters", "--selector", "JMS_jmsql_LastError LIKE '%no a%'", "--json").document
    assert [each["body"] for each in chosen] == ["a"]
    assert jmsql("dead-letters", "nowhere").exit_code == 3
    assert jmsql("dead-letters", "--selector", "1 +").exit_code == 2


def test_there_may_be_none(jmsql: Command) -> None:
    assert jmsql("dead-letters", "--json").document == []
    assert "no dead letter" in jmsql("dead-letters").text
    assert jmsql("retry").exit_code == 3, "there is no queue DLQ yet"


@pytest.mark.usefixtures("dead")
def test_dead_letters_are_moved_back(jmsql: Command) -> None:
    done = jmsql("retry", "DLQ", "--selector", "JMS_jmsql_LastError LIKE '%no b%'", "--json")
    assert (done.exit_code, done.document) == (
        0,
        {"queue": "DLQ", "returned": {"queue://orders": 1}, "left": 0, "gone": {}},
    )
    assert jmsql("retry").text == "1 message went back to queue://orders.\n"
    again = jmsql("retry")
    assert (again.exit_code, again.text) == (1, "There is no such dead letter in the queue 'DLQ'.\n")
    assert [message["body"] for message in jmsql("browse", "orders", "--json").lines] == ["b", "a"]


@pytest.mark.usefixtures("dead")
def test_dead_letters_without_a_way_back_stay(jmsql: Command) -> None:
    jmsql("destination", "delete", "orders", "--yes")
    stayed = jmsql("retry")
    assert stayed.exit_code == 1
    assert stayed.text.startswith("2 messages stay in 'DLQ':")
    jmsql("purge", "DLQ", "--selector", "JMS_jmsql_LastError LIKE '%no b%'", "--yes")
    assert jmsql("retry").text.startswith("1 message stays in 'DLQ':")


def test_redelivery_is_set_and_shown(jmsql: Command) -> None:
    for queue in ("orders", "hopeless"):
        jmsql("destination", "create", queue)
    options = {
        "maximum_deliveries": 5,
        "redelivery_delay": 1.5,
        "redelivery_multiplier": 2.0,
        "maximum_redelivery_delay": 60.0,
        "redelivery_jitter": 0.1,
        "dead_letter_queue": "hopeless",
        "visibility_timeout": 30.0,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    document = jmsql("destination", "set", "orders", *arguments, "--json").document
    assert document["settings"] == options
    assert jmsql("destination", "set", "orders", "--maximum-deliveries", "0").exit_code == 2
    refused = jmsql("destination", "set", "hopeless", "--dead-letter-queue", "orders")
    assert refused.exit_code == 3
    assert "dead letters would go round" in refused.errors
    reset = jmsql("destination", "set", "orders", "--reset", "maximum-deliveries", "--json").document
    assert "maximum_deliveries" not in reset["settings"]


@pytest.mark.usefixtures("dead")
def test_single_dead_letters_are_moved_back_by_their_identifiers(jmsql: Command) -> None:
    last, first = (each["message_id"] for each in jmsql("dead-letters", "--json").document)
    assert jmsql("retry", first).text == "1 message went back to queue://orders.\n"
    again = jmsql("retry", first, "ID:it's not there")
    assert (again.exit_code, again.text) == (1, "There is no such dead letter in the queue 'DLQ'.\n")
    assert [each["message_id"] for each in jmsql("dead-letters", "--json").document] == [last]
    assert jmsql("retry", "DLQ", last, first, "--json").document["returned"] == {"queue://orders": 1}
    refused = jmsql("retry", "DLQ", "orders")
    assert (refused.exit_code, "Expected one queue" in refused.errors) == (2, True)


@pytest.mark.usefixtures("dead")
def test_identifiers_alone_are_found_in_every_dead_letter_queue(jmsql: Command) -> None:
    jmsql("destination", "create", "hopeless")
    jmsql("move", "DLQ", "hopeless", "--limit", "1")
    letters = jmsql("dead-letters", "--json").document
    assert {each["queue"] for each in letters} == {"DLQ", "hopeless"}
    moved = jmsql("retry", *(each["message_id"] for each in letters))
    assert (moved.exit_code, moved.text) == (0, "2 messages went back to queue://orders.\n")
    assert jmsql("dead-letters", "--json").document == []


@pytest.mark.usefixtures("dead")
def test_dead_letters_are_chosen_by_their_origin(jmsql: Command) -> None:
    assert len(jmsql("dead-letters", "--from", "orders", "--json").document) == 2
    assert jmsql("dead-letters", "--from", "topic://orders", "--json").document == []
    assert jmsql("retry", "--from", "elsewhere").exit_code == 1
    assert jmsql("retry", "--from", "orders", "--limit", "1").text == "1 message went back to queue://orders.\n"


@pytest.mark.parametrize("command", ["dead-letters", "retry"])
@pytest.mark.usefixtures("dead")
def test_the_queue_of_origin_leads_to_the_dead_letter_queue(jmsql: Command, command: str) -> None:
    outcome = jmsql(command, "orders")
    assert outcome.text == "There is no such dead letter in the queue 'orders'.\n"
    assert outcome.errors == f"Dead letters from 'orders' are in 'DLQ': `jmsql {command} DLQ --from orders`.\n"
    assert jmsql(command, "DLQ", "--from", "orders").exit_code == 0
