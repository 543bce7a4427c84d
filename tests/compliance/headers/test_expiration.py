"""Messages that expire: JMS 1.1 chapter 3.4.9."""

from __future__ import annotations

import time

import pytest
import sqlalchemy

from jmsql import AcknowledgeMode, Connection, MessageConsumer, MessageProducer, Queue, Session, Topic
from jmsql.testing import receive_all, wait_for
from tests.texts import receive_texts, texts_of

TOPIC = Topic("compliance")
SHORT = 0.05
"""Seconds: long enough to be sent, short enough to be waited for."""

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))

pytestmark = [pytest.mark.maintained, pytest.mark.requirement("message.expiration.expired")]


def session_of(connection: Connection, mode: AcknowledgeMode) -> Session:
    return connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)


def send(producer: MessageProducer, session: Session, text: str, time_to_live: float = 0) -> int:
    message = session.create_text_message(text)
    producer.send(message, time_to_live=time_to_live)
    return message.jms_expiration


def wait_until(milliseconds: int) -> None:
    wait_for(lambda: time.time_ns() // 1_000_000 > milliseconds)


@pytest.mark.requirement("message.expiration.zero")
@pytest.mark.case("expiration-01")
@MODES
def test_of_two_groups_only_the_one_that_lives_for_ever_is_received(
    connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    producer = session.create_producer(queue)
    expirations = []
    for number in range(10):
        send(producer, session, f"for ever {number}")
        expirations.append(send(producer, session, f"short {number}", SHORT))
    wait_until(max(expirations))
    received = receive_all(session_of(connection, mode).create_consumer(queue))
    assert texts_of(received) == [f"for ever {number}" for number in range(10)]
    assert {message.jms_expiration for message in received} == {0}


@pytest.mark.requirement("message.expiration.zero")
@pytest.mark.case("expiration-04")
@MODES
@pytest.mark.parametrize("first", ["short", "for ever"])
def test_of_two_messages_only_the_one_that_lives_for_ever_is_received(
    connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode, first: str
) -> None:
    producer = session.create_producer(queue)
    texts = ["short", "for ever"]
    expirations = [
        send(producer, session, text, SHORT if text == "short" else 0)
        for text in sorted(texts, key=lambda text: text != first)
    ]
    wait_until(max(expirations))
    consumer = session_of(connection, mode).create_consumer(queue)
    assert texts_of(receive_all(consumer)) == ["for ever"]


def subscribers(connection: Connection, mode: AcknowledgeMode, *, durable: bool) -> list[MessageConsumer]:
    """Three subscribers of a topic in sessions of their own; the first of them is durable, or none is."""
    sessions = [session_of(connection, mode) for _ in range(3)]
    first = sessions[0].create_durable_subscriber(TOPIC, "reader") if durable else sessions[0].create_consumer(TOPIC)
    return [first, *(session.create_consumer(TOPIC) for session in sessions[1:])]


@pytest.mark.requirement("message.expiration.zero")
@pytest.mark.parametrize(
    "durable",
    [
        pytest.param(True, marks=pytest.mark.case("expiration-02"), id="one of them durable"),
        pytest.param(False, marks=pytest.mark.case("expiration-03"), id="none of them durable"),
    ],
)
@MODES
def test_each_subscriber_receives_only_the_group_that_lives_for_ever(
    connection: Connection, session: Session, mode: AcknowledgeMode, durable: bool
) -> None:
    consumers = subscribers(connection, mode, durable=durable)
    producer = session.create_producer(TOPIC)
    expirations = []
    for number in range(10):
        send(producer, session, f"for ever {number}")
        expirations.append(send(producer, session, f"short {number}", SHORT))
    wait_until(max(expirations))
    for consumer in consumers:
        received = receive_all(consumer)
        assert texts_of(received) == [f"for ever {number}" for number in range(10)]
        assert {message.jms_expiration for message in received} == {0}


@pytest.mark.requirement("subscriber.durable")
def test_messages_expire_in_a_durable_subscription_without_a_subscriber(session: Session) -> None:
    session.create_durable_subscriber(TOPIC, "reader").close()
    producer = session.create_producer(TOPIC)
    expiration = send(producer, session, "short", SHORT)
    send(producer, session, "for ever")
    wait_until(expiration)
    assert texts_of(receive_all(session.create_durable_subscriber(TOPIC, "reader"))) == ["for ever"]


@pytest.mark.requirement("message.expiration.zero")
def test_browser_does_not_show_expired_messages(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    send(producer, session, "short", SHORT)
    send(producer, session, "for ever")
    browser = session.create_browser(queue)
    wait_for(lambda: texts_of(browser) == ["for ever"])


@MODES
def test_message_that_expires_while_its_consumer_is_busy_is_not_received(
    connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    """Consumers that fetch ahead hold it already."""
    producer = session.create_producer(queue)
    for text in "abcd":
        send(producer, session, text)
    expirations = [send(producer, session, text, 0.3) for text in "vwxyz"]
    send(producer, session, "e")
    receiving = session_of(connection, mode)
    consumer = receiving.create_consumer(queue)
    assert receive_texts(consumer, 4) == ["a", "b", "c", "d"]
    wait_until(max(expirations))
    assert texts_of(receive_all(consumer)) == ["e"]


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_message_that_expires_before_it_is_delivered_again_is_not_received_again(
    connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    producer = session.create_producer(queue)
    expiration = send(producer, session, "short", 3)
    receiving = session_of(connection, mode)
    assert receive_texts(receiving.create_consumer(queue), 1) == ["short"]
    wait_until(expiration)
    receiving.close()
    assert receive_all(session.create_consumer(queue)) == []


def test_consumer_that_waits_gets_no_expired_message(connection: Connection, session: Session, queue: Queue) -> None:
    """A message sent to a stopped connection expires before the start."""
    consumer = session.create_consumer(queue)
    connection.stop()
    expiration = send(session.create_producer(queue), session, "short", SHORT)
    wait_until(expiration)
    connection.start()
    assert consumer.receive(timeout=0.05) is None


def test_expired_messages_are_destroyed(connection: Connection, session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    send(producer, session, "short", SHORT)
    send(producer, session, "for ever")
    looking = connection.create_session(transacted=True)

    def stored() -> list[str]:
        rows = looking.database.execute(
            sqlalchemy.text("select body from jmsql.messages where queue = :queue"), {"queue": queue.name}
        )
        texts = [row.body for row in rows]
        looking.rollback()
        return texts

    assert wait_for(lambda: stored() == ["for ever"])


def test_transaction_s_message_may_expire_before_its_commit(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(transacted=True)
    expiration = send(session.create_producer(queue), session, "short", SHORT)
    wait_until(expiration)
    session.commit()
    assert receive_all(session.create_consumer(queue)) == []
