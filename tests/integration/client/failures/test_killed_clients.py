"""Clients that are killed: what they held comes back, without anybody's help and without a timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jmsql import AcknowledgeMode, Queue, Session
from jmsql.testing import receive_all
from tests.integration.client.client_process import Order, client_process
from tests.slowness import scaled
from tests.texts import receive, send_texts, texts_of

TEXTS = ["a", "b", "c", "d"]
HELD = 2
AT_ONCE = scaled(15.0)
"""Seconds, three times the usual maximum. Maintenance looks for dead clients once a second, and spares those that have
been connected for two seconds or less."""

LISTENER = Order("LISTENER", AcknowledgeMode.AUTO.name, receives=HELD, listens=True)
ORDERS = [*(Order(mode.name, mode.name, receives=HELD) for mode in AcknowledgeMode), LISTENER]


@pytest.fixture
def killed(jmsql_clean_url: str, others: Session) -> Iterator[float]:
    """When a client was killed that had received two of the four messages in each of its queues."""
    for order in ORDERS:
        send_texts(others, Queue(order.queue), *TEXTS)
    with client_process(jmsql_clean_url, *ORDERS) as client:
        client.wait_until_ready()
        received = client.received(HELD * len(ORDERS))
        assert sorted(received) == sorted([order.queue, text] for order in ORDERS for text in TEXTS[:HELD])
        client.kill()
        yield time.monotonic()


def test_the_messages_of_a_killed_transaction_come_back_redelivered_under_a_policy(
    jmsql_clean_url: str, others: Session
) -> None:
    queue = Queue("recorded")
    send_texts(others, queue, *TEXTS)
    with client_process(
        jmsql_clean_url, Order(queue.name, AcknowledgeMode.TRANSACTED.name, receives=HELD, records=True)
    ) as client:
        client.wait_until_ready()
        client.received(HELD)
        client.kill()
    consumer = others.create_consumer(queue)
    messages = sorted((receive(consumer) for _ in TEXTS), key=lambda message: str(message.get_body(str)))
    assert texts_of(messages) == TEXTS
    assert all(message.jms_redelivered for message in messages[:HELD])


def test_messages_held_come_back_at_once(others: Session, killed: float) -> None:
    for mode in (AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK):
        consumer = others.create_consumer(Queue(mode.name))
        messages = sorted((receive(consumer) for _ in TEXTS), key=lambda message: str(message.get_body(str)))
        assert time.monotonic() - killed < AT_ONCE
        assert texts_of(messages) == TEXTS
        assert receive_all(consumer) == []
        # A claim shows that a message may have been delivered; a transaction without a policy shows nothing.
        is_counted = mode is not AcknowledgeMode.TRANSACTED
        assert all(message.jms_redelivered == is_counted for message in messages[:HELD])

    consumer = others.create_consumer(Queue(LISTENER.queue))
    messages = sorted((receive(consumer) for _ in TEXTS[1:]), key=lambda message: str(message.get_body(str)))
    assert time.monotonic() - killed < AT_ONCE
    assert texts_of(messages) == TEXTS[1:], "the listener had returned from the first"
    assert messages[0].jms_redelivered
    assert receive_all(consumer) == []

    # AUTO: each message is acknowledged before receive returns it.
    left = receive_all(others.create_consumer(Queue(AcknowledgeMode.AUTO.name)))
    assert texts_of(left) == TEXTS[HELD:]
    assert not any(message.jms_redelivered for message in left)
