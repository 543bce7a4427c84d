"""Clearing a received message that is then delivered again: JMS 1.1 chapters 3.5.7, 3.11.1 and 4.4."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, MessageConsumer, Queue
from tests.compliance.contents import body_of, properties_of
from tests.compliance.filled_messages import BODIES, CLASSES, filled
from tests.texts import receive

pytestmark = [
    pytest.mark.requirement("message.method.clearProperties", "message.method.clearBody"),
    pytest.mark.usefixtures("shared_connection"),
]


def receive_and_clear(consumer: MessageConsumer) -> None:
    for kind in CLASSES:
        message = receive(consumer)
        assert body_of(message) == BODIES[kind]
        message.clear_body()
        message.clear_properties()
        message.set_int_property("other", 1)


def receive_unchanged(consumer: MessageConsumer) -> None:
    for kind in CLASSES:
        message = receive(consumer)
        assert type(message) is kind
        assert message.jms_redelivered
        assert body_of(message) == BODIES[kind]
        assert properties_of(message) == {"name": "value"}


@pytest.mark.case("message-clear-recover-01")
def test_messages_come_unchanged_after_recover(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for kind in CLASSES:
        producer.send(filled(kind))
    receive_and_clear(consumer)
    session.recover()
    receive_unchanged(consumer)


@pytest.mark.case("message-clear-rollback-01")
def test_messages_come_unchanged_after_rollback(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(transacted=True)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for kind in CLASSES:
        producer.send(filled(kind))
    session.commit()
    receive_and_clear(consumer)
    session.rollback()
    receive_unchanged(consumer)
