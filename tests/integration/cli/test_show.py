"""One message, whole, wherever it is."""

from __future__ import annotations

import pytest

import jmsql as library
from tests.integration.cli.conftest import Command

ORDERS = library.Queue("orders")


def sent(jmsql: Command, *arguments: str) -> str:
    """Send a message with the command, and return its JMSMessageID."""
    return str(jmsql("send", *arguments, "--json").document["last_message_id"])


def test_headers_properties_body_and_state_are_shown(jmsql: Command) -> None:
    body = "first line\n" + "word " * 100
    message_id = sent(jmsql, "orders", body, "-p", "weight:int=2600", "--priority", "7", "--correlation-id", "c 1")
    sent(jmsql, "orders", "another")
    outcome = jmsql("show", message_id)
    assert outcome.exit_code == 0
    head, _, shown = outcome.text.partition("\n\n")
    assert shown == body + "\n\n"
    for line in (
        "destination: queue://orders",
        "state: ready",
        f"message_id: {message_id}",
        "priority: 7",
        "correlation_id: c 1",
        "delivery_count: 0",
        "property weight (int): 2600",
    ):
        assert line in head.splitlines(), head
    assert jmsql("queues", "--json").document[0]["ready"] == 2


def test_browse_names_the_message(jmsql: Command) -> None:
    message_id = sent(jmsql, "orders", "x")
    assert message_id in jmsql("browse", "orders").text
    for written in (message_id, message_id.removeprefix("ID:"), message_id.upper()):
        [document] = jmsql("show", written, "--json").lines
        assert document["message_id"] == message_id
        assert (document["state"], document["destination"], document["body"]) == ("ready", "queue://orders", "x")


def test_each_subscription_that_holds_it_is_shown(jmsql: Command) -> None:
    jmsql("subscribe", "topic://prices", "audit", "--client-id", "clerk")
    jmsql("subscribe", "topic://prices", "work", "--shared")
    message_id = sent(jmsql, "topic://prices", "17.5")
    jmsql("receive", "topic://prices", "--subscription", "work", "--shared")
    [audit] = jmsql("show", message_id, "--json").lines
    assert (audit["destination"], audit["subscription"], audit["client_id"]) == ("topic://prices", "audit", "clerk")
    text = jmsql("show", message_id).text
    assert "subscription: audit\nclient_id: clerk\n" in text
    assert text.endswith("\n\n17.5\n\n")


def test_delayed_and_claimed_messages_are_found(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
        connection.start()
        producer = session.create_producer(ORDERS)
        claimed = session.create_text_message("claimed")
        producer.send(claimed)
        producer.delivery_delay = 600
        delayed = session.create_text_message("delayed")
        producer.send(delayed)
        assert session.create_consumer(ORDERS).receive(timeout=60) is not None
        states = [jmsql("show", str(each.jms_message_id), "--json").lines[0]["state"] for each in (claimed, delayed)]
    assert states == ["claimed", "delayed"]


def test_a_dead_letter_says_where_it_comes_from(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    jmsql("destination", "create", "orders")
    jmsql("destination", "set", "orders", "--maximum-deliveries", "1")
    message_id = sent(jmsql, "orders", "poison")
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        connection.start()
        consumer = session.create_consumer(ORDERS)
        assert consumer.receive(timeout=60) is not None
        session.rollback()
        assert consumer.receive(timeout=0) is None
    [letter] = jmsql("show", message_id, "--json").lines
    assert letter["destination"] == "queue://DLQ"
    assert letter["properties"]["JMS_jmsql_OriginalDestination"] == "queue://orders"
    assert "property JMS_jmsql_OriginalDestination (String): queue://orders" in jmsql("show", message_id).text


def test_messages_that_have_left_are_shown_from_the_history(jmsql: Command) -> None:
    jmsql("destination", "create", "orders")
    jmsql("destination", "set", "orders", "--history")
    message_id = sent(jmsql, "orders", "done")
    jmsql("receive", "orders")
    [past] = jmsql("show", message_id, "--json").lines
    assert (past["outcome"], past["body"]) == ("acknowledged", "done")
    assert "outcome: acknowledged" in jmsql("show", message_id).text


@pytest.mark.parametrize("message_id", ["ID:7d3a1c5e-3f0b-4c55-9a35-2a5b6c7d8e9f", "ID:not-one", "%s"])
def test_one_that_is_not_there(jmsql: Command, message_id: str) -> None:
    outcome = jmsql("show", message_id)
    assert outcome.exit_code == 1
    assert outcome.text == ""
    assert outcome.errors == (
        f"There is no message {message_id} in a queue or a subscription, and none in the history.\n"
    )
