"""Message listeners: set, replaced and removed, failing, and closing what they listen to."""

from __future__ import annotations

import dataclasses
import queue as queues
import statistics
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    Message,
    MessageConsumer,
    Queue,
    Session,
)
from jmsql.store.control.wake_ups import BUCKETS
from jmsql.store.receiving.reader import QueueReader
from jmsql.testing import FAST_TIMINGS, receive_all, wait_for
from tests.compliance.held_listener import HeldListener
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection", "other_shared_connection")

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@pytest.fixture
def consumer(mode_session: Session, queue: Queue) -> MessageConsumer:
    return mode_session.create_consumer(queue)


def settle(session: Session, message: Message) -> None:
    """Do what makes the message count as received."""
    if session.transacted:
        session.commit()
    message.acknowledge()


@MODES
def test_listener_gets_waiting_messages_and_later_ones(
    mode_session: Session, consumer: MessageConsumer, others: Session, queue: Queue
) -> None:
    heard: list[Message] = []
    send_texts(others, queue, "a", "b")
    consumer.message_listener = heard.append
    wait_for(lambda: len(heard) == 2)
    send_texts(others, queue, "c")
    wait_for(lambda: len(heard) == 3)
    assert texts_of(heard) == ["a", "b", "c"]
    assert not any(message.jms_redelivered for message in heard)


@MODES
def test_consumer_with_a_listener_does_not_receive(consumer: MessageConsumer, mode: AcknowledgeMode) -> None:
    consumer.message_listener = lambda message: None
    for call in (consumer.receive, consumer.receive_no_wait, lambda: consumer.receive(timeout=0)):
        with pytest.raises(IllegalStateException, match="message listener"):
            call()
    consumer.message_listener = None
    assert consumer.receive(timeout=0) is None


