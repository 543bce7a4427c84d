"""A consumer that closes in an open transaction releases what it has fetched and not delivered."""

from __future__ import annotations

import pytest

from jmsql import Connection, ConnectionFactory, MessageConsumer, Queue, Session
from jmsql.admin import Administration
from jmsql.testing import receive_all
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_of

ORDERS, OTHERS = Queue("orders"), Queue("others")
TEXTS = [str(number) for number in range(40)]
OPEN_TRANSACTIONS = """
    select from pg_stat_activity where state = 'idle in transaction' and datname = current_database()
    """
RECEIVED = 20
"""The consumer then holds others: it has fetched one, two, four, eight and sixteen messages."""


@pytest.fixture(params=[None, 5], ids=["", "policy"])
def transacted(request: pytest.FixtureRequest, factory: ConnectionFactory, connection: Connection) -> Session:
    """A session; the messages of its queue are locked, or claimed where a policy counts deliveries."""
    with Administration(factory) as administration:
        administration.create_queue(ORDERS.name, maximum_deliveries=request.param)
    return connection.create_session(transacted=True)


@pytest.fixture
def closed(transacted: Session, others: Session) -> MessageConsumer:
    """A consumer of the session that has closed after it has received some of the messages."""
    send_texts(others, ORDERS, *TEXTS)
    consumer = transacted.create_consumer(ORDERS)
    assert receive_texts(consumer, RECEIVED) == TEXTS[:RECEIVED]
    consumer.close()
    return consumer


def rows(server: Server, table: str) -> int:
    count: int = server.rows(f"select count(*) from jmsql_internal.{table}")[0][0]
    return count


@pytest.mark.usefixtures("closed")
def test_other_consumers_receive_the_rest_in_its_order(transacted: Session, others: Session, server: Server) -> None:
    assert texts_of(receive_all(others.create_consumer(ORDERS))) == TEXTS[RECEIVED:]
    transacted.commit()
    assert (rows(server, "message"), rows(server, "delivery")) == (0, 0)


@pytest.mark.usefixtures("closed")
def test_delivered_messages_come_back_after_a_rollback(transacted: Session, others: Session, server: Server) -> None:
    consumer = others.create_consumer(ORDERS)
    assert receive_texts(consumer, 1) == [TEXTS[RECEIVED]]
    transacted.rollback()
    back = receive_all(others.create_consumer(ORDERS))
    assert texts_of(back) == TEXTS[:RECEIVED] + TEXTS[RECEIVED + 1 :]
    assert [message.jms_redelivered for message in back] == [number < RECEIVED for number in range(len(TEXTS) - 1)]
    assert (rows(server, "message"), rows(server, "delivery")) == (0, 0)


@pytest.mark.usefixtures("closed")
def test_the_transaction_goes_on(transacted: Session, others: Session, server: Server) -> None:
    transacted.create_producer(OTHERS).send(transacted.create_text_message("sent"))
    assert receive_texts(transacted.create_consumer(ORDERS), 5) == TEXTS[RECEIVED : RECEIVED + 5]
    transacted.commit()
    assert texts_of(receive_all(others.create_consumer(ORDERS))) == TEXTS[RECEIVED + 5 :]
    assert texts_of(receive_all(others.create_consumer(OTHERS))) == ["sent"]
    assert (rows(server, "message"), rows(server, "delivery")) == (0, 0)


def test_messages_that_came_back_before_are_committed(transacted: Session, others: Session, server: Server) -> None:
    send_texts(others, ORDERS, *TEXTS)
    receive_texts(transacted.create_consumer(ORDERS), RECEIVED)
    transacted.rollback()
    consumer = transacted.create_consumer(ORDERS)
    received = receive_texts(consumer, RECEIVED + 3)
    consumer.close()
    transacted.commit()
    assert sorted(received + texts_of(receive_all(others.create_consumer(ORDERS))), key=int) == TEXTS
    assert (rows(server, "message"), rows(server, "delivery")) == (0, 0)


def test_the_application_s_transaction_goes_on_in_which_its_thread_may_be_about_to_work(
    factory: ConnectionFactory, others: Session, server: Server
) -> None:
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        session.database.exec_driver_sql("select")
        session.commit()
        send_texts(others, ORDERS, *TEXTS)
        consumer = session.create_consumer(ORDERS)
        receive_texts(consumer, RECEIVED)
        consumer.close()
        assert server.rows(OPEN_TRANSACTIONS)
        session.commit()
    assert texts_of(receive_all(others.create_consumer(ORDERS))) == TEXTS[RECEIVED:]


def test_another_consumer_of_the_session_goes_on(transacted: Session, others: Session, server: Server) -> None:
    send_texts(others, ORDERS, *TEXTS)
    first, second = transacted.create_consumer(ORDERS), transacted.create_consumer(ORDERS)
    received = receive_texts(first, 10) + receive_texts(second, 10)
    first.close()
    received += texts_of(receive_all(second))
    assert sorted(received, key=int) == TEXTS
    transacted.commit()
    assert (rows(server, "message"), rows(server, "delivery")) == (0, 0)
