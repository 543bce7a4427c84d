"""How many messages went through each destination is counted by the clients, and kept in the database."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import sqlalchemy

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session, Topic, enlist
from jmsql.store.control.counters import Counts, meters
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server


def counters(server: Server, destination: str, subscription: str | None = None) -> Counts | None:
    rows = server.rows(
        "select sent, acknowledged, rolled_back, redelivered from jmsql.counters "
        "where destination = %s and subscription is not distinct from %s",
        destination,
        subscription,
    )
    return Counts(*rows[0]) if rows else None


def send(session: Session, destination: Any, number: int) -> None:
    producer = session.create_producer(destination)
    for index in range(number):
        producer.send(session.create_text_message(str(index)))


def test_sends_count_with_their_commit(connection: Connection, queue: Queue, server: Server) -> None:
    send(connection.create_session(), queue, 2)
    transacted = connection.create_session(transacted=True)
    send(transacted, queue, 3)
    transacted.commit()
    send(transacted, queue, 5)
    transacted.rollback()
    connection.close()
    assert counters(server, "orders") == Counts(sent=5)


def test_asynchronous_sends_count(connection: Connection, queue: Queue, server: Server) -> None:
    session = connection.create_session()
    producer = session.create_producer(queue)
    for _ in range(10):
        producer.send(session.create_message(), completion_listener=lambda message, error: None)
    connection.close()
    assert counters(server, "orders") == Counts(sent=10)


def test_it_is_written_down_while_the_client_lives(session: Session, queue: Queue, server: Server) -> None:
    send(session, queue, 1)
    assert wait_for(lambda: counters(server, "orders")) == Counts(sent=1)


def test_a_transaction_that_is_rolled_back_and_done_again(connection: Connection, queue: Queue, server: Server) -> None:
    session = connection.create_session(transacted=True)
    send(session, queue, 2)
    session.commit()
    consumer = session.create_consumer(queue)
    assert len(receive_all(consumer)) == 2
    session.rollback()
    assert len(receive_all(consumer)) == 2
    session.commit()
    connection.close()
    assert counters(server, "orders") == Counts(sent=2, acknowledged=2, rolled_back=2, redelivered=2)


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
def test_acknowledgements_count(
    mode: AcknowledgeMode, mode_session: Session, connection: Connection, queue: Queue, server: Server
) -> None:
    send(mode_session, queue, 3)
    messages = receive_all(mode_session.create_consumer(queue))
    messages[-1].acknowledge()
    connection.close()
    assert counters(server, "orders") == Counts(sent=3, acknowledged=3)


def test_recovered_messages_count_as_rolled_back(connection: Connection, queue: Queue, server: Server) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send(session, queue, 1)
    consumer = session.create_consumer(queue)
    consumer.receive(0)
    session.recover()
    message = consumer.receive(0)
    assert message is not None
    message.acknowledge()
    connection.close()
    assert counters(server, "orders") == Counts(sent=1, acknowledged=1, rolled_back=1, redelivered=1)


def test_a_topic_counts_published_messages_and_each_subscription_received_ones(
    factory: ConnectionFactory, server: Server
) -> None:
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        consumers = [session.create_shared_durable_consumer(Topic("prices"), name) for name in ("audit", "desk")]
        send(session, Topic("prices"), 2)
        assert [len(receive_all(consumer)) for consumer in consumers] == [2, 2]
    assert counters(server, "prices") == Counts(sent=2)
    assert counters(server, "prices", "audit") == counters(server, "prices", "desk") == Counts(acknowledged=2)
    with factory.create_connection() as connection:
        for name in ("audit", "desk"):
            connection.create_session().unsubscribe(name)
        # A client that is connected removes the queues.
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.destination_counters") == [(1,)])


def test_counts_that_cannot_be_written_down_are_kept(
    connection: Connection, queue: Queue, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    session = connection.create_session()
    send(session, queue, 1)
    wait_for(lambda: counters(server, "orders"))
    server.rows("alter table jmsql_internal.destination_counters rename to elsewhere")
    try:
        send(session, queue, 1)
        wait_for(lambda: "Counters were not recorded" in caplog.text)
    finally:
        server.rows("alter table jmsql_internal.elsewhere rename to destination_counters")
    wait_for(lambda: counters(server, "orders") == Counts(sent=2))


def test_a_meter_counts_the_sends_of_enlisted_sessions(jmsql_clean_url: str) -> None:
    measured: list[tuple[str, Counts]] = []

    def meter(destination: object, counts: Counts) -> None:
        measured.append((str(destination), counts))

    meters.add(meter)
    try:
        url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(url) as database:
            enlist(database).create_producer().send(Queue("orders"), "hello")
    finally:
        meters.discard(meter)
    assert measured == [("queue://orders", Counts(sent=1))]
