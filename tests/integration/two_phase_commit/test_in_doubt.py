"""Global transactions that are refused, cut off, or finished by another session or another process."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import time

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql import Connection, IllegalStateException, Queue, Session, TransactionRolledBackException
from jmsql.xa import XAConnection, XAConnectionFactory, XASession
from tests.background import Background
from tests.faults.proxy import CutPoint, CuttingProxy
from tests.forked import ForkedProcess
from tests.integration.client.server import SESSIONS, Server
from tests.integration.two_phase_commit.global_transactions import XID, messages_there, send, texts_there
from tests.slowness import scaled
from tests.texts import receive, receive_texts, send_texts


def prepare_without_end(connection: psycopg.Connection) -> None:
    for number in itertools.count():
        connection.execute("begin")
        connection.execute(f"prepare transaction 'filler {number}'".encode())


@pytest.mark.parametrize("commits", [True, False])
def test_another_session_ends_the_prepared_transaction_of_a_closed_one(
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
    waiting = Background(lambda: others.create_consumer(replies if commits else queue).receive(timeout=60))
    waiting.wait_until_it_waits()
    started = time.monotonic()
    (xa_session.tpc_commit if commits else xa_session.tpc_rollback)(XID)
    woken = waiting.result()
    assert woken is not None
    assert time.monotonic() - started < scaled(5.0), "found by polling"
    assert woken.get_body(str) == ("A" if commits else "a")
    assert woken.jms_redelivered is not commits
    assert texts_there(others, queue) == ([] if commits else ["b"])
    assert xa_session.tpc_recover() == []
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]


def test_a_batch_ends_with_the_commit_of_a_prepared_transaction(
    xa_session: XASession, connection: Connection, others: Session, queue: Queue
) -> None:
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send(queue, "one")
    xa_session.tpc_begin(XID)
    receive_texts(xa_session.create_consumer(queue), 1)
    xa_session.tpc_prepare()
    assert jmsql.batch_progress(connection, batch.id).waiting == 1
    xa_session.tpc_commit()
    ending = others.create_consumer(Queue("ends"))
    message = ending.receive(60)
    assert message is not None
    assert jmsql.batch_progress(connection, batch.id).is_ended
    assert ending.receive_no_wait() is None


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
    process = ForkedProcess(_prepare_and_wait, jmsql_clean_url)
    try:
        assert process.read_line() == "prepared\n"
    finally:
        process.kill()
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


@pytest.mark.parametrize("ending", ["tpc_prepare", "tpc_commit"])
@pytest.mark.parametrize("cut_point", CutPoint)
def test_a_connection_that_breaks_at_the_end_leaves_the_outcome_unknown(
    xa_session: XASession,
    xa_factory: XAConnectionFactory,
    others: Session,
    queue: Queue,
    ending: str,
    cut_point: CutPoint,
) -> None:
    assert xa_factory.url is not None
    with CuttingProxy(xa_factory.url) as proxy:
        through_proxy = dataclasses.replace(xa_factory, url=proxy.url, control_url=xa_factory.url)
        with through_proxy.create_xa_connection() as connection:
            connection.start()
            session = connection.create_xa_session()
            session.tpc_begin(XID)
            send(session, queue, "a")
            session.database.execute(sqlalchemy.text("select 1"))  # the message is inserted
            proxy.cut(cut_point)
            with pytest.raises(jmsql.JMSException) as broken:
                getattr(session, ending)()
            assert broken.value.error_code == "08007"
            for call in (session.tpc_prepare, session.tpc_commit):
                with pytest.raises(IllegalStateException, match=r"not known .* call tpc_rollback\(\)"):
                    call()
            with pytest.raises(IllegalStateException, match=r"; call tpc_rollback\(\) first"):
                send(session, queue, "b")
            session.tpc_rollback()
            send(session, queue, "c")
            session.commit()
    was_committed = ending == "tpc_commit" and cut_point is not CutPoint.BEFORE_REQUEST
    assert texts_there(others, queue) == (["a", "c"] if was_committed else ["c"])
    assert xa_session.tpc_recover() == []


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
    with pytest.raises(TransactionRolledBackException, match="was lost") as cut:
        xa_session.tpc_prepare()
    assert cut.value.error_code == "08006"
    with pytest.raises((IllegalStateException, TransactionRolledBackException), match=r"tpc_rollback\(\)"):
        xa_session.tpc_commit()
    xa_session.tpc_rollback()

    xa_session.tpc_begin(XID)
    send(xa_session, queue, "kept")
    xa_session.tpc_prepare()
    assert server.terminate(SESSIONS)
    xa_session.tpc_commit()
    assert texts_there(others, queue) == ["kept"]


def test_transaction_that_another_client_has_ended_frees_the_session(
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


def test_transaction_of_others_with_another_form_of_name_is_left_alone(
    xa_session: XASession, jmsql_clean_url: str
) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        connection.execute("select pg_current_xact_id()")
        connection.execute("prepare transaction 'nightly job'")
    assert xa_session.tpc_recover() == []


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
