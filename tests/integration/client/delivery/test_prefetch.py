"""Messages fetched ahead of their delivery: they reach one consumer only, and come back when it does not want them."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = [str(number) for number in range(100)]
MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@MODES
def test_two_consumers_of_a_session_share_a_queue(
    mode_session: Session, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    send_texts(session, queue, *TEXTS)
    first, second = mode_session.create_consumer(queue), mode_session.create_consumer(queue)
    received: list[Message] = []
    while len(received) < len(TEXTS):
        found = [message for consumer in (first, second) if (message := consumer.receive(timeout=0))]
        assert found, f"{len(received)} of {len(TEXTS)} came"
        received += found
    assert sorted(texts_of(received)) == sorted(TEXTS)
    if mode is AcknowledgeMode.TRANSACTED:
        mode_session.commit()
    received[-1].acknowledge()
    mode_session.close()
    assert receive_all(session.create_consumer(queue)) == []


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_messages_of_two_consumers_are_released_together(
    mode_session: Session, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    send_texts(session, queue, *TEXTS)
    first, second = mode_session.create_consumer(queue), mode_session.create_consumer(queue)
    delivered = texts_of(receive(consumer) for _ in range(20) for consumer in (first, second))
    assert len(set(delivered)) == 40
    if mode is AcknowledgeMode.TRANSACTED:
        mode_session.rollback()
    else:
        mode_session.recover()
    mode_session.close()
    again = receive_all(session.create_consumer(queue))
    assert texts_of(again) == TEXTS
    assert {message.get_body(str) for message in again if message.jms_redelivered} == set(delivered)


@MODES
def test_consumer_that_closes_leaves_undelivered_messages_to_others(
    mode_session: Session, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    send_texts(others, queue, *TEXTS)
    with mode_session.create_consumer(queue) as consumer:
        assert receive_texts(consumer, 30) == TEXTS[:30]
    if mode is AcknowledgeMode.TRANSACTED:
        mode_session.commit()
    rest = receive_all(others.create_consumer(queue))
    assert texts_of(rest) == TEXTS[30:]
    assert not any(message.jms_redelivered for message in rest)


@MODES
def test_consumers_with_selectors_share_a_queue(mode_session: Session, session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    for number, text in enumerate(TEXTS):
        message = session.create_text_message(text)
        message.set_int_property("remainder", number % 3)
        producer.send(message)
    consumers = [mode_session.create_consumer(queue, f"remainder = {remainder}") for remainder in range(3)]
    received: list[list[str]] = [[], [], []]
    while sum(map(len, received)) < len(TEXTS):
        for remainder, consumer in enumerate(consumers):
            received[remainder] += texts_of([found] if (found := consumer.receive(timeout=0)) else [])
    assert received == [TEXTS[0::3], TEXTS[1::3], TEXTS[2::3]]


def test_transaction_releases_fetched_messages_that_it_did_not_deliver(
    connection: Connection, others: Session, queue: Queue
) -> None:
    transacted = connection.create_session(transacted=True)
    send_texts(others, queue, *TEXTS)
    consumer = transacted.create_consumer(queue)
    assert receive_texts(consumer, 30) == TEXTS[:30]
    transacted.commit()
    assert texts_of(receive_all(others.create_consumer(queue))) == TEXTS[30:]


@MODES
def test_removing_a_listener_leaves_the_rest_to_receive(
    mode_session: Session, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    heard: list[Message] = []
    consumer = mode_session.create_consumer(queue)

    def listen_once(message: Message) -> None:
        heard.append(message)
        if mode_session.transacted:
            mode_session.commit()
        message.acknowledge()
        consumer.message_listener = None

    send_texts(session, queue, *TEXTS)
    consumer.message_listener = listen_once
    wait_for(lambda: heard and consumer.message_listener is None)
    assert texts_of(heard) == TEXTS[:1]
    assert texts_of(receive_all(consumer)) == TEXTS[1:]


def test_large_messages_are_fetched_a_few_at_a_time(connection: Connection, others: Session, queue: Queue) -> None:
    transacted = connection.create_session(transacted=True)
    body = "x" * (6 * 1024 * 1024)
    send_texts(transacted, queue, *[f"{number}{body}" for number in range(8)])
    consumer = transacted.create_consumer(queue)
    first = receive_texts(consumer, 4)
    assert [text[0] for text in first] == ["0", "1", "2", "3"]
    left = receive_all(others.create_consumer(queue))
    assert len(left) >= 2, "others get what a consumer cannot hold"
    transacted.rollback()
