"""Connection consumers and the pools that run their sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Message,
    Queue,
    Session,
    TemporaryQueue,
    Topic,
)
from jmsql.connection_consumers import ThreadServerSessionPool
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.compliance.held_listener import HeldListener
from tests.integration.client.connections.server_session_pools import MODES, Heard, listening
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_left, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection", "other_shared_connection")


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
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


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
    together = threading.Barrier(3, timeout=60)
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


@pytest.mark.own_connection
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
    left = sorted(receive_texts(consumer, 2) + texts_of(receive_all(consumer)))
    # Whether the pool commits before the connection rolls back is open.
    assert left == ["b", "c"] or (left == ["a", "b", "c"] and mode is AcknowledgeMode.TRANSACTED)


def test_transaction_of_a_load_holds_its_listeners_work(
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


@pytest.mark.own_connection
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


@pytest.mark.own_connection
def test_arguments_that_are_none(connection: Connection, other_connection: Connection, queue: Queue) -> None:
    temporary: TemporaryQueue = other_connection.create_session().create_temporary_queue()
    with ThreadServerSessionPool(connection, 1, Heard()) as pool:
        with pytest.raises(InvalidSelectorException):
            connection.create_connection_consumer(queue, "color =", pool, 1)
        with pytest.raises(InvalidDestinationException):
            connection.create_connection_consumer(temporary, None, pool, 1)
        with pytest.raises(InvalidDestinationException):
            connection.create_connection_consumer("jms://orders", None, pool, 1)
        with pytest.raises(InvalidDestinationException):
            connection.create_durable_connection_consumer(queue, "daily", None, pool, 1)  # type: ignore[arg-type]
        with pytest.raises(IllegalStateException, match="client identifier"):
            connection.create_durable_connection_consumer(Topic("news"), "daily", None, pool, 1)
        for too_few in (0, -1):
            with pytest.raises(JMSException, match="max_messages of at least 1"):
                connection.create_connection_consumer(queue, None, pool, too_few)
        with pytest.raises(TypeError, match="get_server_session"):
            connection.create_connection_consumer(queue, None, object(), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 session"):
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


def test_a_temporary_queue_is_deleted_once_the_pool_is_closed(connection: Connection) -> None:
    session = connection.create_session()
    queue = session.create_temporary_queue()
    listener = HeldListener()
    with ThreadServerSessionPool(connection, 1, lambda _: listener) as pool:
        consumer = connection.create_connection_consumer(queue, None, pool, 1)
        with pytest.raises(IllegalStateException, match="has a consumer; close that one first"):
            queue.delete()
        send_texts(session, queue, "a")
        listener.wait_until_called()
        consumer.close()
        with pytest.raises(
            IllegalStateException, match=r"server session still delivers.*closing the server session pool"
        ):
            queue.delete()
        listener.release()
    queue.delete()


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
        assert closed.wait(60)
    send_texts(others, queue, "b")
    assert texts_left(jmsql_factory, queue) == ["b"]


def test_closing_the_pool_closes_a_session_that_comes_back_meanwhile(
    connection: Connection, others: Session, queue: Queue
) -> None:
    comes_back = threading.Event()

    class Changed(threading.Condition):
        def __enter__(self) -> bool:
            if threading.current_thread().name == "jmsql-server-session":
                comes_back.set()
            return super().__enter__()

    is_running, is_closing = threading.Event(), threading.Event()
    sessions: list[Session] = []

    def work(message: Message) -> None:
        is_running.set()
        assert is_closing.wait(60)

    heard = Heard(work)

    def create_listener(session: Session) -> Callable[[Message], None]:
        sessions.append(session)
        return heard.hear

    pool = ThreadServerSessionPool(connection, 1, create_listener)
    pool._changed = Changed()
    send_texts(others, queue, "a")
    with connection.create_connection_consumer(queue, None, pool, 1):
        assert is_running.wait(60)
        with pool._changed:
            is_closing.set()
            assert comes_back.wait(60)
            pool.close()
    assert [session.closed for session in sessions] == [True]


@pytest.mark.own_connection
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
        assert closed.wait(60)
    assert receive_texts(others.create_consumer(queue), 1) == ["b"]
