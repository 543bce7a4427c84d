"""Claims on messages: without its claim a client cannot acknowledge, and the message goes to another."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, JMSException, Queue, Session
from jmsql.testing import receive_all
from tests.integration.client.server import CONTROL, Server
from tests.texts import receive, receive_texts, send_texts


@pytest.fixture
def claiming(connection: Connection, server: Server) -> Session:
    """A session of a client that seems to have connected long ago; maintenance spares those that only just did."""
    server.rows("update jmsql_internal.connection set started_at = started_at - interval '1 minute'")
    return connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)


def test_claim_that_was_taken_away_acknowledges_nothing(
    claiming: Session, other_connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    send_texts(others, queue, "a")
    first = receive(claiming.create_consumer(queue))
    server.terminate(CONTROL)  # to the server the client is gone, although it is not

    taking = other_connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = taking.create_consumer(queue)
    second = receive(consumer)
    assert second.jms_message_id == first.jms_message_id
    assert second.jms_redelivered

    with pytest.raises(JMSException, match="1 of 1 messages could not be acknowledged"):
        first.acknowledge()
    taking.recover()
    again = receive(consumer)
    assert again.jms_message_id == first.jms_message_id, "the first client's acknowledgement had no effect"
    again.acknowledge()
    taking.recover()
    assert receive_all(consumer) == []


def test_claims_that_hold_are_acknowledged_beside_one_that_was_taken_away(
    claiming: Session, others: Session, server: Server, queue: Queue
) -> None:
    send_texts(others, queue, "a", "b", "c")
    consumer = claiming.create_consumer(queue)
    assert receive_texts(consumer, 2) == ["a", "b"]
    message = receive(consumer)
    server.rows(
        "update jmsql_internal.delivery set claim_id = null, connection_id = null, claimed_at = null "
        "where sequence = (select min(sequence) from jmsql_internal.message)"
    )
    with pytest.raises(JMSException, match="1 of 3 messages could not be acknowledged"):
        message.acknowledge()
    claiming.recover()
    assert receive_texts(consumer, 1) == ["a"]


def test_released_claim_does_not_take_the_message_from_its_new_holder(
    claiming: Session, other_connection: Connection, others: Session, server: Server, queue: Queue
) -> None:
    send_texts(others, queue, "a")
    assert receive_texts(claiming.create_consumer(queue), 1) == ["a"]
    server.rows("update jmsql_internal.delivery set claim_id = null, connection_id = null, claimed_at = null")
    taking = other_connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    second = receive(taking.create_consumer(queue))
    claiming.recover()
    claiming.close()
    assert receive_all(others.create_consumer(queue)) == []
    second.acknowledge()
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]