@MODES
def test_listener_is_replaced_between_messages(
    mode_session: Session, consumer: MessageConsumer, others: Session, queue: Queue
) -> None:
    first: list[Message] = []
    second: list[Message] = []

    def hear(message: Message) -> None:
        settle(mode_session, message)
        consumer.message_listener = second.append
        first.append(message)

    consumer.message_listener = hear
    send_texts(others, queue, "a", "b", "c")
    wait_for(lambda: len(second) >= 2)
    assert texts_of(first) == ["a"]
    assert texts_of(second) == ["b", "c"]


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_message_whose_listener_fails_comes_again_after_a_while(
    consumer: MessageConsumer, others: Session, server: Server, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries: list[int] = []

    seen = threading.Event()

    def fail_twice(message: Message) -> None:
        deliveries.append(message.get_int_property("JMSXDeliveryCount"))
        if len(deliveries) < 3:
            raise ValueError("the listener's own mistake")
        assert seen.wait(60)  # else the message may be gone before the test looks at it

    consumer.message_listener = fail_twice
    send_texts(others, queue, "a")
    wait_for(lambda: len(deliveries) >= 2)
    (state,) = server.rows("select state, delivery_count, last_error from jmsql.messages")
    assert state[1] in {1, 2}
    assert "the listener's own mistake" in state[2]
    seen.set()
    wait_for(lambda: server.rows("select count(*) from jmsql.messages") == [(0,)])
    assert deliveries == [1, 2, 3]
    assert caplog.text.count("ValueError: the listener's own mistake") == 2


@MODES
def test_others_are_heard_while_a_message_waits_after_a_failure(
    mode_session: Session, consumer: MessageConsumer, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    heard: list[str] = []

    def fail_on_the_first(message: Message) -> None:
        heard.append(str(message.get_body(str)))
        if heard[-1] == "bad":
            raise ValueError("the listener's own mistake")
        settle(mode_session, message)

    consumer.message_listener = fail_on_the_first
    send_texts(others, queue, "bad", "a", "b")
    wait_for(lambda: "b" in heard)
    assert [text for text in heard if text != "bad"] == ["a", "b"]
    if mode in {AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT}:
        # Only the client settles or releases here; an error of the listener's does neither.
        assert heard.count("bad") == 1


@MODES
def test_closing_the_consumer_waits_for_its_listener(
    mode_session: Session, consumer: MessageConsumer, others: Session, queue: Queue
) -> None:
    listener = HeldListener(lambda message: settle(mode_session, message))
    consumer.message_listener = listener
    send_texts(others, queue, "a", "b")
    listener.wait_until_called()
    listener.must_return_before(consumer.close)
    assert listener.errors == []
    assert len(listener.messages) == 1
    assert receive_texts(others.create_consumer(queue), 1) == ["b"]


@MODES
def test_listener_may_close_its_own_consumer(
    mode_session: Session, consumer: MessageConsumer, others: Session, queue: Queue
) -> None:
    heard = threading.Event()

    def close(message: Message) -> None:
        settle(mode_session, message)
        consumer.close()
        heard.set()

    consumer.message_listener = close
    send_texts(others, queue, "a", "b")
    assert heard.wait(60)
    assert receive_texts(others.create_consumer(queue), 1) == ["b"]
    with pytest.raises(IllegalStateException, match="closed"):
        consumer.receive(timeout=0)


@MODES
def test_listener_makes_more_consumers_and_producers(
    mode_session: Session, consumer: MessageConsumer, others: Session, queue: Queue
) -> None:
    onward, answered = Queue("onward"), Queue("answered")

    def answer(message: Message) -> None:
        mode_session.create_producer(answered).send(message)
        settle(mode_session, message)

    def pass_on(message: Message) -> None:
        if message.get_body(str) == "a":
            mode_session.create_consumer(onward).message_listener = answer
        mode_session.create_producer(onward).send(message)
        settle(mode_session, message)

    consumer.message_listener = pass_on
    send_texts(others, queue, "a", "b")
    assert receive_texts(others.create_consumer(answered), 2) == ["a", "b"]


@pytest.mark.own_connection
def test_listener_may_close_the_connection(connection: Connection, others: Session, queue: Queue) -> None:
    heard = threading.Event()

    def close(message: Message) -> None:
        connection.close()
        heard.set()

    for _ in range(2):
        connection.create_session().create_consumer(queue).message_listener = close
    send_texts(others, queue, "a", "b")
    assert heard.wait(60)
    wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "jmsql-listener"])
    with pytest.raises(IllegalStateException, match="closed"):
        connection.create_session()
    assert len(receive_all(others.create_consumer(queue))) <= 1


