"""Global transactions: begun, prepared, and finished by the same session, by another, or by another process."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    Message,
    Queue,
    ResourceAllocationException,
    Session,
    Topic,
    TransactionInProgressException,
    TransactionRolledBackException,
    XAConnection,
    XAConnectionFactory,
    XASession,
    Xid,
)
from jmsql.testing import drain, wait_for
from tests.background import Background
from tests.integration.client.server import SESSIONS, Server
from tests.texts import receive, receive_texts, send_texts, texts_of

XID = Xid(7, "purchase 1", "messages")
PREPARED = "select gid from pg_prepared_xacts where database = current_database()"


@pytest.fixture
def xa_factory(factory: ConnectionFactory) -> XAConnectionFactory:
    return XAConnectionFactory(factory.url, control_url=factory.control_url)


@pytest.fixture
def prepared(jmsql_clean_url: str) -> Iterator[Callable[[], list[str]]]:
    """What is prepared in the database; at the end nothing is."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:

        def names() -> list[str]:
            return [name for (name,) in connection.execute(PREPARED)]

        yield names
        for name in names():
            connection.execute(f"rollback prepared '{name}'".encode())


@pytest.fixture
def xa_connection(xa_factory: XAConnectionFactory, prepared: Callable[[], list[str]]) -> Iterator[XAConnection]:
    with xa_factory.create_xa_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def xa_session(xa_connection: XAConnection) -> XASession:
    try:
        return xa_connection.create_xa_session()
    except ResourceAllocationException:
        if "JMSQL_TEST_URL" not in os.environ:
            raise
        pytest.skip("the server of JMSQL_TEST_URL has max_prepared_transactions = 0")


