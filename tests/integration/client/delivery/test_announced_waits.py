"""Messages for which nobody waits are not notified, and a consumer that waits is told: polling takes minutes here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest

import jmsql
from jmsql import Connection, ConnectionFactory, Queue, Session, TextMessage, Topic
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.background import Background
from tests.integration.client.delivery.test_notifications import wait_for_texts
from tests.integration.client.server import Server
from tests.leadership import SUSPEND_MAINTENANCE
from tests.texts import receive_texts, send_texts, texts_of

_TURNS = 200
_KEY = "hashtextextended('jmsql', {bucket})"
_BUCKETS = 32
_HELD = """
    select l.mode from pg_locks l join jmsql_internal.connection c on c.server_process_id = l.pid
    where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.granted"""

pytestmark = pytest.mark.own_connection


@pytest.fixture
def interval() -> float:
    """After how many seconds a client says that nobody waits any more."""
    return 1.0


@pytest.fixture
def jmsql_timings(interval: float) -> InternalTimings:
    """Polling takes minutes."""
    return InternalTimings(minimum_poll_interval=300.0, maximum_poll_interval=300.0, maintenance_interval=interval)


@pytest.fixture(autouse=True)
def _no_maintenance(server: Server) -> None:
    """Nobody looks for messages of which nobody has told."""
    server.rows(SUSPEND_MAINTENANCE)


class Ear(NamedTuple):
    """Hears what is notified."""

    connection: psycopg.Connection[Any]
    payloads: list[str]

    def heard(self) -> list[str]:
        """Return what was notified so far, and not yet returned."""
        self.connection.execute("notify jmsql, 'so far'")
        wait_for(lambda: self.connection.execute("select 1").fetchone() and "so far" in self.payloads)
        payloads = [payload for payload in self.payloads if payload != "so far"]
        self.payloads.clear()
        return payloads


@pytest.fixture
def ear(jmsql_clean_url: str) -> Iterator[Ear]:
    """Listens as clients do."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        payloads: list[str] = []
        connection.add_notify_handler(lambda notification: payloads.append(notification.payload))
        connection.execute("listen jmsql")
        yield Ear(connection, payloads)


def send_asynchronously(session: Session, queue: Queue, text: str) -> None:
    """Send a message with a completion listener, and wait for that."""
    with session.create_producer(queue) as producer:
        producer.send(TextMessage(text), completion_listener=lambda _message, _error: None)


def send_later(session: Session, queue: Queue, text: str) -> None:
    """Send a message that is delivered after a while."""
    with session.create_producer(queue) as producer:
        producer.delivery_delay = 3600.0
        producer.send(TextMessage(text))


SENDS = pytest.mark.parametrize("send", [send_texts, send_asynchronously])
TRANSACTED = pytest.mark.parametrize("transacted", [False, True])


@SENDS
@TRANSACTED
def test_messages_without_a_waiting_consumer_are_not_notified(
    jmsql_factory: ConnectionFactory, ear: Ear, send: Callable[..., None], transacted: bool
) -> None:
    queue = Queue("orders")
    with jmsql_factory.create_connection() as connection, connection.create_session(transacted) as session:
        connection.start()
        with connection.create_session() as receiving:
            consumer = receiving.create_consumer(queue)
            for number in range(3):
                send(session, queue, str(number))
                if transacted:
                    session.commit()
            assert receive_texts(consumer, 3) == ["0", "1", "2"]
    assert ear.heard() == []


@TRANSACTED
def test_senders_that_receive_by_turns_send_no_notifications(
    jmsql_factory: ConnectionFactory, ear: Ear, transacted: bool
) -> None:
    queue = Queue("orders")
    with jmsql_factory.create_connection() as connection, connection.create_session(transacted) as session:
        connection.start()
        consumer = session.create_consumer(queue)
        for number in range(5):
            send_texts(session, queue, str(number))
            if transacted:
                session.commit()
            assert receive_texts(consumer, 1) == [str(number)]
            if transacted:
                session.commit()
    assert ear.heard() == []


