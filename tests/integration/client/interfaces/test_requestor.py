"""Requests and replies (JMS 1.1 chapters 5.10 and 6.13)."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    IllegalStateException,
    InvalidDestinationException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
    Topic,
)
from jmsql.domains import QueueConnectionFactory, QueueRequestor, TopicConnectionFactory, TopicRequestor
from jmsql.testing import wait_for

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

TOPIC = Topic("questions")


@pytest.fixture
def requestor(session: Session, queue: Queue) -> QueueRequestor:
    return QueueRequestor(session, queue)


def answer(session: Session, request: Message, text: str | None = None, *, correlated: bool = True) -> None:
    """Reply to a request, with its text in capitals if no other is given."""
    reply = session.create_text_message(text or (request.get_body(str) or "").upper())
    if correlated:
        reply.jms_correlation_id = request.jms_correlation_id or request.jms_message_id
    session.create_producer().send(reply, request.jms_reply_to)


def answer_all(session: Session, consumer: MessageConsumer) -> None:
    """Reply to all requests, as they come."""
    consumer.message_listener = lambda request: answer(session, request)


def text(message: Message | None) -> str:
    assert isinstance(message, TextMessage)
    return message.text or ""


def test_a_reply_comes_from_a_receiver_of_the_queue(
    requestor: QueueRequestor, session: Session, others: Session, queue: Queue
) -> None:
    answer_all(others, others.create_consumer(queue))
    for question in ("why", "when"):
        request = session.create_text_message(question)
        assert text(requestor.request(request, timeout=60)) == question.upper()
        assert isinstance(request.jms_reply_to, TemporaryQueue)


def test_a_reply_comes_from_a_subscriber_of_the_topic(session: Session, others: Session) -> None:
    answer_all(others, others.create_consumer(TOPIC))
    with TopicRequestor(session, TOPIC) as requestor:
        request = session.create_text_message("why")
        assert text(requestor.request(request)) == "WHY"
        assert isinstance(request.jms_reply_to, TemporaryTopic)


def test_sessions_of_the_older_interfaces_serve(jmsql_clean_url: str, others: Session, queue: Queue) -> None:
    answer_all(others, others.create_consumer(queue))
    with QueueConnectionFactory(jmsql_clean_url).create_queue_connection() as connection:
        connection.start()
        session = connection.create_queue_session()
        assert text(QueueRequestor(session, queue).request(session.create_text_message("why"), 60)) == "WHY"
    answer_all(others, others.create_consumer(TOPIC))
    with TopicConnectionFactory(jmsql_clean_url).create_topic_connection() as connection:
        connection.start()
        publishing = connection.create_topic_session()
        assert text(TopicRequestor(publishing, TOPIC).request(publishing.create_text_message("why"), 60)) == "WHY"


def test_without_a_reply_in_time_there_is_none(requestor: QueueRequestor, session: Session) -> None:
    assert requestor.request(session.create_text_message("why"), timeout=0.05) is None


def test_a_late_reply_to_an_earlier_request_is_dropped(
    requestor: QueueRequestor, session: Session, others: Session, queue: Queue
) -> None:
    assert requestor.request(session.create_text_message("why"), timeout=0) is None
    consumer = others.create_consumer(queue)
    late = consumer.receive(timeout=60)
    assert late is not None
    answer(others, late, "late")
    answer_all(others, consumer)
    assert text(requestor.request(session.create_text_message("when"), timeout=60)) == "WHEN"


def test_dropping_replies_does_not_prolong_the_wait(
    requestor: QueueRequestor, session: Session, others: Session, queue: Queue
) -> None:
    assert requestor.request(session.create_text_message("why"), timeout=0) is None
    late = others.create_consumer(queue).receive(timeout=60)
    assert late is not None
    answer(others, late, "late")
    assert requestor.request(session.create_text_message("when"), timeout=0.2) is None


def test_the_reply_may_copy_the_correlation_id_or_have_none(
    requestor: QueueRequestor, session: Session, others: Session, queue: Queue
) -> None:
    consumer = others.create_consumer(queue)
    consumer.message_listener = lambda request: answer(
        others, request, correlated=request.jms_correlation_id is not None
    )
    request = session.create_text_message("why")
    request.jms_correlation_id = "question 1"
    assert text(requestor.request(request, timeout=60)) == "WHY"
    assert text(requestor.request(session.create_text_message("when"), timeout=60)) == "WHEN"


class TestClosing:
    def test_the_session_is_closed_and_the_temporary_queue_deleted(
        self, requestor: QueueRequestor, session: Session, others: Session
    ) -> None:
        request = session.create_text_message("why")
        requestor.request(request, timeout=0)
        requestor.close()
        requestor.close()
        with pytest.raises(IllegalStateException, match="closed"):
            session.create_message()
        with pytest.raises(IllegalStateException, match="closed"):
            requestor.request(request)
        with pytest.raises(InvalidDestinationException, match="gone"):
            others.create_producer(request.jms_reply_to)

    def test_a_reply_that_was_not_acknowledged_is_gone_with_it(
        self, connection: Connection, others: Session, queue: Queue
    ) -> None:
        answer_all(others, others.create_consumer(queue))
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        with QueueRequestor(session, queue) as requestor:
            reply = requestor.request(session.create_text_message("why"), timeout=60)
            assert text(reply) == "WHY"

    @pytest.mark.parametrize("first", ["session", "connection"])
    def test_its_session_or_connection_may_be_closed_before_it(
        self, connection: Connection, session: Session, queue: Queue, first: str, database: psycopg.Connection
    ) -> None:
        requestor = QueueRequestor(session, queue)
        (session if first == "session" else connection).close()
        requestor.close()
        names = "select name from jmsql_internal.queue where name like 'temporary-%'"
        wait_for(lambda: database.execute(names).fetchall() == [])


class TestRefusals:
    def test_a_transacted_session(self, connection: Connection, queue: Queue) -> None:
        session = connection.create_session(transacted=True)
        with pytest.raises(IllegalStateException, match="without transactions"):
            QueueRequestor(session, queue)
        with pytest.raises(IllegalStateException, match="without transactions"):
            TopicRequestor(session, TOPIC)

    def test_a_closed_session(self, session: Session, queue: Queue) -> None:
        session.close()
        with pytest.raises(IllegalStateException, match="closed"):
            QueueRequestor(session, queue)

    @pytest.mark.parametrize("destination", [TOPIC, None, "topic://prices"])
    def test_another_object_than_a_queue_is_refused(self, session: Session, destination: object) -> None:
        with pytest.raises(InvalidDestinationException, match="Expected a queue"):
            QueueRequestor(session, destination)  # type: ignore[arg-type]

    @pytest.mark.parametrize("destination", [Queue("orders"), None, "queue://orders"])
    def test_another_object_than_a_topic_is_refused(self, session: Session, destination: object) -> None:
        with pytest.raises(InvalidDestinationException, match="Expected a topic"):
            TopicRequestor(session, destination)  # type: ignore[arg-type]

    def test_a_session_of_the_other_domain(self, jmsql_clean_url: str, queue: Queue) -> None:
        with (
            TopicConnectionFactory(jmsql_clean_url).create_topic_connection() as connection,
            pytest.raises(IllegalStateException, match="create_temporary_queue"),
        ):
            QueueRequestor(connection.create_topic_session(), queue)


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection
