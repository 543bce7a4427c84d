"""Connection consumers and the pools that run their sessions."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Message,
    Queue,
    ServerSession,
    Session,
    TemporaryQueue,
    ThreadServerSessionPool,
    Topic,
)
from jmsql.testing import drain, wait_for
from tests.background import Background
from tests.compliance.held_listener import HeldListener
from tests.integration.client.server import SESSIONS, Server
from tests.texts import receive, receive_texts, send_texts, texts_left, texts_of

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))
LISTENING = [mode for mode in AcknowledgeMode if mode is not AcknowledgeMode.CLIENT]


class Heard:
    """A listener for several sessions at once, which acknowledges.

    Args:
        work: What to do with each message before.
    """

    def __init__(self, work: Callable[[Message], object] = lambda message: None) -> None:
        self._work = work
        self._lock = threading.Lock()
        self.messages: list[Message] = []

    def __call__(self, session: Session) -> Callable[[Message], None]:
        return self.hear

    def hear(self, message: Message) -> None:
        self._work(message)
        message.acknowledge()
        with self._lock:
            self.messages.append(message)

    @property
    def texts(self) -> list[str]:
        return texts_of(list(self.messages))

    def wait_for(self, count: int) -> None:
        wait_for(lambda: len(self.messages) >= count, timeout=15)


@contextmanager
def listening(
    connection: Connection,
    queue: Destination,
    create_listener: Callable[[Session], jmsql.MessageListener],
    *,
    mode: AcknowledgeMode = AcknowledgeMode.AUTO,
    size: int = 1,
    max_messages: int = 10,
    selector: str | None = None,
) -> Iterator[jmsql.ConnectionConsumer]:
    """A pool whose listeners receive from the queue for as long as the block lasts."""
    transacted = mode is AcknowledgeMode.TRANSACTED
    with (
        ThreadServerSessionPool(
            connection, size, create_listener, transacted=transacted, acknowledge_mode=mode
        ) as pool,
        connection.create_connection_consumer(queue, selector, pool, max_messages) as consumer,
    ):
        yield consumer


@MODES
@pytest.mark.parametrize("max_messages", [1, 7])
def test_every_message_is_delivered_once(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode, max_messages: int
) -> None:
    heard = Heard()
    texts = [str(number) for number in range(60)]
    send_texts(others, queue, *texts[:30])
    with listening(connection, queue, heard, mode=mode, size=3, max_messages=max_messages):
        send_texts(others, queue, *texts[30:])
        heard.wait_for(60)
    assert sorted(heard.texts, key=int) == texts
    assert not any(message.jms_redelivered for message in heard.messages)
    assert server.rows("select count(*) from jmsql.message") == [(0,)]
    assert server.rows("select count(*) from jmsql.delivery") == [(0,)]


@MODES
def test_one_session_keeps_priority_and_order(
    connection: Connection, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    heard = Heard()
    send_texts(others, queue, *"abcdefg")
    send_texts(others, queue, "urgent", priority=9)
    with listening(connection, queue, heard, mode=mode, max_messages=3):
        connection.start()
        heard.wait_for(8)
    assert heard.texts == ["urgent", *"abcdefg"]


def test_sessions_of_a_pool_work_at_the_same_time(connection: Connection, others: Session, queue: Queue) -> None:
    together = threading.Barrier(3, timeout=10)
    heard = Heard(lambda message: together.wait())
    with listening(connection, queue, heard, size=3, max_messages=1):
        send_texts(others, queue, *"abc")
        heard.wait_for(3)


def test_stopped_connection_delivers_nothing(connection: Connection, others: Session, queue: Queue) -> None:
    connection.stop()
    heard = Heard()
    send_texts(others, queue, "a")
    with listening(connection, queue, heard):
        assert receive_texts(others.create_consumer(queue), 1) == ["a"], "nobody else takes it"
        send_texts(others, queue, "b")
        connection.start()
        heard.wait_for(1)
    assert heard.texts == ["b"]


@MODES
def test_stop_waits_for_the_listener_and_the_rest_of_its_load_is_free_for_others(
    connection: Connection, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    listener = HeldListener(Message.acknowledge)
    send_texts(others, queue, *"abc")
    with listening(connection, queue, lambda session: listener, mode=mode):
        connection.start()
        listener.wait_until_called()
        stopping = Background(connection.stop)
        stopping.wait_until_it_waits()
        listener.release()
        stopping.result()
        assert listener.has_returned
        assert texts_of(listener.messages) == ["a"]
        assert receive_texts(others.create_consumer(queue), 2) == ["b", "c"]


@MODES
def test_close_of_the_connection_waits_for_the_listener_and_loses_nothing(
    factory: ConnectionFactory, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    listener = HeldListener(Message.acknowledge)
    send_texts(others, queue, *"abc")
    with (
        factory.create_connection() as connection,
        ThreadServerSessionPool(
            connection,
            1,
            lambda session: listener,
            transacted=mode is AcknowledgeMode.TRANSACTED,
            acknowledge_mode=mode,
        ) as pool,
    ):
        connection.create_connection_consumer(queue, None, pool, 10)
        connection.start()
        listener.wait_until_called()
        closing = Background(connection.close)
        closing.wait_until_it_waits()
        listener.release()
        closing.result()
    consumer = others.create_consumer(queue)
    left = sorted(receive_texts(consumer, 2) + texts_of(drain(consumer)))
    # Whether the pool commits before the connection rolls back is open.
    assert left == ["b", "c"] or (left == ["a", "b", "c"] and mode is AcknowledgeMode.TRANSACTED)


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_message_whose_listener_fails_comes_again(
    connection: Connection, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    failures: list[Message] = []

    def fail_once(message: Message) -> None:
        if message.get_body(str) == "bad" and not failures:
            failures.append(message)
            raise ValueError("the listener's own mistake")

    heard = Heard(fail_once)
    send_texts(others, queue, "a", "bad", "b")
    with listening(connection, queue, heard, mode=mode):
        wait_for(lambda: {"a", "bad", "b"} <= set(heard.texts))
    (again,) = [message for message in heard.messages if message.get_body(str) == "bad"]
    assert again.jms_redelivered
    assert again.get_int_property("JMSXDeliveryCount") == 2


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
def test_failing_listener_undoes_what_its_session_has_not_settled(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    calls: list[tuple[str, int]] = []

    def fail_on_the_second(message: Message) -> None:
        count = message.get_int_property("JMSXDeliveryCount")
        calls.append((str(message.get_body(str)), count))
        if calls[-1] == ("b", 1):
            raise ValueError("the listener's own mistake")
        if calls[-1][0] == "c":
            message.acknowledge()

    send_texts(others, queue, *"abc")
    with listening(connection, queue, lambda session: fail_on_the_second, mode=mode):
        connection.start()
        wait_for(lambda: server.rows("select count(*) from jmsql.message") == [(0,)])
    assert calls == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("c", 1)]


def test_transaction_of_a_load_holds_what_its_listener_does(
    connection: Connection, others: Session, jmsql_factory: ConnectionFactory, queue: Queue
) -> None:
    replies = Queue("replies")
    failures: list[str] = []

    def create_listener(session: Session) -> Callable[[Message], None]:
        producer = session.create_producer(replies)

        def hear(message: Message) -> None:
            text = str(message.get_body(str))
            producer.send(session.create_text_message(text.upper()))
            session.database.execute(sqlalchemy.text("select 1"))
            if not failures:
                failures.append(text)
                raise ValueError("the listener's own mistake")

        return hear

    send_texts(others, queue, "a")
    with listening(connection, queue, create_listener, mode=AcknowledgeMode.TRANSACTED):
        assert receive_texts(others.create_consumer(replies), 1) == ["A"]
    assert failures == ["a"]
    assert texts_left(jmsql_factory, replies) == []


@MODES
def test_expired_message_is_not_delivered(
    connection: Connection, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    held = HeldListener(Message.acknowledge)
    send_texts(others, queue, "first")
    with others.create_producer(queue) as producer:
        message = others.create_text_message("short-lived")
        producer.send(message, time_to_live=0.2)
    with listening(connection, queue, lambda session: held, mode=mode):
        connection.start()
        held.wait_until_called()
        wait_for(lambda: message.jms_expiration < time.time() * 1000)
        held.release()
        send_texts(others, queue, "last")
        wait_for(lambda: len(held.messages) == 2)
    assert texts_of(held.messages) == ["first", "last"]


def test_durable_subscription_collects_while_it_has_no_connection_consumer(
    jmsql_factory: ConnectionFactory, others: Session
) -> None:
    topic = Topic("news")
    heard = Heard()
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "reader"
        connection.start()
        with ThreadServerSessionPool(connection, 1, heard) as pool:
            with connection.create_durable_connection_consumer(topic, "daily", None, pool, 2):
                send_texts(others, topic, "a")
                heard.wait_for(1)
                with pytest.raises(IllegalStateException, match="active consumer"):
                    connection.create_durable_connection_consumer(topic, "daily", None, pool, 2)
            send_texts(others, topic, "b", "c")
            with connection.create_durable_connection_consumer(topic, "daily", None, pool, 2):
                heard.wait_for(3)
        connection.create_session().unsubscribe("daily")
    assert heard.texts == ["a", "b", "c"]


@pytest.mark.parametrize("durable", [False, True])
def test_connection_consumers_share_a_subscription(
    connection: Connection, other_connection: Connection, others: Session, *, durable: bool
) -> None:
    topic = Topic("news")
    heard = Heard()
    name = "create_shared_durable_connection_consumer" if durable else "create_shared_connection_consumer"
    with (
        ThreadServerSessionPool(connection, 1, heard) as pool,
        ThreadServerSessionPool(other_connection, 1, heard) as other_pool,
        getattr(connection, name)(topic, "daily", None, pool, 1),
        getattr(other_connection, name)(topic, "daily", None, other_pool, 1),
    ):
        send_texts(others, topic, *"abcdef")
        heard.wait_for(6)
    assert sorted(heard.texts) == list("abcdef")


def test_topic_is_heard_while_the_connection_consumer_is_open(connection: Connection, others: Session) -> None:
    topic = Topic("news")
    heard = Heard()
    send_texts(others, topic, "before")
    with listening(connection, topic, heard, selector="JMSPriority > 4"):
        send_texts(others, topic, "a", priority=7)
        send_texts(others, topic, "unwanted", priority=1)
        send_texts(others, topic, "b", priority=7)
        heard.wait_for(2)
    assert heard.texts == ["a", "b"]


def test_arguments_that_are_none(connection: Connection, other_connection: Connection, queue: Queue) -> None:
    temporary: TemporaryQueue = other_connection.create_session().create_temporary_queue()
    with ThreadServerSessionPool(connection, 1, Heard()) as pool:
        with pytest.raises(InvalidSelectorException):
            connection.create_connection_consumer(queue, "color =", pool, 1)
        with pytest.raises(InvalidDestinationException):
            connection.create_connection_consumer(temporary, None, pool, 1)
        with pytest.raises(InvalidDestinationException):
            connection.create_connection_consumer("orders", None, pool, 1)  # type: ignore[arg-type]
        with pytest.raises(InvalidDestinationException):
            connection.create_durable_connection_consumer(queue, "daily", None, pool, 1)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateException, match="client identifier"):
            connection.create_durable_connection_consumer(Topic("news"), "daily", None, pool, 1)
        for too_few in (0, -1):
            with pytest.raises(JMSException, match="at least one message"):
                connection.create_connection_consumer(queue, None, pool, too_few)
        with pytest.raises(TypeError, match="get_server_session"):
            connection.create_connection_consumer(queue, None, object(), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one session"):
        ThreadServerSessionPool(connection, 0, Heard())
    with pytest.raises(TypeError, match="message listener"):
        ThreadServerSessionPool(connection, 1, lambda session: 5)  # type: ignore[arg-type, return-value]
    connection.close()
    with pytest.raises(IllegalStateException):
        connection.create_connection_consumer(queue, None, pool, 1)


def test_closed_connection_consumer_takes_nothing_more(
    connection: Connection, others: Session, jmsql_factory: ConnectionFactory, queue: Queue
) -> None:
    heard = Heard()
    with listening(connection, queue, heard) as consumer:
        send_texts(others, queue, "a")
        heard.wait_for(1)
        consumer.close()
        consumer.close()
        with pytest.raises(IllegalStateException, match="closed"):
            consumer.server_session_pool  # noqa: B018
        send_texts(others, queue, "b")
        assert texts_left(jmsql_factory, queue) == ["b"]


def test_closing_the_pool_from_a_listener_does_not_wait(
    connection: Connection, others: Session, jmsql_factory: ConnectionFactory, queue: Queue
) -> None:
    closed = threading.Event()

    def close(message: Message) -> None:
        pool.close()
        consumer.close()
        closed.set()

    with ThreadServerSessionPool(connection, 2, lambda session: close) as pool:
        consumer = connection.create_connection_consumer(queue, None, pool, 1)
        send_texts(others, queue, "a")
        assert closed.wait(10)
    send_texts(others, queue, "b")
    assert texts_left(jmsql_factory, queue) == ["b"]


def test_listener_closes_the_connection(factory: ConnectionFactory, others: Session, queue: Queue) -> None:
    closed = threading.Event()
    connection = factory.create_connection()

    def close(message: Message) -> None:
        connection.stop()
        connection.close()
        closed.set()

    send_texts(others, queue, "a", "b")
    with ThreadServerSessionPool(connection, 1, lambda session: close) as pool:
        connection.create_connection_consumer(queue, None, pool, 2)
        connection.start()
        assert closed.wait(10)
    assert receive_texts(others.create_consumer(queue), 1) == ["b"]


class OneSession:
    """A pool of one session, which the test runs itself."""

    def __init__(self, session: Session, fails: bool = False) -> None:
        self.session = session
        self.fails = fails
        self.free = threading.Semaphore()
        self.started = threading.Semaphore(0)

    def get_server_session(self) -> ServerSession:
        self.free.acquire()
        return self

    def start(self) -> None:
        if self.fails:
            raise RuntimeError("no thread to be had")
        self.started.release()


@MODES
def test_load_of_a_thread_that_died_before_its_run_goes_back_with_the_session(
    mode_session: Session, connection: Connection, others: Session, queue: Queue
) -> None:
    heard: list[Message] = []
    mode_session.message_listener = heard.append
    pool = OneSession(mode_session)
    send_texts(others, queue, "a", "b")
    with connection.create_connection_consumer(queue, None, pool, 2):
        assert pool.started.acquire(timeout=10)
        assert drain(others.create_consumer(queue)) == []
        mode_session.close()
        consumer = others.create_consumer(queue)
        messages = [receive(consumer), receive(consumer)]
    assert texts_of(messages) == ["a", "b"]
    assert not any(message.jms_redelivered for message in messages), "nobody has seen them"
    assert heard == []


@MODES
def test_load_goes_back_when_the_pool_does_not_start_it(
    mode_session: Session, connection: Connection, others: Session, queue: Queue
) -> None:
    mode_session.message_listener = lambda message: None
    problems: list[JMSException] = []
    connection.exception_listener = problems.append
    send_texts(others, queue, "a", "b")
    with connection.create_connection_consumer(queue, None, OneSession(mode_session, fails=True), 2):
        wait_for(lambda: problems)
        assert receive_texts(others.create_consumer(queue), 2) == ["a", "b"]
    assert "no thread to be had" in str(problems[0])


def test_pool_with_an_unusable_session_is_told_of(
    connection: Connection, other_connection: Connection, others: Session, queue: Queue
) -> None:
    problems: list[JMSException] = []
    connection.exception_listener = problems.append
    send_texts(others, queue, "a")
    for session, problem in (
        (other_connection.create_session(), "own connection"),
        (connection.create_session(), "no message_listener"),
    ):
        problems.clear()
        with connection.create_connection_consumer(queue, None, OneSession(session), 1):
            wait_for(lambda: problems)
        assert isinstance(problems[0], IllegalStateException)
        assert problem in str(problems[0])
    assert receive_texts(others.create_consumer(queue), 1) == ["a"]


def test_session_without_a_load_runs_and_does_nothing(session: Session) -> None:
    heard: list[Message] = []
    assert session.message_listener is None
    session.message_listener = heard.append
    assert session.message_listener == heard.append
    session.run()
    assert heard == []
    with pytest.raises(TypeError, match="message listener"):
        session.message_listener = 5  # type: ignore[assignment]
    session.close()
    with pytest.raises(IllegalStateException):
        session.run()


@pytest.mark.parametrize("mode", LISTENING)
def test_work_goes_on_after_the_server_has_cut_all_connections(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    heard = Heard()
    with listening(connection, queue, heard, mode=mode, size=2, max_messages=2):
        send_texts(others, queue, "a")
        heard.wait_for(1)
        assert server.terminate(SESSIONS)
        send_texts(others, queue, "b", "c", "d")
        wait_for(lambda: {"a", "b", "c", "d"} <= set(heard.texts), timeout=15)


@MODES
def test_cut_in_the_middle_of_a_load_loses_nothing(
    connection: Connection, others: Session, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    connection.stop()
    first = HeldListener()
    send_texts(others, queue, *"abc")
    heard = Heard(lambda message: None if first.has_returned else first.on_message(message))
    with listening(connection, queue, heard, mode=mode, max_messages=3):
        connection.start()
        first.wait_until_called()
        assert server.terminate(SESSIONS)
        first.release()
        wait_for(lambda: set(heard.texts) == {"a", "b", "c"}, timeout=15)
        wait_for(lambda: server.rows("select count(*) from jmsql.message") == [(0,)], timeout=15)


def _work(url: str, mode_name: str) -> None:
    """What the process does that is going to be killed: it holds the second message of a load."""
    mode = AcknowledgeMode[mode_name]
    calls: list[Message] = []

    def hear(message: Message) -> None:
        calls.append(message)
        sys.stdout.write(json.dumps(message.get_body(str)) + "\n")
        sys.stdout.flush()
        if len(calls) == 2:
            sys.stdin.read()
        message.acknowledge()

    with (
        ConnectionFactory(url).create_connection() as connection,
        listening(connection, Queue("orders"), lambda session: hear, mode=mode, max_messages=3),
    ):
        connection.start()
        threading.Event().wait()


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.AUTO])
def test_messages_of_a_killed_process_come_back(
    jmsql_clean_url: str, others: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    send_texts(others, queue, *"abcd")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, jmsql_clean_url, mode.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        heard = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert heard == ["a", "b"]
    finally:
        process.kill()
        process.communicate()
    left = list("bcd" if mode is AcknowledgeMode.AUTO else "abcd")
    assert sorted(receive_texts(others.create_consumer(queue), len(left))) == left
    assert drain(others.create_consumer(queue)) == []


if __name__ == "__main__":
    _work(*sys.argv[1:])