@SENDS
@TRANSACTED
def test_messages_with_a_waiting_consumer_are_notified(
    jmsql_factory: ConnectionFactory,
    connection: Connection,
    server: Server,
    ear: Ear,
    send: Callable[..., None],
    transacted: bool,
) -> None:
    queue = Queue("orders")
    receiving = wait_for_texts(connection.create_session().create_consumer(queue))
    wait_for(lambda: server.rows(_HELD))  # until then it finds messages by a look of its own
    with jmsql_factory.create_connection() as sending, sending.create_session(transacted) as session:
        send(session, queue, "a")
        if transacted:
            session.commit()
    assert receiving.result() == ["a"]
    assert len(ear.heard()) == 1


@TRANSACTED
def test_a_lone_message_is_notified_in_the_exchange_of_its_commit(
    jmsql_factory: ConnectionFactory, connection: Connection, server: Server, ear: Ear, transacted: bool
) -> None:
    queue = Queue("orders")
    processes: list[int] = []
    ear.connection.add_notify_handler(lambda notification: processes.append(notification.pid))
    receiving = wait_for_texts(connection.create_session().create_consumer(queue))
    wait_for(lambda: server.rows(_HELD))
    with jmsql_factory.create_connection() as sending, sending.create_session(transacted) as session:
        control = {process for (process,) in server.rows("select server_process_id from jmsql_internal.connection")}
        send_texts(session, queue, "a")
        if transacted:
            session.commit()
        assert receiving.result() == ["a"]
        assert len(ear.heard()) == 1
    assert processes[0] not in control, "the control connection did not have to notify"


def test_publications_are_notified_if_a_subscriber_waits(
    jmsql_factory: ConnectionFactory, connection: Connection, server: Server, ear: Ear
) -> None:
    topic = Topic("prices")
    consumer = connection.create_session().create_consumer(topic)
    with jmsql_factory.create_connection() as publishing, publishing.create_session() as session:
        send_texts(session, topic, "a")
    assert ear.heard() == []
    assert receive_texts(consumer, 1) == ["a"]
    receiving = wait_for_texts(consumer)
    wait_for(lambda: server.rows(_HELD))
    with jmsql_factory.create_connection() as publishing, publishing.create_session(transacted=True) as session:
        send_texts(session, topic, "b")
    assert receiving.result() == ["b"]
    assert len(ear.heard()) == 1


def test_the_client_with_the_lease_is_told_of_delayed_messages(jmsql_factory: ConnectionFactory, ear: Ear) -> None:
    with jmsql_factory.create_connection() as connection, connection.create_session() as session:
        send_later(session, Queue("orders"), "a")
    assert ear.heard() == ["0"]


def test_a_client_that_has_not_waited_for_a_while_is_told_no_more(
    jmsql_factory: ConnectionFactory, connection: Connection, server: Server, ear: Ear
) -> None:
    queue = Queue("orders")
    consumer = connection.create_session().create_consumer(queue)
    receiving = wait_for_texts(consumer)
    wait_for(lambda: server.rows(_HELD))
    with jmsql_factory.create_connection() as sending, sending.create_session() as session:
        send_texts(session, queue, "a")
        assert receiving.result() == ["a"]
        wait_for(lambda: not server.rows(_HELD))
        ear.heard()
        send_texts(session, queue, "b")
    assert ear.heard() == []
    assert receive_texts(consumer, 1) == ["b"]


@pytest.mark.parametrize("interval", [0.002, 1.0])
@TRANSACTED
def test_a_consumer_that_waits_is_woken_each_time_of_many(
    jmsql_factory: ConnectionFactory, connection: Connection, transacted: bool
) -> None:
    there, back = Queue("there"), Queue("back")

    def answer() -> None:
        session = connection.create_session()
        consumer, producer = session.create_consumer(there), session.create_producer(back)
        for _ in range(_TURNS):
            message = consumer.receive(60)
            assert message is not None
            producer.send(message)

    answering = Background(answer)
    with jmsql_factory.create_connection() as asking, asking.create_session(transacted) as session:
        asking.start()
        consumer, producer = session.create_consumer(back), session.create_producer(there)
        for number in range(_TURNS):
            producer.send(TextMessage(str(number)))
            if transacted:
                session.commit()
            message = consumer.receive(30)
            assert message is not None, f"turn {number}"
            assert message.get_body(str) == str(number)
            if transacted:
                session.commit()
    answering.result()