CALLS: dict[str, Callable[[Session], object]] = {
    "send": lambda session: session.create_producer(Queue("others")).send(session.create_message()),
    "make a consumer": lambda session: session.create_consumer(Queue("others")),
    "browse": lambda session: list(session.create_browser(Queue("others"))),
    "recover": lambda session: session.recover(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_of_other_threads_do_not_wait_for_a_listener_without_end(
    jmsql_factory: ConnectionFactory, call: Callable[[Session], object]
) -> None:
    timings = dataclasses.replace(FAST_TIMINGS, listener_patience=0.05)
    with dataclasses.replace(jmsql_factory, timings=timings).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(Queue("orders")).send(session.create_message())
        consumer = session.create_consumer(Queue("orders"))
        listener = HeldListener()
        consumer.message_listener = listener
        listener.wait_until_called()
        with pytest.raises(IllegalStateException, match="create another session for this thread"):
            call(session)
        listener.release()
        wait_for(lambda: succeeds(lambda: call(session)))


def succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except IllegalStateException:
        return False
    return True


def test_session_that_listens_to_many_queues_looks_at_those_with_news(
    jmsql_factory: ConnectionFactory, others: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    read = QueueReader.read

    def counted(reader: QueueReader, *arguments: Any, **keywords: Any) -> Any:
        looked.append(reader.queue_id)
        return read(reader, *arguments, **keywords)

    monkeypatch.setattr(QueueReader, "read", counted)
    all_of_them = [Queue(f"one of many, {number}") for number in range(40)]
    heard: list[Message] = []
    looks = []
    # Without the polls of the tests' own timings, which look at all queues.
    timings = dataclasses.replace(
        FAST_TIMINGS, minimum_poll_interval=60.0, maximum_poll_interval=60.0, shared_poll_interval=60.0
    )
    with dataclasses.replace(jmsql_factory, timings=timings).create_connection() as connection:
        connection.start()
        have_senders_tell_of_all(connection)
        session = connection.create_session()
        for each in all_of_them:
            session.create_consumer(each).message_listener = heard.append
        for each in all_of_them[:15]:
            send_texts(others, each, "x")
            wait_for(lambda: heard)
            looks.append(len(looked))
            heard.clear()
            looked.clear()
    assert statistics.median(looks) < len(all_of_them) / 4


def have_senders_tell_of_all(connection: Connection) -> None:
    """Keep it announced that messages are waited for.

    Else it is withdrawn if no session waits for a while, as on a slow machine, and then all queues are looked at.
    """
    for bucket in range(BUCKETS):
        connection._client.control.wake_ups.add_waiter(bucket)


def test_a_message_costs_no_more_where_a_session_has_many_listeners(
    jmsql_factory: ConnectionFactory, others: Session
) -> None:
    # Without the polls of the tests' own timings, which look at all queues. While instructions are counted, that takes
    # a slow machine a minute, after which polls of a minute would be due again.
    timings = dataclasses.replace(
        FAST_TIMINGS, minimum_poll_interval=3600.0, maximum_poll_interval=3600.0, shared_poll_interval=3600.0
    )
    with dataclasses.replace(jmsql_factory, timings=timings).create_connection() as connection:
        connection.start()
        have_senders_tell_of_all(connection)
        few, many = (instructions_for_a_message(connection, others, listeners) for listeners in (10, 500))
    assert few < MOST_INSTRUCTIONS / 2, few
    assert many <= 1.2 * few


MOST_INSTRUCTIONS = 100_000
"""Enough to see that a message costs too much. To count a look at all queues takes minutes, and has another cause."""


def instructions_for_a_message(connection: Connection, others: Session, listeners: int) -> float:
    """Return how many instructions of Python the thread of a session with so many listeners runs for one message."""
    all_of_them = [Queue(f"one of {listeners}, {number}") for number in range(listeners)]
    heard: queues.SimpleQueue[int] = queues.SimpleQueue()
    instructions = 0

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal instructions
        if instructions > MOST_INSTRUCTIONS:
            sys.settrace(None)
            return None
        instructions += event == "opcode"
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return count

    def hear(_: Message) -> None:
        nonlocal instructions
        heard.put(instructions)
        instructions = 0
        sys.settrace(count)

    def wait_for_all_looks() -> None:
        waiting = connection._client.control.wake_ups._waited_for
        wait_for(lambda: any(count > 1 for count in waiting), timeout=60)

    with connection.create_session() as session:
        for each in all_of_them:
            session.create_consumer(each).message_listener = hear
        wait_for_all_looks()  # the first ones, which nothing counts
        counts = []
        for each in all_of_them[:10] * 2:
            send_texts(others, each, "x")
            counts.append(heard.get(timeout=60))
            wait_for_all_looks()  # else the next message may come before the look that finds nothing, and save it
    return statistics.median(counts)


def test_an_acknowledgement_that_failed_is_made_before_the_next_look(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str, others: Session, server: Server, queue: Queue
) -> None:
    heard: queues.SimpleQueue[Message] = queues.SimpleQueue()
    errors: queues.SimpleQueue[Exception] = queues.SimpleQueue()
    with jmsql_factory.create_connection() as connection, psycopg.connect(jmsql_clean_url) as blocker:
        connection.exception_listener = errors.put

        def hear(message: Message) -> None:
            blocker.execute("select from jmsql_internal.message for update")
            heard.put(message)

        connection.create_session().create_consumer(queue).message_listener = hear
        connection.start()
        send_texts(others, queue, "x")
        heard.get(timeout=60)
        cancel_blocked = "select pg_cancel_backend(pid) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
        wait_for(lambda: server.rows(cancel_blocked, blocker.info.backend_pid))
        assert "cancelled" in str(errors.get(timeout=60))
        blocker.rollback()
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])
    assert heard.empty()
