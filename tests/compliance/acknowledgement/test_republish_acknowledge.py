"""Sending a received message on, then acknowledging it: JMS 1.1 chapter 4.4.11."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue
from jmsql.testing import receive_all
from tests.texts import receive, send_texts, texts_left, texts_of


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE")
@pytest.mark.case("session-republish-acknowledge-01")
def test_message_sent_on_to_another_queue_is_acknowledged_where_it_came_from(
    jmsql_factory: ConnectionFactory, connection: Connection, queue: Queue
) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    onward = Queue("onward")
    send_texts(session, queue, "a", "b")
    consumer = session.create_consumer(queue)
    message = receive(consumer)
    session.create_producer(onward).send(message)
    message.acknowledge()
    session.recover()
    assert texts_of(receive_all(consumer)) == ["b"]
    assert texts_of(receive_all(session.create_consumer(onward))) == ["a"]
    connection.close()
    assert texts_left(jmsql_factory, onward) == ["a"]


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE")
@pytest.mark.case("session-republish-acknowledge-01")
def test_copy_sent_to_the_same_queue_is_a_message_of_its_own(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(session, queue, "a")
    consumer = session.create_consumer(queue)
    message = receive(consumer)
    original_id = message.jms_message_id
    session.create_producer(queue).send(message)
    message.acknowledge()
    session.recover()
    (copy,) = receive_all(consumer)
    assert copy.get_body(str) == "a"
    assert copy.jms_message_id == message.jms_message_id != original_id
    assert not copy.jms_redelivered
