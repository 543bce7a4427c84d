"""Clients that are killed while they hold messages: each delivery counts, however it ended."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Queue, Session, TransactionRolledBackException
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.client_process import Order, client_process
from tests.integration.client.server import SESSIONS, Server
from tests.texts import receive, send_texts, texts_of

HELD = 1
PATIENCE = 60.0
ORDERS = [
    *(
        Order(mode.name, mode.name, receives=HELD)
        for mode in (AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK)
    ),
    Order("LISTENER", AcknowledgeMode.AUTO.name, receives=HELD, listens=True),
]


def kill_a_client_that_holds(url: str, *orders: Order, texts: set[str]) -> None:
    """Have a client receive, and kill it."""
    with client_process(url, *orders) as client:
        client.wait_until_ready()
        received = client.received(sum(order.receives or 0 for order in orders))
        assert {text for _, text in received} == texts
        client.kill()


def test_each_death_counts_and_poison_goes_to_the_dead_letter_queue(
    jmsql_clean_url: str, others: Session, administration: Administration, server: Server
) -> None:
    for order in ORDERS:
        administration.create_queue(order.queue, maximum_deliveries=2)
        send_texts(others, Queue(order.queue), "poison", "good")

    kill_a_client_that_holds(jmsql_clean_url, *ORDERS, texts={"poison"})
    held = "select queue, delivery_count from jmsql.messages where body = 'poison' and state = 'ready' order by queue"
    counted = sorted((order.queue, 1) for order in ORDERS)
    wait_for(lambda: server.rows(held) == counted, PATIENCE)
    assert server.rows("select distinct error_count from jmsql_internal.delivery") == [(0,)]  # nothing was raised
    for order in ORDERS:
        with others.create_browser(Queue(order.queue)) as browser:
            poison, good = browser
            assert poison.jms_redelivered, order
            assert poison.get_int_property("JMSXDeliveryCount") == 2
            assert not good.jms_redelivered, order

    kill_a_client_that_holds(jmsql_clean_url, *ORDERS, texts={"poison"})
    dead = "select original_destination, deliveries, error from jmsql.dead_letters order by original_destination"
    error = "the client went away without acknowledging"
    wait_for(lambda: len(server.rows(dead)) == len(ORDERS), PATIENCE)
    assert server.rows(dead) == sorted((f"queue://{order.queue}", 2, error) for order in ORDERS)
    for order in ORDERS:
        left = receive_all(others.create_consumer(Queue(order.queue)))
        assert texts_of(left) == ["good"]
        assert not left[0].jms_redelivered
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


def test_messages_fetched_with_a_poison_message_are_blamed_at_most_once(
    jmsql_clean_url: str, others: Session, administration: Administration, server: Server
) -> None:
    orders = [Order(mode.name, mode.name, receives=5) for mode in (AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT)]
    texts = [f"{number}" for number in range(1, 21)]
    for order in orders:
        administration.create_queue(order.queue, maximum_deliveries=3)
        send_texts(others, Queue(order.queue), *texts)
    counts = "select delivery_count from jmsql.messages where queue = %s order by sequence"

    kill_a_client_that_holds(jmsql_clean_url, *orders, texts=set(texts[:5]))
    nobody_holds = "select count(*) from jmsql.messages where state = 'claimed'"
    wait_for(lambda: server.rows(nobody_holds) == [(0,)], PATIENCE)
    batches = {}
    for order in orders:
        batches[order.queue] = found = [count for (count,) in server.rows(counts, order.queue)]
        assert found[:5] == [1] * 5
        assert set(found) <= {0, 1}
        assert 0 in found[5:], "what was not fetched"

    singly = [Order(order.queue, order.mode, receives=1) for order in orders]
    kill_a_client_that_holds(jmsql_clean_url, *singly, texts={"1"})
    wait_for(lambda: server.rows(nobody_holds) == [(0,)], PATIENCE)
    for order in orders:
        assert [count for (count,) in server.rows(counts, order.queue)] == [2, *batches[order.queue][1:]]


def test_a_transaction_that_lost_its_connection_counts(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, maximum_deliveries=2)
    send_texts(others, queue, "a")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    receive(consumer)
    server.terminate(SESSIONS)
    with pytest.raises(TransactionRolledBackException):
        session.commit()
    again = receive(consumer)
    assert again.get_int_property("JMSXDeliveryCount") == 2
    session.commit()
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]
