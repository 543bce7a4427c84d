"""The older interfaces for queues alone (JMS 1.1 chapter 5)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    Queue,
    Session,
    TextMessage,
    Topic,
    UnsupportedOperationException,
)
from jmsql.connection_consumers import ThreadServerSessionPool
from jmsql.domains import QueueConnection, QueueConnectionFactory, QueueReceiver, QueueSender, QueueSession
from jmsql.testing import receive_all, wait_for

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

TOPIC = Topic("prices")


@pytest.fixture
def queue_factory(factory: ConnectionFactory) -> QueueConnectionFactory:
    return QueueConnectionFactory(factory.url, control_url=factory.control_url)


@pytest.fixture
def queue_connection(queue_factory: QueueConnectionFactory) -> Iterator[QueueConnection]:
    with queue_factory.create_queue_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def queue_session(queue_connection: QueueConnection) -> QueueSession:
    return queue_connection.create_queue_session()


class TestFactory:
    def test_it_makes_connections_for_queues_and_unified_ones(self, queue_factory: QueueConnectionFactory) -> None:
        with queue_factory.create_queue_connection() as connection:
            assert type(connection) is QueueConnection
        with queue_factory.create_connection() as unified:
            assert type(unified) is Connection

    def test_it_is_a_value(self, queue_factory: QueueConnectionFactory) -> None:
        copy = pickle.loads(pickle.dumps(queue_factory))
        assert copy == queue_factory
        assert hash(copy) == hash(queue_factory)
        assert copy != ConnectionFactory(queue_factory.url, control_url=queue_factory.control_url)

    def test_its_client_identifier_is_the_connections(self, queue_factory: QueueConnectionFactory) -> None:
        factory = QueueConnectionFactory(queue_factory.url, client_id="warehouse")
        with factory.create_queue_connection() as connection:
            assert connection.client_id == "warehouse"


class TestConnection:
    def test_a_session_has_the_mode_that_is_asked_for(self, queue_connection: QueueConnection) -> None:
        assert queue_connection.create_queue_session().acknowledge_mode is AcknowledgeMode.AUTO
        assert queue_connection.create_queue_session(True).transacted
        client = queue_connection.create_queue_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        assert client.acknowledge_mode is AcknowledgeMode.CLIENT
        with pytest.raises(JMSException, match="Expected an AcknowledgeMode"):
            queue_connection.create_queue_session(acknowledge_mode=7)  # type: ignore[arg-type]

    def test_its_unified_sessions_know_topics(self, queue_connection: QueueConnection) -> None:
        session = queue_connection.create_session()
        assert type(session) is Session
        assert session.create_topic("prices") == TOPIC

    @pytest.mark.parametrize(
        "method",
        [
            "create_durable_connection_consumer",
            "create_shared_connection_consumer",
            "create_shared_durable_connection_consumer",
        ],
    )
    def test_consumers_of_subscriptions_are_refused(self, queue_connection: QueueConnection, method: str) -> None:
        with pytest.raises(IllegalStateException, match=rf"QueueConnection has no {method}\(\).*create_connection"):
            getattr(queue_connection, method)(TOPIC, "all", None, None, 1)

    def test_its_connection_consumers_are_of_queues(self, queue_connection: QueueConnection, queue: Queue) -> None:
        heard: list[Message] = []
        with ThreadServerSessionPool(queue_connection, 1, lambda session: heard.append) as pool:
            with pytest.raises(InvalidDestinationException, match="Expected a queue"):
                queue_connection.create_connection_consumer(TOPIC, None, pool, 1)
            with queue_connection.create_connection_consumer(queue, None, pool, 1):
                session = queue_connection.create_queue_session()
                session.create_sender(queue).send(session.create_text_message("a"))
                wait_for(lambda: heard)

    def test_a_closed_one_makes_no_session(self, queue_connection: QueueConnection) -> None:
        queue_connection.close()
        with pytest.raises(IllegalStateException, match="closed"):
            queue_connection.create_queue_session()


class TestSendingAndReceiving:
    def test_a_receiver_receives_a_senders_message(self, queue_session: QueueSession, queue: Queue) -> None:
        sender = queue_session.create_sender(queue)
        receiver = queue_session.create_receiver(queue)
        sender.send(queue_session.create_text_message("two kites"))
        message = receiver.receive(timeout=60)
        assert isinstance(message, TextMessage)
        assert message.text == "two kites"
        assert message.jms_destination == queue
        assert (sender.queue, receiver.queue) == (queue, queue)
        assert isinstance(receiver, QueueReceiver)

    def test_a_sender_without_a_queue_is_told_one_with_each_send(
        self, queue_session: QueueSession, queue: Queue
    ) -> None:
        sender = queue_session.create_sender()
        assert sender.queue is None
        sender.send(queue_session.create_message(), queue)
        assert queue_session.create_receiver(queue).receive(timeout=60) is not None
        with pytest.raises(UnsupportedOperationException):
            sender.send(queue_session.create_message())

    def test_a_receiver_has_a_selector(self, queue_session: QueueSession, queue: Queue) -> None:
        receiver = queue_session.create_receiver(queue, "color = 'blue'")
        assert receiver.message_selector == "color = 'blue'"
        sender = queue_session.create_sender(queue)
        for color in ("red", "blue"):
            message = queue_session.create_text_message(color)
            message.set_string_property("color", color)
            sender.send(message)
        assert [message.get_body(str) for message in receive_all(receiver, timeout=0.1)] == ["blue"]

    def test_a_transaction_holds_both(self, queue_connection: QueueConnection, queue: Queue) -> None:
        session = queue_connection.create_queue_session(transacted=True)
        session.create_sender(queue).send(session.create_text_message("x"))
        receiver = queue_connection.create_queue_session().create_receiver(queue)
        assert receiver.receive_no_wait() is None
        session.commit()
        assert receiver.receive(timeout=60) is not None

    def test_the_queue_can_be_browsed(self, queue_session: QueueSession, queue: Queue) -> None:
        queue_session.create_sender(queue).send(queue_session.create_text_message("x"))
        assert [message.get_body(str) for message in queue_session.create_browser(queue)] == ["x"]

    def test_a_temporary_queue_serves_replies(self, queue_session: QueueSession) -> None:
        replies = queue_session.create_temporary_queue()
        queue_session.create_sender(replies).send(queue_session.create_message())
        assert queue_session.create_receiver(replies).receive(timeout=60) is not None

    def test_unified_consumers_of_queues_are_receivers(self, session: Session, queue: Queue) -> None:
        consumer = session.create_consumer(queue)
        assert isinstance(consumer, QueueReceiver)
        assert consumer.queue == queue

    def test_closed_ones_tell_nothing(self, queue_session: QueueSession, queue: Queue) -> None:
        sender, receiver = queue_session.create_sender(queue), queue_session.create_receiver(queue)
        sender.close()
        receiver.close()
        with pytest.raises(IllegalStateException, match="closed"):
            _ = sender.queue
        with pytest.raises(IllegalStateException, match="closed"):
            _ = receiver.queue
        queue_session.close()
        with pytest.raises(IllegalStateException, match="closed"):
            queue_session.create_sender(queue)
        with pytest.raises(IllegalStateException, match="closed"):
            queue_session.create_receiver(queue)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("create_topic", lambda session: session.create_topic("prices")),
        ("create_temporary_topic", lambda session: session.create_temporary_topic()),
        ("create_durable_subscriber", lambda session: session.create_durable_subscriber(TOPIC, "all", no_local=True)),
        ("create_durable_consumer", lambda session: session.create_durable_consumer(TOPIC, "all", "color = 'blue'")),
        ("create_shared_consumer", lambda session: session.create_shared_consumer(TOPIC, "all")),
        ("create_shared_durable_consumer", lambda session: session.create_shared_durable_consumer(TOPIC, "all")),
        ("unsubscribe", lambda session: session.unsubscribe(name="all")),
    ],
)
def test_methods_for_topics_are_refused(
    queue_session: QueueSession, method: str, call: Callable[[QueueSession], object]
) -> None:
    with pytest.raises(IllegalStateException, match=rf"QueueSession has no {method}\(\).*create_connection"):
        call(queue_session)


@pytest.mark.parametrize(
    "use",
    [
        lambda session, message: session.create_consumer(TOPIC),
        lambda session, message: session.create_producer(TOPIC),
        lambda session, message: session.create_producer().send(message, TOPIC),
        lambda session, message: session.create_receiver(TOPIC),
        lambda session, message: session.create_sender(TOPIC),
        lambda session, message: session.create_sender().send(message, TOPIC),
        lambda session, message: session.create_browser(TOPIC),
    ],
)
def test_a_topic_is_no_destination(queue_session: QueueSession, use: Callable[[QueueSession, Message], object]) -> None:
    with pytest.raises(InvalidDestinationException, match="Expected a queue"):
        use(queue_session, queue_session.create_message())


def test_unified_producers_of_a_queue_session_send_to_queues(queue_session: QueueSession, queue: Queue) -> None:
    producer = queue_session.create_producer(queue)
    assert not isinstance(producer, QueueSender)
    producer.send(queue_session.create_message())
    assert queue_session.create_consumer(queue).receive(timeout=60) is not None
