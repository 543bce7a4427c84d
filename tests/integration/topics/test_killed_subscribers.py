"""What belongs to a client that is killed goes with it, without anybody's help."""

from __future__ import annotations

import pytest

from jmsql import InvalidDestinationException, Session, TemporaryQueue, TemporaryTopic, Topic
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.integration.topics.remote_client import remote_client
from tests.integration.topics.rows import count, wait_until_empty
from tests.texts import send_texts


def test_subscriptions_that_are_not_durable_go_with_their_messages(
    jmsql_clean_url: str, others: Session, server: Server, topic: Topic
) -> None:
    with remote_client(jmsql_clean_url) as client:
        client.subscribe(topic)
        client.subscribe(topic, "weight > 1")
        client.share(topic, "shared")
        send_texts(others, topic, "a", "b", "c")
        assert client.receive(2) == ["a", "b"]
        assert count(server, "subscription") == 3
        client.kill()
        wait_until_empty(server, "subscriber", "subscription", "message", "delivery", "queue")
        send_texts(others, topic, "d")
        assert count(server, "message") == 0


def test_temporary_destinations_go_with_their_messages(jmsql_clean_url: str, others: Session, server: Server) -> None:
    with remote_client(jmsql_clean_url) as client:
        queue_name, topic_name = client.temporary_destinations()
        queue, topic = TemporaryQueue(queue_name), TemporaryTopic(topic_name)
        send_texts(others, queue, "a")
        client.kill()
        wait_until_empty(server, "topic", "message", "queue")
    for destination in (queue, topic):
        with pytest.raises(InvalidDestinationException):
            send_texts(others, destination, "b")


def test_durable_subscription_goes_on_collecting(
    jmsql_clean_url: str, others: Session, server: Server, topic: Topic
) -> None:
    with remote_client(jmsql_clean_url, "reader") as client:
        assert client.subscribe_durably(topic, "subscription") is None
        client.kill()
    send_texts(others, topic, "a")
    wait_until_empty(server, "subscriber")
    wait_for(lambda: server.rows("select durable, ready, consumers from jmsql.subscriptions") == [(True, 1, 0)])
    assert receive_all(others.create_consumer(topic)) == []
