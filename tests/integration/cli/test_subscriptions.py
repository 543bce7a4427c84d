"""`jmsql subscriptions` and `unsubscribe`, and `jmsql send` to a topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jmsql as library
from jmsql.testing import receive_all, wait_for
from tests.integration.cli.conftest import Command

PRICES = library.Topic("prices")


@pytest.fixture
def session(jmsql_factory: library.ConnectionFactory) -> Iterator[library.Session]:
    """A session of the client `warehouse`."""
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "warehouse"
        connection.start()
        yield connection.create_session()


class TestSubscriptions:
    def test_messages_are_counted_by_state(self, jmsql: Command, session: library.Session) -> None:
        session.create_consumer(PRICES, "region = 'north'", no_local=True)
        session.create_durable_subscriber(PRICES, "audit").close()
        shared = [session.create_shared_durable_consumer(PRICES, "work") for _ in range(2)]
        jmsql("send", "topic://prices", "17.5", "--count", "1200")
        assert shared[0].receive(timeout=60) is not None

        def left_in_work() -> bool:
            _, work, _ = jmsql("subscriptions", "--json").document
            return bool(work["ready"] + work["claimed"] == 1199)

        wait_for(left_in_work)  # the answer to the commit of the receive may be unread
        audit, work, plain = jmsql("subscriptions", "--json").document
        assert (audit["topic"], audit["subscription"], audit["client_id"]) == ("prices", "audit", "warehouse")
        assert (audit["durable"], audit["shared"], audit["consumers"], audit["ready"]) == (True, False, 0, 1200)
        assert (work["durable"], work["shared"], work["consumers"]) == (True, True, 2)
        assert (plain["subscription"], plain["selector"], plain["no_local"]) == (None, "region = 'north'", True)
        assert (plain["durable"], plain["ready"], plain["oldest_sent_at"]) == (False, 0, None)
        lines = jmsql("subscriptions").text.splitlines()
        assert lines[1].split()[:6] == ["prices", "audit", "warehouse", "durable", "0", "1,200"]
        assert "durable, shared" in lines[2]
        assert lines[3].rstrip().endswith("region = 'north'")

    def test_no_subscription(self, jmsql: Command) -> None:
        assert "no subscription" in jmsql("subscriptions").text
        assert jmsql("subscriptions", "--json").document == []


class TestUnsubscribe:
    def test_a_durable_subscription_ends(self, jmsql: Command, session: library.Session) -> None:
        session.create_durable_subscriber(PRICES, "audit").close()
        outcome = jmsql("unsubscribe", "audit", "--client-id", "warehouse")
        assert (outcome.exit_code, outcome.text) == (0, "Ended the durable subscription 'audit'.\n")
        assert jmsql("subscriptions", "--json").document == []

    def test_one_without_a_client_identifier_needs_none(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        with jmsql_factory.create_connection() as connection:
            connection.create_session().create_shared_durable_consumer(PRICES, "work").close()
        assert jmsql("unsubscribe", "work", "--client-id", "warehouse").exit_code == 3
        assert jmsql("unsubscribe", "work").exit_code == 0
        assert jmsql("subscriptions", "--json").document == []

    def test_it_has_no_consumer(self, jmsql: Command, session: library.Session) -> None:
        subscriber = session.create_durable_subscriber(PRICES, "audit")
        outcome = jmsql("unsubscribe", "audit", "--client-id", "warehouse")
        assert outcome.exit_code == 3
        assert "active consumer" in outcome.errors
        jmsql("send", "topic://prices", "17.5")
        assert subscriber.receive(timeout=60) is not None

    def test_it_must_be_there(self, jmsql: Command) -> None:
        outcome = jmsql("unsubscribe", "audit")
        assert outcome.exit_code == 3
        assert outcome.errors == (
            "jmsql: There is no durable subscription 'audit' without a client identifier. `jmsql subscriptions` lists "
            "those there are.\n"
        )


class TestSend:
    def test_each_subscription_of_a_topic_gets_the_message(self, jmsql: Command, session: library.Session) -> None:
        subscribers = [session.create_consumer(PRICES) for _ in range(2)]
        outcome = jmsql("send", "topic://prices", "17.5", "--priority", "7")
        assert outcome.text.startswith("Sent 1 message to topic://prices (ID:")
        for subscriber in subscribers:
            [message] = receive_all(subscriber, timeout=0.1)
            assert (message.get_body(str), message.jms_priority) == ("17.5", 7)

    def test_a_queue_may_be_written_like_a_topic(self, jmsql: Command) -> None:
        document = jmsql("send", "queue://orders", "x", "--json").document
        assert (document["destination"], document["sent"]) == ("queue://orders", 1)
        assert jmsql("send", "orders", "y", "--json").document["destination"] == "queue://orders"
        assert jmsql("receive", "orders", "--all").text == "x\ny\n"

    def test_another_object_than_a_destination_is_refused(self, jmsql: Command) -> None:
        outcome = jmsql("send", "file://orders", "x")
        assert outcome.exit_code == 2
        assert "topic://NAME" in outcome.errors
