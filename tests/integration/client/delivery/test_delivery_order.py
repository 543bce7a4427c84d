"""In which order messages come: by priority, then as they were sent (JMS 1.1 chapters 3.4.10 and 4.4.10)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import psycopg
import pytest

import jmsql
from jmsql import AcknowledgeMode, Connection, DeliveryMode, Message, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@MODES
def test_messages_of_a_priority_come_as_they_were_sent(mode_session: Session, queue: Queue) -> None:
    texts = [str(number) for number in range(250)]
    send_texts(mode_session, queue, *texts)
    assert texts_of(receive_all(mode_session.create_consumer(queue))) == texts


@MODES
def test_more_urgent_messages_come_first(mode_session: Session, queue: Queue) -> None:
    sent = [(random.randrange(10), str(number)) for number in range(60)]
    for priority, text in sent:
        send_texts(mode_session, queue, text, priority=priority)
    expected = [text for _, text in sorted(sent, key=lambda each: -each[0])]  # a stable sort
    received = receive_all(mode_session.create_consumer(queue))
    assert texts_of(received) == expected
    assert [message.jms_priority for message in received] == sorted((priority for priority, _ in sent), reverse=True)


@MODES
def test_urgent_message_overtakes_messages_that_were_not_fetched(
    mode_session: Session, session: Session, queue: Queue
) -> None:
    send_texts(session, queue, "1", "2", priority=0)
    consumer = mode_session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["1"]
    send_texts(session, queue, "urgent", priority=9)
    assert sorted(receive_texts(consumer, 2)) == ["2", "urgent"]


def test_listener_hears_messages_in_their_order(connection: Connection, session: Session, queue: Queue) -> None:
    texts = [str(number) for number in range(100)]
    heard: list[Message] = []
    send_texts(session, queue, *texts)
    send_texts(session, queue, "urgent", priority=9)
    connection.create_session().create_consumer(queue).message_listener = heard.append
    wait_for(lambda: len(heard) == len(texts) + 1)
    assert texts_of(heard) == ["urgent", *texts]


@pytest.mark.parametrize("listens", [False, True])
@MODES
def test_parts_of_a_transaction_stay_in_order_whatever_others_commit_between_them(
    mode_session: Session, session: Session, queue: Queue, jmsql_clean_url: str, *, listens: bool
) -> None:
    heard: list[Message] = []
    consumer = mode_session.create_consumer(queue)
    if listens:
        consumer.message_listener = heard.append

    def received(count: int) -> Sequence[str | None]:
        if not listens:
            return receive_texts(consumer, count)
        wait_for(lambda: len(heard) == count)
        return texts_of([heard.pop(0) for _ in range(count)])

    with psycopg.connect(jmsql_clean_url) as database:
        producer = jmsql.enlist(database).create_producer()
        for _ in range(2):
            producer.send(queue, "first")
            send_texts(session, queue, "other")
            assert received(1) == ["other"]
            producer.send(queue, "second")
            database.commit()
            assert received(2) == ["first", "second"]


def test_transaction_sends_to_several_queues_in_order(connection: Connection, session: Session) -> None:
    transacted = connection.create_session(transacted=True)
    producer = transacted.create_producer()
    queues = [Queue("even"), Queue("odd")]
    for number in range(20):
        producer.send(transacted.create_text_message(str(number)), queues[number % 2])
    transacted.commit()
    for remainder, queue in enumerate(queues):
        expected = [str(number) for number in range(remainder, 20, 2)]
        assert texts_of(receive_all(session.create_consumer(queue))) == expected


def test_messages_of_both_delivery_modes_keep_their_order(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    for number in range(20):
        mode = DeliveryMode.PERSISTENT if number % 3 else DeliveryMode.NON_PERSISTENT
        producer.send(session.create_text_message(str(number)), delivery_mode=mode)
    assert texts_of(receive_all(session.create_consumer(queue))) == [str(number) for number in range(20)]
