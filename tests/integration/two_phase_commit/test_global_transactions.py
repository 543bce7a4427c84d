"""Global transactions: begun, prepared and finished by the same session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    IllegalStateException,
    JMSException,
    Message,
    Queue,
    Session,
    Topic,
    TransactionInProgressException,
)
from jmsql.testing import receive_all, wait_for
from jmsql.xa import XAConnection, XASession, Xid
from tests.integration.client.server import Server
from tests.integration.two_phase_commit.global_transactions import XID, messages_there, send, texts_there
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")


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
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


def test_sends_undone_by_a_savepoint_are_not_prepared(
    xa_session: XASession, others: Session, server: Server, queue: Queue
) -> None:
    send_texts(others, queue, "a", "b")
    replies = Queue("replies")
    consumer = xa_session.create_consumer(queue)
    xa_session.tpc_begin(XID)
    database = xa_session.database
    assert receive_texts(consumer, 1) == ["a"]
    send(xa_session, replies, "A")
    savepoint = database.begin_nested()
    assert receive_texts(consumer, 1) == ["b"]
    send(xa_session, replies, "B")
    savepoint.rollback()
    xa_session.tpc_prepare()
    xa_session.tpc_commit()
    assert texts_there(others, replies) == ["A"]
    message = receive(others.create_consumer(queue))
    assert (message.get_body(str), message.jms_redelivered) == ("b", True)
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.delivery") == [(0,)])


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
    assert server.rows(
        "select (select count(*) from jmsql_internal.message), (select count(*) from jmsql_internal.delivery)"
    ) == [(0, 0)]


def test_several_messages_are_received_once_each(xa_session: XASession, others: Session, queue: Queue) -> None:
    send_texts(others, queue, *"abcdef")
    consumer, other_consumer = xa_session.create_consumer(queue), xa_session.create_consumer(queue)
    xa_session.tpc_begin(XID)
    assert receive_texts(consumer, 2) + receive_texts(other_consumer, 2) == list("abcd")
    xa_session.tpc_rollback()
    xa_session.tpc_begin(XID)
    assert texts_of(receive_all(consumer)) == list("abcdef")
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