def test_a_client_wakes_its_own_consumers_for_each_of_many_sends(connection: Connection) -> None:
    queue = Queue("orders")
    consumer, session = connection.create_session().create_consumer(queue), connection.create_session()
    for number in range(50):
        receiving = wait_for_texts(consumer)
        send_texts(session, queue, f"a {number}", f"b {number}")  # the second right after the first
        assert receiving.result() == [f"a {number}"]
        assert receive_texts(consumer, 1) == [f"b {number}"]


@pytest.mark.parametrize("interval", [0.002, 1.0])
def test_many_senders_and_receivers_that_wait_now_and_then(
    jmsql_factory: ConnectionFactory, connection: Connection
) -> None:
    queue = Queue("orders")

    def send(name: str) -> None:
        with jmsql_factory.create_connection() as sending, sending.create_session() as session:
            for number in range(_TURNS):
                send_texts(session, queue, f"{name} {number}")

    def receive() -> list[str]:
        with jmsql_factory.create_connection() as receiving, receiving.create_session() as session:
            receiving.start()
            consumer = session.create_consumer(queue)
            return texts_of([message for _ in range(_TURNS) if (message := consumer.receive(30))])

    senders = [Background(partial(send, name)) for name in ("a", "b")]
    receivers = [Background(receive) for _ in senders]
    for sender in senders:
        sender.result()
    texts = [text for receiver in receivers for text in receiver.result()]
    assert sorted(texts) == sorted(f"{name} {number}" for name in ("a", "b") for number in range(_TURNS))


@pytest.mark.parametrize("lock", ["pg_advisory_lock", "pg_advisory_lock_shared"])
def test_a_role_that_holds_the_locks_has_all_messages_notified(
    jmsql_factory: ConnectionFactory, connection: Connection, server: Server, ear: Ear, lock: str
) -> None:
    queue = Queue("orders")
    every_key = _KEY.format(bucket="bucket") + f") from generate_series(0, {_BUCKETS - 1}) as bucket"
    consumer = connection.create_session().create_consumer(queue)
    with jmsql_factory.create_connection() as sending, sending.create_session() as session:
        server.rows(f"select {lock}({every_key}")
        send_texts(session, queue, "a")
        wait_for(ear.heard)
        assert receive_texts(consumer, 1) == ["a"]
        receiving = wait_for_texts(consumer)
        send_texts(session, queue, "b")
        assert receiving.result() == ["b"]
        receiving = wait_for_texts(consumer)
        server.rows(f"select {lock.replace('_lock', '_unlock')}({every_key}")
        wait_for(lambda: server.rows(_HELD))
        send_texts(session, queue, "c")
        assert receiving.result() == ["c"]


def test_a_wait_in_the_applications_transaction_is_woken(
    jmsql_factory: ConnectionFactory, connection: Connection, jmsql_clean_url: str, jmsql_timings: InternalTimings
) -> None:
    queue = Queue("orders")
    assert connection is not None  # by which the transaction hears of messages
    with psycopg.connect(jmsql_clean_url) as database, jmsql_factory.create_context() as sending:
        producer = sending.create_producer().send(queue, "first")
        consumer = jmsql.enlist(database, timings=jmsql_timings).create_consumer(queue)
        assert consumer.receive_body(str, 10) == "first"
        database.commit()
        for text in ("a", "b"):
            receiving: Background[str | None] = Background(lambda: consumer.receive_body(str, 60))
            receiving.wait_until_it_waits()
            producer.send(queue, text)
            assert receiving.result() == text
            database.commit()
