"""Global transactions with a context: a connection and a session in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy

from jmsql import AcknowledgeMode, IllegalStateException, Queue, Session, TransactionInProgressException
from jmsql.testing import wait_for
from jmsql.xa import XAConnectionFactory, XAJMSContext, XASession
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.integration.two_phase_commit.global_transactions import XID, texts_there
from tests.texts import send_texts


@pytest.fixture
def context(
    xa_factory: XAConnectionFactory, xa_session: object, prepared: Callable[[], list[str]]
) -> Iterator[XAJMSContext]:
    with xa_factory.create_xa_context() as context:
        yield context


def test_receipts_and_sends_are_prepared_together(context: XAJMSContext, others: Session, queue: Queue) -> None:
    replies = Queue("replies")
    send_texts(others, queue, "a")
    consumer, producer = context.create_consumer(queue), context.create_producer()
    assert context.xid(*XID) == XID
    context.tpc_begin(XID)
    assert consumer.receive_body(str, timeout=60) == "a"
    producer.send(replies, "A")
    context.tpc_prepare()
    assert context.tpc_recover() == [XID]
    assert texts_there(others, replies) == []
    context.tpc_commit()
    assert texts_there(others, replies) == ["A"]
    assert texts_there(others, queue) == []


def test_a_rollback_delivers_again(context: XAJMSContext, others: Session, queue: Queue) -> None:
    send_texts(others, queue, "a")
    consumer = context.create_consumer(queue)
    context.tpc_begin(XID)
    assert consumer.receive_body(str, timeout=60) == "a"
    context.tpc_rollback()
    again = consumer.receive(timeout=60)
    assert again is not None
    assert again.jms_redelivered
    context.commit()
    assert texts_there(others, queue) == []


def test_its_session_shares_the_transaction_with_the_application(
    context: XAJMSContext, server: Server, table: str
) -> None:
    assert isinstance(context.session, XASession)
    context.tpc_begin(XID)
    context.session.database.execute(sqlalchemy.text(f"insert into {table} values ('kites')"))
    context.tpc_prepare()
    assert server.rows("select goods from shipment") == []
    context.tpc_commit()
    assert server.rows("select goods from shipment") == [("kites",)]


def test_another_context_ends_the_prepared_transaction_of_a_closed_one(
    context: XAJMSContext, xa_factory: XAConnectionFactory, others: Session, queue: Queue
) -> None:
    with xa_factory.create_xa_context() as client:
        client.tpc_begin(XID)
        client.create_producer().send(queue, "a")
        client.tpc_prepare()
    assert context.tpc_recover() == [XID]
    context.tpc_commit(XID)
    assert texts_there(others, queue) == ["a"]


def test_its_own_transaction_is_not_ended_within_a_global_one(
    context: XAJMSContext, others: Session, queue: Queue
) -> None:
    assert context.transacted
    assert context.session_mode is AcknowledgeMode.TRANSACTED
    context.create_producer().send(queue, "own")
    with pytest.raises(TransactionInProgressException):
        context.tpc_begin(XID)
    context.commit()
    context.tpc_begin(XID)
    for end in (context.commit, context.rollback):
        with pytest.raises(TransactionInProgressException):
            end()
    context.tpc_rollback()
    with pytest.raises(IllegalStateException, match="no global transaction"):
        context.tpc_prepare()
    assert texts_there(others, queue) == ["own"]


def test_it_takes_a_client_identifier(context: XAJMSContext) -> None:
    context.client_id = "warehouse"
    assert context.client_id == "warehouse"


def test_closing_it_ends_its_connections(
    context: XAJMSContext, xa_factory: XAConnectionFactory, server: Server
) -> None:
    before = server.connections(SESSIONS), server.connections(CONTROL)
    with xa_factory.create_xa_context() as another:
        another.create_producer().send(Queue("orders"), "lost")
    wait_for(lambda: (server.connections(SESSIONS), server.connections(CONTROL)) == before)
    with pytest.raises(IllegalStateException):
        another.tpc_begin(XID)
