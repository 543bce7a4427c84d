"""The headers that the provider sets for every sender: JMS 1.1 chapter 3.4.11, and the API text of version 3.1."""

from __future__ import annotations

import queue as queues
import time
from collections.abc import Callable
from typing import Any

import pytest

from jmsql import Connection, DeliveryMode, JMSException, Message, Queue, Session, TextMessage, Topic
from tests.compliance.apis import Api
from tests.compliance.filled_messages import CLASSES, filled

pytestmark = pytest.mark.usefixtures("shared_connection")

OF_THE_CLIENT: dict[str, Any] = {
    "jms_message_id": "ID:of the client",
    "jms_timestamp": 1,
    "jms_destination": Topic("of the client"),
    "jms_delivery_mode": DeliveryMode.NON_PERSISTENT,
    "jms_redelivered": True,
    "jms_expiration": 2,
    "jms_priority": 9,
    "jms_delivery_time": 3,
}
"""What a client may set, and a send ignores."""

Send = Callable[[Api, Session, Queue, Message], None]


def send(api: Api, session: Session, queue: Queue, message: Message) -> None:
    session.create_producer(queue).send(message)


def send_without_a_destination_of_its_own(api: Api, session: Session, queue: Queue, message: Message) -> None:
    session.create_producer(None).send(message, queue)


def send_asynchronously(api: Api, session: Session, queue: Queue, message: Message) -> None:
    told: queues.Queue[tuple[Message, JMSException | None]] = queues.Queue()
    session.create_producer(queue).send(message, completion_listener=lambda *outcome: told.put(outcome))
    assert told.get(timeout=60) == (message, None)


def send_with_a_context(api: Api, session: Session, queue: Queue, message: Message) -> None:
    api.context(session).create_producer().send(queue, message)


SENDS = (send, send_without_a_destination_of_its_own, send_asynchronously, send_with_a_context)


@pytest.mark.requirement("message.destination", "message.identifier", "message.expiration.send", "message.send")
@pytest.mark.parametrize("how", SENDS)
@pytest.mark.parametrize("kind", CLASSES)
def test_send_ignores_the_clients_headers_and_sets_those_of_the_sent_message(
    api: Api, session: Session, queue: Queue, how: Send, kind: type[Message]
) -> None:
    message = filled(kind)
    for header, value in OF_THE_CLIENT.items():
        setattr(message, header, value)
    before = time.time_ns() // 1_000_000
    how(api, session, queue, message)
    after = time.time_ns() // 1_000_000
    received = session.create_consumer(queue).receive(timeout=60)
    assert received is not None
    for each in (message, received):
        assert each.jms_message_id is not None
        assert each.jms_message_id.startswith("ID:")
        assert each.jms_message_id != OF_THE_CLIENT["jms_message_id"]
        assert before <= each.jms_timestamp <= after
        assert each.jms_destination == queue
        assert each.jms_delivery_mode is DeliveryMode.PERSISTENT
        assert each.jms_expiration == 0
        assert each.jms_priority == 4
        assert each.jms_delivery_time == each.jms_timestamp
    assert not received.jms_redelivered
    for header in OF_THE_CLIENT.keys() - {"jms_redelivered"}:
        assert getattr(message, header) == getattr(received, header), header


@pytest.mark.maintained
@pytest.mark.requirement("message.expiration.send")
def test_expiration_and_delivery_time_count_from_the_send(connection: Connection, queue: Queue) -> None:
    """Also in a transaction, whose commit comes later; a browser and a consumer wait for the delivery time."""
    session = connection.create_session(transacted=True)
    message = TextMessage("later")
    producer = session.create_producer(queue)
    producer.delivery_delay = 2
    producer.send(message, time_to_live=60)
    assert message.jms_expiration == message.jms_timestamp + 60_000
    assert message.jms_delivery_time == message.jms_timestamp + 2_000
    time.sleep(0.1)
    session.commit()
    assert list(session.create_browser(queue)) == []
    received = session.create_consumer(queue).receive(timeout=60)
    assert received is not None
    assert time.time_ns() // 1_000_000 >= message.jms_delivery_time
    for header in ("jms_timestamp", "jms_expiration", "jms_delivery_time"):
        assert getattr(received, header) == getattr(message, header), header


@pytest.mark.requirement("message.correlation", "message.replyTo")
def test_correlation_reply_and_type_are_the_clients_and_none_at_first(session: Session, queue: Queue) -> None:
    plain, full = Message(), Message()
    full.jms_correlation_id, full.jms_type, full.jms_reply_to = "id", "type", Topic("answers")
    producer = session.create_producer(queue)
    producer.send(plain)
    producer.send(full)
    consumer = session.create_consumer(queue)
    for message, headers in ((plain, (None, None, None)), (full, ("id", "type", Topic("answers")))):
        received = consumer.receive(timeout=60)
        assert received is not None
        for each in (message, received):
            assert (each.jms_correlation_id, each.jms_type, each.jms_reply_to) == headers


@pytest.mark.requirement("message.method.clearBody", "message.method.clearProperties")
@pytest.mark.parametrize("kind", CLASSES)
def test_clearing_keeps_the_headers(session: Session, queue: Queue, kind: type[Message]) -> None:
    message = filled(kind)
    message.jms_correlation_id, message.jms_type, message.jms_reply_to = "id", "type", queue
    session.create_producer(queue).send(message)
    received = session.create_consumer(queue).receive(timeout=60)
    assert received is not None
    names = (*OF_THE_CLIENT, "jms_correlation_id", "jms_correlation_id_as_bytes", "jms_type", "jms_reply_to")
    before = {name: getattr(received, name) for name in names}
    received.clear_body()
    received.clear_properties()
    assert {name: getattr(received, name) for name in names} == before


@pytest.mark.requirement("message.correlation.bytes")
def test_bytes_of_the_correlation_id_are_copied() -> None:
    message = Message()
    given = bytearray(b"\xff\x00")
    message.jms_correlation_id_as_bytes = given  # type: ignore[assignment]
    given[0] = 0
    assert message.jms_correlation_id_as_bytes == b"\xff\x00"