@pytest.fixture
def table(jmsql_clean_url: str, prepared: object) -> Iterator[str]:
    """A business table."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("create table shipment (goods text)")
        yield "shipment"
        for (name,) in connection.execute(PREPARED).fetchall():
            connection.execute(f"rollback prepared '{name}'".encode())
        connection.execute("drop table shipment")


def send(session: Session, queue: Queue | Topic, *texts: str) -> None:
    """Send, and leave the commit to the test."""
    with session.create_producer(queue) as producer:
        for text in texts:
            producer.send(session.create_text_message(text))


def prepare_without_end(connection: psycopg.Connection) -> None:
    for number in itertools.count():
        connection.execute("begin")
        connection.execute(f"prepare transaction 'filler {number}'".encode())


def messages_there(session: Session, queue: Queue) -> list[Message]:
    with session.create_consumer(queue) as consumer:
        return drain(consumer)


def texts_there(session: Session, queue: Queue) -> list[str]:
    return texts_of(messages_there(session, queue))


def test_sends_receives_and_sql_take_effect_with_the_second_phase(
    xa_session: XASession, others: Session, server: Server, queue: Queue, table: str, prepared: Callable[[], list[str]]
) -> None:
    replies = Queue("replies")
    send_texts(others, queue, "a", "b")
    xa_session.tpc_begin(xa_session.xid(*XID))
    assert receive_texts(xa_session.create_consumer(queue), 1) == ["a"]
    send(xa_session, replies, "A")
    xa_session.database.execute(sqlalchemy.text("insert into shipment values ('kite')"))
    xa_session.tpc_prepare()
    assert prepared() == [XID.identifier]
    assert texts_there(others, replies) == []
    assert server.rows("select * from shipment") == []
    assert texts_there(others, queue) == ["b"], "what was received stays locked, and nothing else does"
    xa_session.tpc_commit()
    assert prepared() == []
    assert texts_there(others, replies) == ["A"]
    assert server.rows("select * from shipment") == [("kite",)]
    assert texts_there(others, queue) == []
    assert server.rows("select count(*) from jmsql.delivery") == [(0,)]


def test_one_phase_is_enough_for_one_participant(
    xa_session: XASession, others: Session, queue: Queue, prepared: Callable[[], list[str]]
) -> None:
    xa_session.tpc_begin(XID)
    send(xa_session, queue, "a")
    xa_session.tpc_commit()
    assert prepared() == []
    assert receive_texts(others.create_consumer(queue), 1) == ["a"]


@pytest.mark.parametrize("prepare", [False, True])
def test_rollback_delivers_again_with_the_redelivered_flag(
    xa_session: XASession, others: Session, queue: Queue, *, prepare: bool
) -> None:
    replies = Queue("replies")
    send_texts(others, queue, "a")
    consumer = xa_session.create_consumer(queue)
    for count in (1, 2):
        xa_session.tpc_begin(XID)
        message = receive(consumer)
        assert message.get_int_property("JMSXDeliveryCount") == count
        assert message.jms_redelivered == (count > 1)
        send(xa_session, replies, "A")
        if prepare:
            xa_session.tpc_prepare()
        xa_session.tpc_rollback()
    consumer.close()
    (again,) = messages_there(others, queue)
    assert again.jms_redelivered
    assert again.get_int_property("JMSXDeliveryCount") == 3
    assert texts_there(others, replies) == []


def test_message_delivered_before_is_committed_too(
    xa_session: XASession, others: Session, server: Server, queue: Queue
) -> None:
    send_texts(others, queue, "a")
    consumer = xa_session.create_consumer(queue)
    receive(consumer)
    xa_session.rollback()
    xa_session.tpc_begin(XID)
    assert receive(consumer).jms_redelivered
    xa_session.tpc_prepare()
    xa_session.tpc_commit()
    assert server.rows("select (select count(*) from jmsql.message), (select count(*) from jmsql.delivery)") == [(0, 0)]


def test_several_messages_are_received_once_each(xa_session: XASession, others: Session, queue: Queue) -> None:
    send_texts(others, queue, *"abcdef")
    consumer, other_consumer = xa_session.create_consumer(queue), xa_session.create_consumer(queue)
    xa_session.tpc_begin(XID)
    assert receive_texts(consumer, 2) + receive_texts(other_consumer, 2) == list("abcd")
    xa_session.tpc_rollback()
    xa_session.tpc_begin(XID)
    assert texts_of(drain(consumer)) == list("abcdef")
    xa_session.tpc_prepare()
    xa_session.tpc_commit()
    assert texts_there(others, queue) == []


@pytest.mark.requirement("session.transactions.transactioninprogress")
def test_commit_and_rollback_are_refused_in_a_global_transaction(
    xa_session: XASession, others: Session, queue: Queue
) -> None:
    send(xa_session, queue, "a")
    with pytest.raises(TransactionInProgressException, match="transaction of its own"):
        xa_session.tpc_begin(XID)
    xa_session.commit()
    xa_session.tpc_begin(XID)
    for prepare in (False, True):
        if prepare:
            xa_session.tpc_prepare()
        for call in (
            xa_session.commit,
            xa_session.rollback,
            lambda: xa_session.tpc_begin(Xid(7, "purchase 2", "")),
            lambda: xa_session.tpc_commit(XID),
            lambda: xa_session.tpc_rollback(XID),
        ):
            with pytest.raises(TransactionInProgressException, match="purchase 1"):
                call()
    xa_session.tpc_rollback()
    send(xa_session, queue, "b")
    xa_session.commit()
    assert texts_there(others, queue) == ["a", "b"]


def test_prepared_session_waits_for_the_end(xa_session: XASession, others: Session, queue: Queue) -> None:
    consumer = xa_session.create_consumer(queue)
    heard: list[Message] = []
    xa_session.create_consumer(Queue("heard")).message_listener = heard.append
    xa_session.tpc_begin(XID)
    send(xa_session, queue, "a")
    xa_session.tpc_prepare()
    send_texts(others, Queue("heard"), "later")
    for call in (
        xa_session.tpc_prepare,
        lambda: send(xa_session, queue, "b"),
        lambda: consumer.receive(timeout=0),
        lambda: xa_session.database,
        lambda: list(xa_session.create_browser(queue)),
    ):
        with pytest.raises(IllegalStateException, match=r"tpc_commit\(\)"):
            call()
    assert "prepared" in repr(xa_session)
    assert heard == []
    xa_session.tpc_commit()
    assert receive_texts(consumer, 1) == ["a"]
    wait_for(lambda: heard)
    xa_session.commit()


def test_calls_without_a_global_transaction_are_refused(xa_session: XASession) -> None:
    for call in (xa_session.tpc_prepare, xa_session.tpc_commit, xa_session.tpc_rollback):
        with pytest.raises(IllegalStateException, match=r"tpc_begin\(\)"):
            call()
    for finish in (xa_session.tpc_commit, xa_session.tpc_rollback):
        with pytest.raises(IllegalStateException, match=r"purchase 1.*finished before"):
            finish(XID)
    assert xa_session.tpc_recover() == []
    xa_session.close()
    for closed in (xa_session.tpc_prepare, xa_session.tpc_recover, lambda: xa_session.tpc_begin(XID)):
        with pytest.raises(IllegalStateException, match="closed"):
            closed()


def test_identifier_has_bounds(xa_session: XASession) -> None:
    for parts in ((-1, "a", "b"), (2**31, "a", "b"), (1, "a" * 65, "b"), (1, "a", "ö" * 33)):
        with pytest.raises(ValueError):
            xa_session.xid(*parts)
    longest = xa_session.xid(2**31 - 1, "ö" * 32, "'; drop table shipment; --\0".ljust(64))
    xa_session.tpc_begin(longest)
    xa_session.tpc_prepare()
    assert xa_session.tpc_recover() == [longest] == [tuple(longest)]
    xa_session.tpc_commit()


def test_transaction_with_nothing_in_it_is_prepared(xa_session: XASession) -> None:
    xa_session.tpc_begin(XID)
    xa_session.tpc_prepare()
    assert xa_session.tpc_recover() == [XID]
    xa_session.tpc_rollback()
    assert xa_session.tpc_recover() == []


@pytest.mark.parametrize("commits", [True, False])
def test_another_session_finishes_what_a_closed_one_has_prepared(
    xa_factory: XAConnectionFactory,
    xa_session: XASession,
    others: Session,
    server: Server,
    queue: Queue,
    *,
    commits: bool,
) -> None:
    replies = Queue("replies")
    send_texts(others, queue, "a", "b")
    with xa_factory.create_xa_connection() as client:
        client.start()
        session = client.create_xa_session()
        session.tpc_begin(XID)
        receive_texts(session.create_consumer(queue), 2)
        send(session, replies, "A")
        session.tpc_prepare()
    assert texts_there(others, queue) == []
    assert xa_session.tpc_recover() == [XID]
    waiting = Background(lambda: others.create_consumer(replies if commits else queue).receive(timeout=10))
    waiting.wait_until_it_waits()
    started = time.monotonic()
    (xa_session.tpc_commit if commits else xa_session.tpc_rollback)(XID)
    woken = waiting.result()
    assert woken is not None
    assert time.monotonic() - started < 5, "found by polling"
    assert woken.get_body(str) == ("A" if commits else "a")
    assert woken.jms_redelivered is not commits
    assert texts_there(others, queue) == ([] if commits else ["b"])
    assert xa_session.tpc_recover() == []
    assert server.rows("select count(*) from jmsql.message") == [(0,)]


def _prepare_and_wait(url: str) -> None:
    """What the process does that is going to be killed."""
    with XAConnectionFactory(url).create_xa_connection() as connection:
        connection.start()
        session = connection.create_xa_session()
        session.tpc_begin(XID)
        message = receive(session.create_consumer(Queue("orders")))
        send(session, Queue("replies"), str(message.get_body(str)).upper())
        session.tpc_prepare()
        sys.stdout.write("prepared\n")
        sys.stdout.flush()
        sys.stdin.read()


def test_prepared_transaction_of_a_killed_process_is_finished_by_another(
    jmsql_clean_url: str, xa_session: XASession, others: Session, queue: Queue
) -> None:
    send_texts(others, queue, "a")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, jmsql_clean_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "prepared\n"
    finally:
        process.kill()
        process.communicate()
    assert texts_there(others, queue) == []
    assert xa_session.tpc_recover() == [XID]
    xa_session.tpc_rollback(XID)
    (again,) = messages_there(others, queue)
    assert again.jms_redelivered
    assert texts_there(others, Queue("replies")) == []


def test_refused_preparation_rolls_back_and_frees_the_session(
    xa_session: XASession, others: Session, queue: Queue
) -> None:
    send_texts(others, queue, "a")
    consumer = xa_session.create_consumer(queue)
    xa_session.tpc_begin(XID)
    receive(consumer)
    xa_session.database.execute(sqlalchemy.text("create temporary table scratch ()"))
    with pytest.raises(TransactionRolledBackException, match="temporary") as refused:
        xa_session.tpc_prepare()
    assert refused.value.error_code == "0A000"
    for call in (xa_session.tpc_prepare, xa_session.tpc_commit):
        with pytest.raises(TransactionRolledBackException, match=r"tpc_rollback\(\)"):
            call()
    with pytest.raises(IllegalStateException):
        consumer.receive(timeout=0)
    xa_session.tpc_rollback()
    again = receive(consumer)
    assert again.get_int_property("JMSXDeliveryCount") == 2
    xa_session.commit()


def test_identifier_that_is_prepared_already_is_refused(
    xa_connection: XAConnection, xa_session: XASession, queue: Queue
) -> None:
    other = xa_connection.create_xa_session()
    for session in (xa_session, other):
        session.tpc_begin(XID)
        send(session, queue, "a")
    xa_session.tpc_prepare()
    with pytest.raises(TransactionRolledBackException, match="already in use"):
        other.tpc_prepare()
    other.tpc_rollback()
    xa_session.tpc_commit()
    assert texts_there(xa_connection.create_session(), queue) == ["a"]


def test_cut_connection_costs_the_transaction_that_is_not_prepared(
    xa_session: XASession, others: Session, server: Server, queue: Queue
) -> None:
    xa_session.tpc_begin(XID)
    send(xa_session, queue, "lost")
    xa_session.database.execute(sqlalchemy.text("select 1"))
    assert server.terminate(SESSIONS)
    with pytest.raises(JMSException, match="not known") as cut:
        xa_session.tpc_prepare()
    assert cut.value.error_code == "08007"
    with pytest.raises(IllegalStateException, match=r"tpc_rollback\(\)"):
        xa_session.tpc_commit()
    xa_session.tpc_rollback()

    xa_session.tpc_begin(XID)
    send(xa_session, queue, "kept")
    xa_session.tpc_prepare()
    assert server.terminate(SESSIONS)
    xa_session.tpc_commit()
    assert texts_there(others, queue) == ["kept"]


def test_transaction_that_somebody_else_has_finished_frees_the_session(
    xa_session: XASession, others: Session, server: Server, queue: Queue
) -> None:
    xa_session.tpc_begin(XID)
    send(xa_session, queue, "a")
    xa_session.tpc_prepare()
    server.rows(f"rollback prepared '{XID.identifier}'")
    with pytest.raises(IllegalStateException, match="finished before"):
        xa_session.tpc_commit()
    send(xa_session, queue, "b")
    xa_session.commit()
    assert texts_there(others, queue) == ["b"]


def test_published_messages_reach_subscriptions_with_the_second_phase(
    xa_session: XASession, others: Session, prepared: object
) -> None:
    topic = Topic("news")
    consumer = others.create_consumer(topic)
    xa_session.tpc_begin(XID)
    send(xa_session, topic, "a")
    xa_session.tpc_prepare()
    assert consumer.receive(timeout=0) is None
    xa_session.tpc_commit()
    assert receive_texts(consumer, 1) == ["a"]


class Completions:
    """Counts what is complete."""

    def __init__(self) -> None:
        self.count = 0

    def on_completion(self, message: Message) -> None:
        self.count += 1

    def on_exception(self, message: Message, error: JMSException) -> None:
        raise AssertionError(error)


def test_asynchronous_sends_are_complete_before_it_is_prepared(
    xa_session: XASession, others: Session, queue: Queue
) -> None:
    completions = Completions()
    xa_session.tpc_begin(XID)
    with xa_session.create_producer(queue) as producer:
        for text in "abc":
            producer.send(xa_session.create_text_message(text), completion_listener=completions)
        xa_session.tpc_prepare()
        assert completions.count == 3
        with pytest.raises(IllegalStateException, match=r"tpc_commit\(\)"):
            producer.send(xa_session.create_text_message("late"), completion_listener=completions)
        xa_session.tpc_commit()
    assert texts_there(others, queue) == ["a", "b", "c"]


def test_transaction_of_others_with_another_form_of_name_is_left_alone(
    xa_session: XASession, jmsql_clean_url: str
) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        connection.execute("select pg_current_xact_id()")
        connection.execute("prepare transaction 'nightly job'")
    assert xa_session.tpc_recover() == []


def test_session_of_an_xa_connection_is_an_ordinary_one(xa_connection: XAConnection, queue: Queue) -> None:
    session = xa_connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send(session, queue, "a")
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]
    assert not isinstance(session, XASession)


def test_xa_session_is_loaded_by_a_connection_consumer(
    xa_connection: XAConnection, xa_session: XASession, others: Session, queue: Queue
) -> None:
    xa_connection.stop()
    heard: list[Message] = []

    class ServerSession:
        session = xa_session

        def start(self) -> None:
            xa_session.tpc_begin(XID)
            xa_session.run()
            xa_session.tpc_prepare()
            xa_session.tpc_commit()

    class OnePool:
        def get_server_session(self) -> ServerSession:
            return ServerSession()

    xa_session.message_listener = heard.append
    send_texts(others, queue, *"abc")
    with xa_connection.create_connection_consumer(queue, None, OnePool(), 2):
        xa_connection.start()
        wait_for(lambda: len(heard) == 3)
    assert texts_of(heard) == list("abc")
    assert texts_there(others, queue) == []


def test_closed_connection_makes_no_session(xa_connection: XAConnection) -> None:
    xa_connection.close()
    with pytest.raises(IllegalStateException):
        xa_connection.create_xa_session()


def test_server_without_room_for_another_is_told_of(
    xa_session: XASession, jmsql_clean_url: str, others: Session, queue: Queue
) -> None:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection, pytest.raises(psycopg.OperationalError):
        prepare_without_end(connection)
    xa_session.tpc_begin(XID)
    send(xa_session, queue, "a")
    with pytest.raises(TransactionRolledBackException, match="maximum number of prepared transactions") as refused:
        xa_session.tpc_prepare()
    assert refused.value.error_code == "53200"
    xa_session.tpc_rollback()
    assert texts_there(others, queue) == []


if __name__ == "__main__":
    _prepare_and_wait(sys.argv[1])
