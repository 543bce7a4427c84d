"""Transacted sessions under a policy claim what they receive: what that costs, and what happens when they fail."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from jmsql import Connection, ConnectionFactory, JMSException, Message, Queue, Session, TransactionRolledBackException
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.faults.proxy import CutPoint, CuttingProxy
from tests.integration.client.client_process import Order, client_process
from tests.integration.client.server import Server
from tests.texts import receive, receive_texts, send_texts, texts_of

CLAIMED = "select count(*) from jmsql_internal.delivery where claim_id is not null"
DELIVERIES = "select count(*) from jmsql_internal.delivery"
PATIENCE = 60.0


@pytest.fixture
def fragile(queue: Queue, administration: Administration) -> Queue:
    """A queue with a policy."""
    administration.create_queue(queue.name, maximum_deliveries=3)
    return queue


@pytest.fixture
def session(connection: Connection) -> Session:
    connection.start()
    return connection.create_session(transacted=True)


@pytest.fixture
def proxy(jmsql_clean_url: str) -> Iterator[CuttingProxy]:
    with CuttingProxy(jmsql_clean_url) as proxy:
        yield proxy


@pytest.mark.parametrize("batch", [1, 20])
def test_a_transaction_takes_two_exchanges_as_without_a_policy(
    proxy: CuttingProxy, jmsql_clean_url: str, others: Session, fragile: Queue, batch: int
) -> None:
    transactions, first, before = 30, 10, 0
    send_texts(others, fragile, *("x" for _ in range(transactions * batch)))
    with (
        ConnectionFactory(proxy.url, control_url=jmsql_clean_url).create_connection() as connection,
        connection.create_session(transacted=True) as session,
        session.create_consumer(fragile) as consumer,
    ):
        connection.start()
        for number in range(transactions):
            if number == first:
                before = proxy.requests
            receive_texts(consumer, batch)
            session.commit()
        exchanges = (proxy.requests - before) / (transactions - first)
    assert 2.0 <= exchanges < 2.5


@pytest.mark.parametrize("cut_point", CutPoint)
def test_a_commit_that_is_cut_deletes_the_message_or_counts_its_delivery(
    proxy: CuttingProxy,
    jmsql_clean_url: str,
    connection: Connection,
    others: Session,
    fragile: Queue,
    server: Server,
    cut_point: CutPoint,
) -> None:
    send_texts(others, fragile, "a", "b")
    with (
        # The next request is the commit: those of the control connection go another way.
        ConnectionFactory(proxy.url, control_url=jmsql_clean_url).create_connection() as other,
        other.create_session(transacted=True) as session,
        session.create_consumer(fragile) as consumer,
    ):
        other.start()
        assert receive_texts(consumer, 1) == ["a"]
        proxy.cut(cut_point)
        with pytest.raises(JMSException):
            session.commit()
    connection.start()
    wait_for(lambda: server.rows(CLAIMED) == [(0,)], PATIENCE)
    left = receive_all(others.create_consumer(fragile))
    if cut_point is CutPoint.BEFORE_RESPONSE:
        assert [(message.get_body(str), message.jms_redelivered) for message in left] == [("b", False)]
    else:
        counts = {message.get_body(str): message.get_int_property("JMSXDeliveryCount") for message in left}
        assert counts == {"a": 2, "b": 1}
    assert server.rows(DELIVERIES) == [(0,)]


@pytest.mark.parametrize("receives", [1, 5])
def test_a_commit_fails_if_a_claim_was_lost_and_others_get_the_message(
    session: Session, others: Session, fragile: Queue, server: Server, receives: int
) -> None:
    texts = [str(number) for number in range(receives)]
    send_texts(others, fragile, *texts)
    consumer = session.create_consumer(fragile)
    assert receive_texts(consumer, receives) == texts
    session.create_producer(Queue("effects")).send(session.create_text_message("effect"))
    server.rows(
        "update jmsql_internal.delivery "
        "set claim_id = null, connection_id = null, claimed_at = null, delivery_count = 1 "
        "where sequence = (select max(sequence) from jmsql_internal.delivery) returning 1"
    )
    with pytest.raises(TransactionRolledBackException, match="taken away"):
        session.commit()
    session.close()
    assert sorted(texts_of(receive_all(others.create_consumer(fragile)))) == texts
    assert receive_all(others.create_consumer(Queue("effects"))) == []


def test_a_message_that_the_application_deletes_is_still_behind_its_claim(
    session: Session, others: Session, fragile: Queue, server: Server
) -> None:
    send_texts(others, fragile, "a", "b", "c")
    consumer = session.create_consumer(fragile)
    assert receive_texts(consumer, 1) == ["a"]
    assert server.rows(CLAIMED) == [(1,)]
    session.database.exec_driver_sql("create table effect (text text)")
    server.rows("update jmsql_internal.delivery set claim_id = 0 returning 1")
    with pytest.raises(TransactionRolledBackException, match="taken away"):
        session.commit()
    assert server.rows("select to_regclass('effect')") == [(None,)]

    server.rows("delete from jmsql_internal.delivery returning 1")
    assert receive_texts(consumer, 1) == ["a"]
    session.database.exec_driver_sql("create table effect (text text)")
    assert receive_texts(consumer, 2) == ["b", "c"]
    session.commit()
    server.rows("drop table effect")
    assert receive_all(others.create_consumer(fragile)) == []
    assert server.rows(DELIVERIES) == [(0,)]


def test_a_message_that_was_delivered_before_is_received_alone_and_in_its_place(
    session: Session, others: Session, fragile: Queue, server: Server
) -> None:
    send_texts(others, fragile, *"abcde")
    consumer = session.create_consumer(fragile)
    assert receive_texts(consumer, 1) == ["a"]
    session.rollback()
    received = [receive(consumer) for _ in range(5)]
    assert [(message.get_body(str), message.get_int_property("JMSXDeliveryCount")) for message in received] == [
        ("a", 2),
        *((text, 1) for text in "bcde"),
    ]
    session.commit()
    assert server.rows(DELIVERIES) == [(0,)]


def test_claimed_and_undelivered_messages_are_free_after_the_transaction_and_count_as_new(
    session: Session, others: Session, fragile: Queue
) -> None:
    texts = [f"{number:03}" for number in range(60)]
    send_texts(others, fragile, *texts)
    consumer = session.create_consumer(fragile)
    receive_texts(consumer, 20)
    session.commit()
    receive_texts(consumer, 5)
    session.commit()
    left = receive_all(others.create_consumer(fragile))
    assert texts_of(left) == texts[25:]
    assert not any(message.jms_redelivered for message in left)


@pytest.mark.parametrize("request_number", range(12))
def test_a_client_that_is_killed_at_any_exchange_loses_nothing_and_doubles_nothing(
    proxy: CuttingProxy, others: Session, fragile: Queue, server: Server, request_number: int
) -> None:
    texts = [str(number) for number in range(400)]
    send_texts(others, fragile, *texts)
    with client_process(proxy.url, Order(fragile.name, "TRANSACTED")) as client:
        client.wait_until_ready()
        told = client.received(20)
        target = proxy.requests + request_number
        wait_for(lambda: proxy.requests >= target, PATIENCE)
        os.kill(client.process_id, signal.SIGKILL)
        told += [[fragile.name, text] for text in client.texts_until_it_stops()]
    committed = {text for _, text in told}
    left: list[Message] = []

    def is_empty() -> bool:
        # What the client has sent before its death may still take effect, and is found again a moment later.
        left.extend(receive_all(consumer))
        return server.rows("select count(*) from jmsql_internal.message") == [(0,)]

    with others.create_consumer(fragile) as consumer:
        wait_for(is_empty, PATIENCE)
    assert committed.isdisjoint(texts_of(left))
    missing = set(texts) - committed - set(texts_of(left))
    assert len(missing) <= 1, "the client has told of all but the last one, which it had committed"
    again = [message for message in left if message.jms_redelivered]
    assert len(again) <= 1
    assert all(message.get_int_property("JMSXDeliveryCount") == 2 for message in again)
