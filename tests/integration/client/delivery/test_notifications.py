"""A waiting consumer hears of a message at once, by a notification: polling takes minutes here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from jmsql import AcknowledgeMode, Connection, JMSException, Message, MessageConsumer, Queue, Session, Timings
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, Server
from tests.texts import receive_texts, send_texts, texts_of

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@pytest.fixture
def jmsql_timings() -> Timings:
    """Polling takes minutes."""
    return Timings(minimum_poll_interval=300.0, maximum_poll_interval=300.0)


def wait_for_texts(consumer: MessageConsumer, count: int = 1) -> Background[list[str]]:
    """Receive in the background, without a look at the queue for as long as a test takes; begin when it waits."""
    receiving = Background(lambda: texts_of([message for _ in range(count) if (message := consumer.receive(60))]))
    receiving.wait_until_it_waits()
    return receiving


@MODES
@pytest.mark.parametrize("transacted_sender", [False, True])
def test_send_wakes_a_waiting_receive(
    other_connection: Connection, mode_session: Session, queue: Queue, transacted_sender: bool
) -> None:
    consumer = mode_session.create_consumer(queue)
    receiving = wait_for_texts(consumer)
    send_texts(other_connection.create_session(transacted_sender), queue, "a")
    assert receiving.result() == ["a"]


@MODES
def test_send_wakes_a_listener(mode_session: Session, others: Session, queue: Queue) -> None:
    heard: list[Message] = []
    mode_session.create_consumer(queue).message_listener = heard.append
    for text in ["a", "b"]:
        send_texts(others, queue, text)
        wait_for(lambda text=text: texts_of(heard)[-1:] == [text])  # type: ignore[misc]


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_message_released_wakes_a_waiting_receive(
    mode_session: Session, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    send_texts(others, queue, "a")
    assert receive_texts(mode_session.create_consumer(queue), 1) == ["a"]
    consumer = others.create_consumer(queue)
    receiving = wait_for_texts(consumer)
    mode_session.rollback() if mode is AcknowledgeMode.TRANSACTED else mode_session.recover()
    assert receiving.result() == ["a"]


@pytest.mark.parametrize("end", [Session.commit, Session.rollback, Session.close])
def test_end_of_a_transaction_wakes_consumers_for_its_undelivered_messages(
    connection: Connection, others: Session, queue: Queue, end: Callable[[Session], None]
) -> None:
    transacted = connection.create_session(transacted=True)
    send_texts(others, queue, "1", "2", "3", "4", "5", "6")
    consumer = transacted.create_consumer(queue)
    assert receive_texts(consumer, 4) == ["1", "2", "3", "4"]  # the others were fetched with the last of them
    receiving = wait_for_texts(others.create_consumer(queue))
    end(transacted)
    assert receiving.result()[0] in {"1", "5"}


def test_only_a_commit_wakes(connection: Connection, others: Session, queue: Queue) -> None:
    transacted = connection.create_session(transacted=True)
    consumer = others.create_consumer(queue)
    receiving = wait_for_texts(consumer)
    producer = transacted.create_producer(queue)
    producer.send(transacted.create_text_message("rolled back"))
    transacted.rollback()
    producer.send(transacted.create_text_message("committed"))
    receiving.wait_until_it_waits()
    transacted.commit()
    assert receiving.result() == ["committed"]


def test_message_for_a_selector_wakes_the_consumer_that_wants_it(
    connection: Connection, others: Session, queue: Queue
) -> None:
    unwanted = wait_for_texts(connection.create_session().create_consumer(queue, "n = 1"))
    wanted = wait_for_texts(connection.create_session().create_consumer(queue, "n = 2"))
    producer = others.create_producer(queue)
    for number in (2, 1):
        message = others.create_text_message(str(number))
        message.set_int_property("n", number)
        producer.send(message)
    assert wanted.result() == ["2"]
    assert unwanted.result() == ["1"]


def test_waiting_receive_is_woken_after_the_control_connection_was_lost(
    connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    failures: list[JMSException] = []
    connection.exception_listener = failures.append
    consumer = connection.create_session().create_consumer(queue)
    receiving = wait_for_texts(consumer, 2)

    assert server.terminate(CONTROL) == 1
    send_texts(others, queue, "sent while nobody listened")
    wait_for(lambda: server.connections(CONTROL) == 1)
    receiving.wait_until_it_waits()
    send_texts(others, queue, "sent afterwards")
    assert receiving.result() == ["sent while nobody listened", "sent afterwards"]
    assert len(failures) == 1


def test_sender_wakes_others_after_its_control_connection_was_lost(
    connection: Connection, other_connection: Connection, server: Server, queue: Queue
) -> None:
    sender = connection.create_session()
    send_texts(sender, queue, "first")
    consumer = other_connection.create_session().create_consumer(queue)
    assert receive_texts(consumer, 1) == ["first"]
    assert server.terminate(CONTROL) == 1
    wait_for(lambda: server.connections(CONTROL) == 1)
    receiving = wait_for_texts(consumer)
    send_texts(sender, queue, "second")
    assert receiving.result() == ["second"]


def test_a_consumer_closed_as_it_is_woken_leaves_its_message_to_another_one(
    connection: Connection, others: Session, queue: Queue
) -> None:
    waiting: deque[tuple[MessageConsumer, Background[Message | None]]] = deque()
    producer = others.create_producer(queue)
    for number in range(40):
        while len(waiting) < 3:
            consumer = connection.create_session().create_consumer(queue)
            waiting.append((consumer, Background(consumer.receive)))
            waiting[-1][1].wait_until_it_waits()
        first, received = waiting.popleft()  # the one that has waited for longest is woken
        sending = Background(partial(producer.send, others.create_text_message(str(number))))
        first.close()
        sending.result()
        message = received.result()
        if message is None:
            wait_for(lambda: not all(each.is_running for _, each in waiting))
            ended = next(pair for pair in waiting if not pair[1].is_running)
            waiting.remove(ended)
            message = ended[1].result()
        assert message is not None
        assert message.get_body(str) == str(number)


def test_a_consumer_receives_at_once_the_messages_of_its_own_rollback(
    connection: Connection, others: Session, queue: Queue
) -> None:
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    send_texts(others, queue, "a")
    assert receive_texts(consumer, 1) == ["a"]
    assert others.create_consumer(queue).receive(0) is None
    session.rollback()
    assert receive_texts(consumer, 1) == ["a"]
