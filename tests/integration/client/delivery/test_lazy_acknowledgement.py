"""When a DUPS_OK session acknowledges what it has delivered."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    Message,
    MessageConsumer,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
)
from jmsql.testing import FAST_TIMINGS, wait_for
from tests.background import Background
from tests.integration.client.connections.server_session_pools import OneSession
from tests.integration.client.server import SESSIONS, Server
from tests.slowness import scaled
from tests.texts import receive_texts, send_texts

PATIENCE = 60.0
SOON = dataclasses.replace(FAST_TIMINGS, acknowledgement_delay=scaled(0.2))
NEVER = dataclasses.replace(FAST_TIMINGS, acknowledgement_delay=3600.0)


@pytest.fixture
def soon(factory: ConnectionFactory) -> Iterator[Connection]:
    """A connection whose lazy sessions acknowledge soon."""
    with dataclasses.replace(factory, timings=SOON).create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def never(factory: ConnectionFactory) -> Iterator[Connection]:
    """A connection whose lazy sessions do not acknowledge for the time that passes."""
    with dataclasses.replace(factory, timings=NEVER, client_id="desk").create_connection() as connection:
        connection.start()
        yield connection


def lazy(connection: Connection) -> Session:
    return connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)


def left(server: Server) -> list[str]:
    """The texts of the messages that are not acknowledged."""
    return [text for (text,) in server.rows("select text_body from jmsql_internal.message order by sequence")]


class TestInTime:
    def test_the_last_received_message_is_acknowledged(
        self, soon: Connection, others: Session, queue: Queue, server: Server
    ) -> None:
        send_texts(others, queue, "a", "b", "c")
        session = lazy(soon)
        consumer = session.create_consumer(queue)
        assert receive_texts(consumer, 1) == ["a"]
        assert left(server) == ["a", "b", "c"]
        wait_for(lambda: left(server) == ["b", "c"])
        assert receive_texts(consumer, 2) == ["b", "c"]  # and again
        wait_for(lambda: left(server) == [])
        session.recover()
        assert consumer.receive(0) is None

    def test_a_listeners_message_is_acknowledged_though_the_connection_stops(
        self, soon: Connection, others: Session, queue: Queue, server: Server
    ) -> None:
        heard = threading.Semaphore(0)
        stopped = threading.Event()

        def listen(message: Message) -> None:
            heard.release()
            stopped.wait(PATIENCE)

        session = lazy(soon)
        session.create_consumer(queue).message_listener = listen
        send_texts(others, queue, "a", "b")
        assert heard.acquire(timeout=PATIENCE)
        stopping = threading.Thread(target=soon.stop)
        stopping.start()
        wait_for(lambda: not soon._client.started)
        stopped.set()
        stopping.join()
        wait_for(lambda: left(server) == ["b"])

    def test_before_a_listener_gets_another_one_after_long_work(
        self, soon: Connection, others: Session, queue: Queue, server: Server
    ) -> None:
        seen: list[list[str]] = []

        def listen(message: Message) -> None:
            seen.append(left(server))
            if message.get_body(str) == "a":
                threading.Event().wait(SOON.acknowledgement_delay)

        send_texts(others, queue, "a", "b")
        lazy(soon).create_consumer(queue).message_listener = listen
        wait_for(lambda: len(seen) == 2)
        assert seen == [["a", "b"], ["b"]]
        wait_for(lambda: left(server) == [])

    @pytest.mark.usefixtures("used_just_now")  # else it replaces the connection without a word
    def test_a_message_is_acknowledged_though_the_connection_was_lost(
        self, soon: Connection, others: Session, queue: Queue, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        send_texts(others, queue, "a")
        consumer = lazy(soon).create_consumer(queue)
        assert receive_texts(consumer, 1) == ["a"]
        server.terminate(SESSIONS)
        wait_for(lambda: left(server) == [])
        assert "could not acknowledge in time" in caplog.text


class TestAtOnce:
    def test_when_a_consumer_closes(self, never: Connection, others: Session, queue: Queue, server: Server) -> None:
        send_texts(others, queue, "a", "b", "c")
        session = lazy(never)
        first, second = session.create_consumer(queue), session.create_consumer(queue)
        assert receive_texts(first, 1) == ["a"]
        assert receive_texts(second, 1) == ["b"]
        first.close()
        assert left(server) == ["c"]

    def test_once_when_a_server_session_has_run_and_a_consumer_closes_meanwhile(
        self, never: Connection, others: Session, queue: Queue, server: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        session = lazy(never)
        consumer = session.create_consumer("another")
        heard: list[Message] = []
        session.message_listener = heard.append
        pool = OneSession(session)
        send_texts(others, queue, "a")
        with never.create_connection_consumer(queue, None, pool, 1):
            assert pool.started.acquire(timeout=PATIENCE)
            with server.transaction():
                server.rows("lock table jmsql_internal.delivery in share row exclusive mode")
                running = Background(session.run)
                server.wait_until_a_session_waits()
                closing = Background(consumer.close)
                closing.wait_until_it_waits()
            running.result()
            closing.result()
        assert len(heard) == 1
        assert left(server) == []
        assert "could not settle" not in caplog.text

    @pytest.mark.parametrize("shared", [False, True])
    def test_before_a_subscription_ends(self, never: Connection, others: Session, server: Server, shared: bool) -> None:
        topic = Topic("prices")
        session = lazy(never)
        create: Callable[[Topic, str], MessageConsumer] = (
            session.create_shared_durable_consumer if shared else session.create_durable_consumer
        )
        consumer = create(topic, "all")
        send_texts(others, topic, "a", "b")
        assert receive_texts(consumer, 1) == ["a"]
        consumer.close()
        session.unsubscribe("all")
        wait_for(lambda: left(server) == [])  # maintenance removes what the subscription has left


def test_a_listener_that_closes_its_consumer_and_fails_gets_its_message_again(
    never: Connection, others: Session, queue: Queue, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    session = lazy(never)
    consumer = session.create_consumer(queue)
    failed = threading.Event()

    def listen(message: Message) -> None:
        consumer.close()
        failed.set()
        raise ValueError("the listener's own mistake")

    consumer.message_listener = listen
    send_texts(others, queue, "a")
    assert failed.wait(PATIENCE)
    with session.create_consumer(queue) as following:
        assert receive_texts(following, 1) == ["a"]
    assert left(server) == []
    assert "the listener's own mistake" in caplog.text


def test_a_listener_that_fails_has_not_failed_with_the_messages_before(
    never: Connection, others: Session, queue: Queue, server: Server
) -> None:
    heard: list[str] = []
    consumer = lazy(never).create_consumer(queue)
    consumer.set_redelivery_policy(RedeliveryPolicy(maximum_deliveries=1))

    def listen(message: Message) -> None:
        heard.append(str(message.get_body(str)))
        if heard[-1] == "b":
            raise ValueError("the listener's own mistake")

    send_texts(others, queue, "a", "b", "c")
    consumer.message_listener = listen
    wait_for(lambda: "c" in heard)
    wait_for(lambda: server.rows("select body from jmsql.dead_letters") == [("b",)])
    wait_for(lambda: left(server) == ["b"])
    assert heard == ["a", "b", "c"]


def test_closing_the_session_ends_its_acknowledging_thread(never: Connection, others: Session, queue: Queue) -> None:
    def waiting() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "jmsql-acknowledging"]

    send_texts(others, queue, "a")
    with lazy(never) as session:
        assert waiting() == []
        receive_texts(session.create_consumer(queue), 1)
        assert len(waiting()) == 1
    assert waiting() == []


@pytest.mark.usefixtures("used_just_now")  # else it replaces the connection without a word
def test_a_session_that_cannot_acknowledge_as_it_closes_releases_its_messages(
    never: Connection, others: Session, queue: Queue, server: Server
) -> None:
    send_texts(others, queue, "a", "b", "c")
    session = lazy(never)
    consumer = session.create_consumer(queue)
    assert receive_texts(consumer, 2) == ["a", "b"]
    server.terminate(SESSIONS)
    session.close()
    assert sorted(receive_texts(others.create_consumer(queue), 3)) == ["a", "b", "c"]
