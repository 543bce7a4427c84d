"""The older interfaces for topics alone (JMS 1.1 chapter 6)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    Message,
    Queue,
    Session,
    TextMessage,
    Topic,
    UnsupportedOperationException,
)
from jmsql.connection_consumers import ThreadServerSessionPool
from jmsql.domains import TopicConnection, TopicConnectionFactory, TopicSession, TopicSubscriber
from jmsql.testing import receive_all, wait_for

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

QUEUE = Queue("orders")


@pytest.fixture
def topic() -> Topic:
    return Topic("prices")


@pytest.fixture
def topic_factory(factory: ConnectionFactory) -> TopicConnectionFactory:
    return TopicConnectionFactory(factory.url, client_id="broker", control_url=factory.control_url)


@pytest.fixture
def topic_connection(topic_factory: TopicConnectionFactory) -> Iterator[TopicConnection]:
    with topic_factory.create_topic_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def topic_session(topic_connection: TopicConnection) -> TopicSession:
    return topic_connection.create_topic_session()


def texts(subscriber: TopicSubscriber) -> list[str]:
    return [message.get_body(str) or "" for message in receive_all(subscriber, timeout=0.1)]


class TestFactory:
    def test_it_makes_connections_for_topics_and_unified_ones(self, topic_factory: TopicConnectionFactory) -> None:
        with topic_factory.create_topic_connection() as connection:
            assert type(connection) is TopicConnection
            assert connection.client_id == "broker"
        with topic_factory.create_connection() as unified:
            assert type(unified) is Connection

    def test_it_is_a_value(self, topic_factory: TopicConnectionFactory) -> None:
        copy = pickle.loads(pickle.dumps(topic_factory))
        assert copy == topic_factory
        assert hash(copy) == hash(topic_factory)


def test_a_session_has_the_mode_that_is_asked_for(topic_connection: TopicConnection) -> None:
    assert topic_connection.create_topic_session(True).transacted
    session = topic_connection.create_topic_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)
    assert session.acknowledge_mode is AcknowledgeMode.DUPS_OK
    assert type(topic_connection.create_session()) is Session


def test_its_connection_consumers_are_of_topics(topic_connection: TopicConnection, topic: Topic) -> None:
    heard: list[Message] = []
    with ThreadServerSessionPool(topic_connection, 1, lambda session: heard.append) as pool:
        with pytest.raises(InvalidDestinationException, match="Expected a topic"):
            topic_connection.create_connection_consumer(QUEUE, None, pool, 1)
        session = topic_connection.create_topic_session()
        with (
            topic_connection.create_connection_consumer(topic, "color = 'blue'", pool, 1),
            topic_connection.create_durable_connection_consumer(topic, "all", None, pool, 1),
        ):
            session.create_publisher(topic).publish(session.create_text_message("a"))
            wait_for(lambda: heard)
        session.unsubscribe("all")
    assert [message.get_body(str) for message in heard] == ["a"]


class TestPublishing:
    def test_every_subscriber_gets_each_published_message(self, topic_session: TopicSession, topic: Topic) -> None:
        subscribers = [topic_session.create_subscriber(topic) for _ in range(2)]
        publisher = topic_session.create_publisher(topic)
        publisher.publish(topic_session.create_text_message("17.5"))
        for subscriber in subscribers:
            message = subscriber.receive(timeout=60)
            assert isinstance(message, TextMessage)
            assert (message.text, message.jms_destination) == ("17.5", topic)
            assert subscriber.topic == topic
        assert publisher.topic == topic

    def test_a_publisher_without_a_topic_is_told_one_with_each_message(
        self, topic_session: TopicSession, topic: Topic
    ) -> None:
        subscriber = topic_session.create_subscriber(topic)
        publisher = topic_session.create_publisher()
        assert publisher.topic is None
        publisher.publish(topic_session.create_text_message("17.5"), topic)
        assert texts(subscriber) == ["17.5"]
        with pytest.raises(UnsupportedOperationException):
            publisher.publish(topic_session.create_message())

    def test_a_message_can_have_its_own_priority_mode_and_time_to_live(
        self, topic_session: TopicSession, topic: Topic
    ) -> None:
        subscriber = topic_session.create_subscriber(topic)
        published = topic_session.create_message()
        topic_session.create_publisher(topic).publish(
            published, delivery_mode=DeliveryMode.NON_PERSISTENT, priority=7, time_to_live=60
        )
        received = subscriber.receive(timeout=60)
        assert received is not None
        assert (received.jms_priority, received.jms_delivery_mode) == (7, DeliveryMode.NON_PERSISTENT)
        assert received.jms_expiration == published.jms_expiration == published.jms_timestamp + 60_000

    def test_a_closed_publisher_publishes_no_more(self, topic_session: TopicSession, topic: Topic) -> None:
        publisher = topic_session.create_publisher(topic)
        publisher.close()
        with pytest.raises(IllegalStateException, match="closed"):
            publisher.publish(topic_session.create_message())
        with pytest.raises(IllegalStateException, match="closed"):
            _ = publisher.topic


class TestSubscribing:
    def test_a_selector_chooses(self, topic_session: TopicSession, topic: Topic) -> None:
        subscriber = topic_session.create_subscriber(topic, "JMSPriority > 4")
        assert subscriber.message_selector == "JMSPriority > 4"
        publisher = topic_session.create_publisher(topic)
        publisher.publish(topic_session.create_text_message("low"), priority=1)
        publisher.publish(topic_session.create_text_message("high"), priority=9)
        assert texts(subscriber) == ["high"]

    def test_the_connections_own_publications_can_be_left_out(
        self, topic_session: TopicSession, others: Session, topic: Topic
    ) -> None:
        everything = topic_session.create_subscriber(topic)
        from_others = topic_session.create_subscriber(topic, no_local=True)
        assert (everything.no_local, from_others.no_local) == (False, True)
        topic_session.create_publisher(topic).publish(topic_session.create_text_message("own"))
        others.create_producer(topic).send(others.create_text_message("theirs"))
        assert texts(everything) == ["own", "theirs"]
        assert texts(from_others) == ["theirs"]

    def test_a_durable_subscriber_gets_the_messages_of_its_absence(
        self, topic_session: TopicSession, topic: Topic
    ) -> None:
        topic_session.create_durable_subscriber(topic, "all").close()
        topic_session.create_publisher(topic).publish(topic_session.create_text_message("17.5"))
        with topic_session.create_durable_subscriber(topic, "all") as subscriber:
            assert texts(subscriber) == ["17.5"]
        topic_session.unsubscribe("all")
        with pytest.raises(InvalidDestinationException, match="no durable subscription"):
            topic_session.unsubscribe("all")

    def test_subscriptions_can_be_shared(self, topic_session: TopicSession, topic: Topic) -> None:
        consumers = [topic_session.create_shared_durable_consumer(topic, "work") for _ in range(2)]
        topic_session.create_publisher(topic).publish(topic_session.create_text_message("17.5"))
        assert sum(len(receive_all(consumer, timeout=0.1)) for consumer in consumers) == 1

    def test_unified_sessions_make_subscribers_too(self, session: Session, topic: Topic) -> None:
        consumer = session.create_consumer(topic, no_local=True)
        assert isinstance(consumer, TopicSubscriber)
        assert (consumer.topic, consumer.no_local) == (topic, True)

    def test_a_closed_subscriber_tells_nothing(self, topic_session: TopicSession, topic: Topic) -> None:
        subscriber = topic_session.create_subscriber(topic)
        subscriber.close()
        with pytest.raises(IllegalStateException, match="closed"):
            _ = subscriber.topic
        with pytest.raises(IllegalStateException, match="closed"):
            _ = subscriber.no_local


def test_closing_a_consumer_after_its_session_leaves_the_others_of_its_subscription_alone(
    topic_connection: TopicConnection, topic: Topic
) -> None:
    staying = topic_connection.create_topic_session()
    remaining = staying.create_shared_consumer(topic, "work")
    leaving = topic_connection.create_topic_session()
    consumer = leaving.create_shared_consumer(topic, "work")
    leaving.close()
    consumer.close()
    staying.create_publisher(topic).publish(staying.create_text_message("17.5"))
    message = remaining.receive(timeout=60)
    assert message is not None
    assert message.get_body(str) == "17.5"


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("create_queue", lambda session: session.create_queue("orders")),
        ("create_temporary_queue", lambda session: session.create_temporary_queue()),
        ("create_browser", lambda session: session.create_browser(QUEUE, "color = 'blue'")),
    ],
)
def test_methods_for_queues_are_refused(
    topic_session: TopicSession, method: str, call: Callable[[TopicSession], object]
) -> None:
    with pytest.raises(IllegalStateException, match=rf"TopicSession has no {method}\(\).*create_connection"):
        call(topic_session)


@pytest.mark.parametrize(
    "use",
    [
        lambda session, message: session.create_consumer(QUEUE),
        lambda session, message: session.create_producer(QUEUE),
        lambda session, message: session.create_producer().send(message, QUEUE),
        lambda session, message: session.create_subscriber(QUEUE),
        lambda session, message: session.create_durable_subscriber(QUEUE, "all"),
        lambda session, message: session.create_publisher(QUEUE),
        lambda session, message: session.create_publisher().publish(message, QUEUE),
    ],
)
def test_a_queue_is_no_destination(topic_session: TopicSession, use: Callable[[TopicSession, Message], object]) -> None:
    with pytest.raises(InvalidDestinationException, match="Expected a topic"):
        use(topic_session, topic_session.create_message())


@pytest.mark.parametrize("client_id", ["Zürich", "a\0b", "half \ud800", "\ufffe"])
def test_a_durable_subscription_belongs_to_any_client_identifier(
    jmsql_factory: ConnectionFactory, topic: Topic, client_id: str
) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.client_id = client_id
        connection.start()
        session = connection.create_session()
        with session.create_durable_subscriber(topic, "theirs", no_local=True) as subscriber:
            session.create_producer(topic).send(session.create_text_message("own"))
            assert texts(subscriber) == []
        session.unsubscribe("theirs")
