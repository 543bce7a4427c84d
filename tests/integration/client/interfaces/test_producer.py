"""Producers: their settings, what a send makes of them, and what they refuse."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from jmsql import (
    DeliveryMode,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    MessageFormatException,
    MessageProducer,
    Queue,
    Session,
    UnsupportedOperationException,
)
from jmsql.testing import receive_all
from tests.texts import receive

pytestmark = pytest.mark.usefixtures("shared_connection")


@pytest.fixture
def producer(session: Session, queue: Queue) -> MessageProducer:
    return session.create_producer(queue)


def test_defaults(producer: MessageProducer, session: Session, queue: Queue) -> None:
    assert producer.destination == queue
    assert producer.delivery_mode is DeliveryMode.PERSISTENT
    assert producer.priority == 4
    assert producer.time_to_live == 0
    assert producer.disable_message_id is False
    assert producer.disable_message_timestamp is False
    assert session.create_producer().destination is None


def test_send_takes_the_producers_settings_and_its_own_arguments_first(
    producer: MessageProducer, session: Session, queue: Queue
) -> None:
    producer.priority, producer.time_to_live, producer.delivery_mode = (
        7,
        timedelta(hours=1),
        DeliveryMode.NON_PERSISTENT,
    )
    message = session.create_message()
    producer.send(message)
    producer.send(session.create_message(), priority=0, time_to_live=0, delivery_mode=DeliveryMode.PERSISTENT)
    first, second = receive_all(session.create_consumer(queue))
    assert (first.jms_priority, first.jms_delivery_mode) == (7, DeliveryMode.NON_PERSISTENT)
    assert first.jms_expiration == first.jms_timestamp + 3_600_000
    assert (second.jms_priority, second.jms_delivery_mode, second.jms_expiration) == (0, DeliveryMode.PERSISTENT, 0)
    assert producer.time_to_live == 3600.0


@pytest.mark.parametrize("transacted", [False, True])
def test_senders_message_has_the_headers_that_the_receiver_gets(
    session: Session, queue: Queue, producer: MessageProducer, transacted: bool
) -> None:
    message = session.create_text_message("a")
    message.jms_message_id, message.jms_timestamp, message.jms_priority, message.jms_expiration = "ID:mine", 1, 9, 1
    producer.send(message, priority=2, time_to_live=60)
    received = receive(session.create_consumer(queue))
    assert message.jms_message_id != "ID:mine"
    for header in ("message_id", "timestamp", "priority", "expiration", "delivery_mode", "destination"):
        assert getattr(received, f"jms_{header}") == getattr(message, f"jms_{header}"), header
    assert abs(received.jms_timestamp - time.time() * 1000) < 60_000


def test_message_ids_and_timestamps_can_be_left_out(producer: MessageProducer, session: Session, queue: Queue) -> None:
    producer.disable_message_id = producer.disable_message_timestamp = True
    message = session.create_text_message("bare")
    producer.send(message)
    producer.disable_message_id = producer.disable_message_timestamp = False
    producer.send(session.create_text_message("full"))
    bare, full = receive_all(session.create_consumer(queue))
    assert message.jms_message_id is None
    assert message.jms_timestamp == 0
    assert (bare.jms_message_id, bare.jms_timestamp) == (None, 0)
    assert full.jms_message_id is not None
    assert full.jms_timestamp > 0


def test_message_without_id_is_selected_as_null(producer: MessageProducer, session: Session, queue: Queue) -> None:
    producer.disable_message_id = True
    producer.send(session.create_text_message("bare"))
    assert session.create_consumer(queue, "JMSMessageID is not null").receive(timeout=0) is None
    assert receive(session.create_consumer(queue, "JMSMessageID is null")).get_body(str) == "bare"


def test_time_to_live_beyond_the_calendar_is_refused_and_a_long_one_holds(
    producer: MessageProducer, session: Session, queue: Queue
) -> None:
    producer.send(session.create_message(), time_to_live=timedelta(days=36_500))
    received = receive(session.create_consumer(queue))
    assert received.jms_expiration == received.jms_timestamp + 36_500 * 86_400_000


SETTINGS: list[tuple[str, object, type[Exception]]] = [
    ("priority", -1, JMSException),
    ("priority", 10, JMSException),
    ("priority", 4.0, JMSException),
    ("priority", "4", JMSException),
    ("priority", None, JMSException),
    ("delivery_mode", 0, JMSException),
    ("delivery_mode", 3, JMSException),
    ("delivery_mode", "PERSISTENT", JMSException),
    ("delivery_mode", None, JMSException),
    ("time_to_live", -1, ValueError),
    ("time_to_live", timedelta(seconds=-1), ValueError),
    ("time_to_live", float("nan"), ValueError),
    ("time_to_live", Decimal("nan"), ValueError),
    ("time_to_live", "1", TypeError),
    ("time_to_live", None, TypeError),
]


@pytest.mark.parametrize(("name", "value", "error"), SETTINGS)
def test_wrong_settings_are_refused_and_named(
    producer: MessageProducer, session: Session, queue: Queue, name: str, value: Any, error: type[Exception]
) -> None:
    before = getattr(producer, name)
    with pytest.raises(error, match=name.replace("_", ".")):
        setattr(producer, name, value)
    assert getattr(producer, name) == before
    if value is not None:
        with pytest.raises(error, match=name.replace("_", ".")):
            producer.send(session.create_message(), **{name: value})
    assert session.create_consumer(queue).receive(timeout=0) is None


@pytest.mark.parametrize("message", [None, "text", b"bytes", {"name": 1}, object()])
def test_another_object_than_a_message_is_not_sent(producer: MessageProducer, message: Any) -> None:
    with pytest.raises(MessageFormatException, match="message"):
        producer.send(message)


DESTINATIONS: list[tuple[object, type[JMSException]]] = [
    (Destination("news"), InvalidDestinationException),
    ("jms://orders", InvalidDestinationException),
    (42, InvalidDestinationException),
]


@pytest.mark.parametrize(("destination", "error"), DESTINATIONS)
def test_another_object_than_a_destination_is_refused(
    session: Session, destination: Any, error: type[JMSException]
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: session.create_producer(destination),
        lambda: session.create_producer().send(session.create_message(), destination),
        lambda: session.create_consumer(destination),
        lambda: session.create_browser(destination),
    ]
    for call in calls:
        with pytest.raises(error, match=r"queue|destination"):
            call()


def test_missing_and_superfluous_destinations_are_refused(session: Session, producer: MessageProducer) -> None:
    with pytest.raises(UnsupportedOperationException, match="no destination of its own"):
        session.create_producer().send(session.create_message())
    with pytest.raises(UnsupportedOperationException, match="create_producer"):
        producer.send(session.create_message(), Queue("other"))
    with pytest.raises(InvalidDestinationException):
        session.create_consumer(None)  # type: ignore[arg-type]


def test_closed_producer_refuses_to_send_and_its_session_goes_on(
    producer: MessageProducer, session: Session, queue: Queue
) -> None:
    with producer:
        producer.send(session.create_text_message("a"))
    producer.close()
    with pytest.raises(IllegalStateException, match="producer is closed"):
        producer.send(session.create_text_message("b"))
    session.create_producer(queue).send(session.create_text_message("c"))
    assert [message.get_body(str) for message in receive_all(session.create_consumer(queue))] == ["a", "c"]
