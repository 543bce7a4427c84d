"""Global transactions with the older interfaces, for queues alone and for topics alone."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from jmsql import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    Queue,
    Session,
    Topic,
    TransactionInProgressException,
)
from jmsql.domains import (
    QueueConnection,
    QueueReceiver,
    QueueSender,
    QueueSession,
    TopicConnection,
    TopicPublisher,
    TopicSession,
    TopicSubscriber,
)
from jmsql.xa import (
    XAConnection,
    XAQueueConnection,
    XAQueueConnectionFactory,
    XAQueueSession,
    XASession,
    XATopicConnection,
    XATopicConnectionFactory,
    XATopicSession,
)
from tests.integration.two_phase_commit.global_transactions import XID, messages_there, texts_there
from tests.texts import receive_texts, send_texts

pytestmark = pytest.mark.usefixtures("xa_session")  # which says why where the server prepares no transaction

PRICES = Topic("prices")


@pytest.fixture
def queue_factory(factory: ConnectionFactory) -> XAQueueConnectionFactory:
    return XAQueueConnectionFactory(factory.url, control_url=factory.control_url)


@pytest.fixture
def topic_factory(factory: ConnectionFactory) -> XATopicConnectionFactory:
    return XATopicConnectionFactory(factory.url, client_id="broker", control_url=factory.control_url)


class TestQueues:
    def test_a_receipt_and_a_send_are_prepared_together(
        self, queue_factory: XAQueueConnectionFactory, others: Session, queue: Queue
    ) -> None:
        replies = Queue("replies")
        send_texts(others, queue, "a")
        with queue_factory.create_xa_queue_connection() as connection:
            connection.start()
            session = connection.create_xa_queue_session()
            receiver, sender = session.create_receiver(queue), session.create_sender(replies)
            assert isinstance(receiver, QueueReceiver)
            assert isinstance(sender, QueueSender)
            session.tpc_begin(XID)
            assert receive_texts(receiver, 1) == ["a"]
            sender.send(session.create_text_message("A"))
            session.tpc_prepare()
            assert session.tpc_recover() == [XID]
            assert texts_there(others, replies) == []
            session.tpc_commit()
        assert texts_there(others, replies) == ["A"]
        assert texts_there(others, queue) == []

    def test_types_are_those_of_both_kinds(self, queue_factory: XAQueueConnectionFactory) -> None:
        with queue_factory.create_xa_queue_connection() as connection:
            assert isinstance(connection, XAQueueConnection)
            assert isinstance(connection, XAConnection)
            assert isinstance(connection, QueueConnection)
            session = connection.create_xa_queue_session()
            assert isinstance(session, XAQueueSession)
            assert isinstance(session, XASession)
            assert isinstance(session, QueueSession)
            assert type(connection.create_xa_session()) is XASession
            assert type(connection.create_queue_session()) is QueueSession
        with queue_factory.create_queue_connection() as plain:
            assert type(plain) is QueueConnection
        with queue_factory.create_xa_connection() as unified:
            assert type(unified) is XAConnection
        with queue_factory.create_connection() as unified_plain:
            assert type(unified_plain) is Connection

    @pytest.mark.parametrize(
        "call",
        [
            lambda session: session.create_topic("prices"),
            lambda session: session.create_temporary_topic(),
            lambda session: session.create_durable_subscriber(PRICES, "all"),
            lambda session: session.unsubscribe("all"),
        ],
    )
    def test_methods_for_topics_are_refused(
        self, queue_factory: XAQueueConnectionFactory, call: Callable[[XAQueueSession], object]
    ) -> None:
        with queue_factory.create_xa_queue_connection() as connection:
            session = connection.create_xa_queue_session()
            with pytest.raises(IllegalStateException, match="XAQueueSession has no"):
                call(session)
            with pytest.raises(InvalidDestinationException, match="Expected a queue"):
                session.create_consumer(PRICES)
            with pytest.raises(IllegalStateException, match="XAQueueConnection has no"):
                connection.create_durable_connection_consumer(PRICES, "all", None, None, 1)

    def test_a_factory_is_a_value(self, queue_factory: XAQueueConnectionFactory) -> None:
        copy = pickle.loads(pickle.dumps(queue_factory))
        assert copy == queue_factory
        assert type(copy) is XAQueueConnectionFactory


class TestTopics:
    def test_publications_reach_subscribers_with_the_second_phase(
        self, topic_factory: XATopicConnectionFactory, others: Session
    ) -> None:
        consumer = others.create_consumer(PRICES)
        with topic_factory.create_xa_topic_connection() as connection:
            connection.start()
            session = connection.create_xa_topic_session()
            publisher, subscriber = session.create_publisher(PRICES), session.create_durable_subscriber(PRICES, "all")
            assert isinstance(publisher, TopicPublisher)
            assert isinstance(subscriber, TopicSubscriber)
            session.tpc_begin(XID)
            publisher.publish(session.create_text_message("17.5"))
            session.tpc_prepare()
            assert consumer.receive(timeout=0) is None
            session.tpc_commit()
            assert receive_texts(consumer, 1) == ["17.5"]
            session.tpc_begin(XID)
            assert receive_texts(subscriber, 1) == ["17.5"]
            session.tpc_rollback()
            again = subscriber.receive(timeout=60)
            assert again is not None
            assert again.jms_redelivered
            session.commit()

    def test_types_are_those_of_both_kinds(self, topic_factory: XATopicConnectionFactory) -> None:
        with topic_factory.create_xa_topic_connection() as connection:
            assert isinstance(connection, XATopicConnection)
            assert isinstance(connection, XAConnection)
            assert isinstance(connection, TopicConnection)
            session = connection.create_xa_topic_session()
            assert isinstance(session, XATopicSession)
            assert isinstance(session, XASession)
            assert isinstance(session, TopicSession)
            assert type(connection.create_topic_session()) is TopicSession
            with pytest.raises(IllegalStateException, match="XATopicSession has no create_browser"):
                session.create_browser(Queue("orders"))
            with pytest.raises(InvalidDestinationException, match="Expected a topic"):
                session.create_producer(Queue("orders"))


def test_commit_is_refused_in_a_global_transaction(
    queue_factory: XAQueueConnectionFactory, others: Session, queue: Queue
) -> None:
    with queue_factory.create_xa_queue_connection() as connection:
        session = connection.create_xa_queue_session()
        session.tpc_begin(XID)
        for end in (session.commit, session.rollback):
            with pytest.raises(TransactionInProgressException):
                end()
        session.tpc_rollback()
        session.create_sender(queue).send(session.create_text_message("own"))
        session.commit()
    assert [message.get_body(str) for message in messages_there(others, queue)] == ["own"]
