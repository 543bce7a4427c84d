"""JMSMessageID: JMS 1.1 chapters 3.4.3 and 3.4.11."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, DeliveryMode, Message, Queue, Session
from jmsql.testing import receive_all
from tests.compliance.filled_messages import CLASSES, filled
from tests.exchange import exchange

pytestmark = pytest.mark.usefixtures("shared_connection")


@pytest.mark.requirement("message.identifier")
@pytest.mark.case("header-message-id-01")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_send_assigns_it_and_the_receiver_sees_the_same(
    connection: Connection, queue: Queue, kind: type[Message], mode: AcknowledgeMode
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    message = filled(kind)
    message.jms_message_id = "ID:mine"
    received = exchange(session, queue, message)
    assert received.jms_message_id == message.jms_message_id
    assert message.jms_message_id not in (None, "ID:mine")
    first = message.jms_message_id
    session.create_producer(Queue("onward")).send(received)
    assert received.jms_message_id != first
    assert message.jms_message_id == first


@pytest.mark.requirement("message.identifier")
@pytest.mark.case("header-message-id-02")
def test_every_send_of_a_message_assigns_another(session: Session, queue: Queue) -> None:
    producer, message = session.create_producer(queue), Message()
    sent = []
    for _ in range(100):
        producer.send(message)
        sent.append(message.jms_message_id)
    assert len(set(sent)) == 100
    assert [message.jms_message_id for message in receive_all(session.create_consumer(queue))] == sent


@pytest.mark.requirement("message.identifier.prefix")
@pytest.mark.case("header-message-id-03")
@pytest.mark.parametrize("mode", list(DeliveryMode))
def test_it_begins_with_id(session: Session, queue: Queue, mode: DeliveryMode) -> None:
    message = Message()
    session.create_producer(queue).send(message, delivery_mode=mode)
    (received,) = receive_all(session.create_consumer(queue))
    assert received.jms_message_id is not None
    assert received.jms_message_id.startswith("ID:")
    assert len(received.jms_message_id) > len("ID:")


@pytest.mark.requirement("message.identifier")
def test_producer_without_message_ids_overwrites_it_with_none(session: Session, queue: Queue) -> None:
    producer, message = session.create_producer(queue), Message()
    producer.send(message)
    producer.disable_message_id = True
    producer.send(message)
    assert message.jms_message_id is None
    first, second = receive_all(session.create_consumer(queue))
    assert first.jms_message_id is not None
    assert second.jms_message_id is None
