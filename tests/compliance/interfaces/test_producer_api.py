"""MessageProducer and QueueBrowser: the clauses of their API text in Jakarta Messaging 3.1."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from jmsql import (
    Connection,
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageFormatException,
    MessageProducer,
    Queue,
    Session,
    TextMessage,
    Topic,
    UnsupportedOperationException,
)
from jmsql.testing import receive_all
from tests.background import Background

pytestmark = pytest.mark.usefixtures("shared_connection")

DEFAULTS = {
    "disable_message_id": False,
    "disable_message_timestamp": False,
    "delivery_mode": DeliveryMode.PERSISTENT,
    "priority": 4,
    "time_to_live": 0,
    "delivery_delay": 0,
}
OTHERS: dict[str, Any] = {
    "disable_message_id": True,
    "disable_message_timestamp": True,
    "delivery_mode": DeliveryMode.NON_PERSISTENT,
    "priority": 9,
    "time_to_live": 3600,
    "delivery_delay": 0.001,
}


@pytest.fixture
def producer(session: Session, queue: Queue) -> MessageProducer:
    return session.create_producer(queue)


@pytest.mark.requirement("producer.ttl.default")
def test_defaults(producer: MessageProducer, queue: Queue) -> None:
    assert {name: getattr(producer, name) for name in DEFAULTS} == DEFAULTS
    assert producer.destination == queue


@pytest.mark.maintained
def test_settings_are_those_of_one_producer(producer: MessageProducer, session: Session, queue: Queue) -> None:
    for name, value in OTHERS.items():
        setattr(producer, name, value)
    assert {name: getattr(producer, name) for name in OTHERS} == OTHERS
    other = session.create_producer(queue)
    assert {name: getattr(other, name) for name in DEFAULTS} == DEFAULTS
    producer.send(TextMessage("settings"))
    received = session.create_consumer(queue).receive(timeout=60)
    assert received is not None
    assert (received.jms_message_id, received.jms_timestamp) == (None, 0)
    assert (received.jms_delivery_mode, received.jms_priority) == (DeliveryMode.NON_PERSISTENT, 9)
    assert received.jms_expiration > 0


@pytest.mark.parametrize("mode", [0, 3, -1, "PERSISTENT", None])
def test_delivery_mode_is_one_of_two(producer: MessageProducer, mode: Any) -> None:
    with pytest.raises(JMSException, match="DeliveryMode"):
        producer.delivery_mode = mode
    if mode is not None:
        with pytest.raises(JMSException, match="DeliveryMode"):
            producer.send(Message(), delivery_mode=mode)
    assert producer.delivery_mode is DeliveryMode.PERSISTENT


@pytest.mark.parametrize("priority", [-1, 10, 4.5, "4", None])
def test_priority_is_one_of_ten(producer: MessageProducer, priority: Any) -> None:
    with pytest.raises(JMSException, match="priority"):
        producer.priority = priority
    if priority is not None:
        with pytest.raises(JMSException, match="priority"):
            producer.send(Message(), priority=priority)
    assert producer.priority == 4


def test_every_priority_and_both_modes_travel(producer: MessageProducer, session: Session, queue: Queue) -> None:
    for priority in range(10):
        for mode in DeliveryMode:
            producer.send(Message(), priority=priority, delivery_mode=mode)
    received = receive_all(session.create_consumer(queue))
    assert [(each.jms_priority, each.jms_delivery_mode) for each in received] == [
        (priority, mode) for priority in reversed(range(10)) for mode in DeliveryMode
    ]


@pytest.mark.parametrize("message", [None, "text", object(), 5])
def test_another_object_than_a_message_is_a_format_error(producer: MessageProducer, message: Any) -> None:
    with pytest.raises(MessageFormatException):
        producer.send(message)


@pytest.mark.parametrize("destination", ["", "jms://orders", 5, object()])
def test_another_object_than_a_destination_is_an_invalid_destination(session: Session, destination: Any) -> None:
    with pytest.raises(InvalidDestinationException):
        session.create_producer(destination)
    with pytest.raises(InvalidDestinationException):
        session.create_producer(None).send(Message(), destination)


def test_destination_is_named_once(producer: MessageProducer, session: Session, queue: Queue) -> None:
    with pytest.raises(UnsupportedOperationException):
        producer.send(Message(), queue)
    anywhere = session.create_producer(None)
    assert anywhere.destination is None
    with pytest.raises(UnsupportedOperationException):
        anywhere.send(Message())
    assert receive_all(session.create_consumer(queue)) == []


def test_closed_producer_refuses_everything_but_closing(producer: MessageProducer, queue: Queue) -> None:
    producer.close()
    producer.close()
    for name, value in OTHERS.items():
        with pytest.raises(IllegalStateException, match="closed"):
            getattr(producer, name)
        with pytest.raises(IllegalStateException, match="closed"):
            setattr(producer, name, value)
    with pytest.raises(IllegalStateException, match="closed"):
        _ = producer.destination
    with pytest.raises(IllegalStateException, match="closed"):
        producer.send(Message())


def test_close_waits_for_sends_on_their_way(producer: MessageProducer, session: Session, queue: Queue) -> None:
    entered, go_on, told = threading.Event(), threading.Event(), []

    def listener(message: Message, error: JMSException | None) -> None:
        entered.set()
        go_on.wait(60)
        told.append((message.get_body(str), error))

    for text in "abc":
        producer.send(TextMessage(text), completion_listener=listener)
    assert entered.wait(60)
    closing = Background(producer.close)
    closing.wait_until_it_waits()
    go_on.set()
    closing.result()
    assert told == [("a", None), ("b", None), ("c", None)]
    assert len(receive_all(session.create_consumer(queue))) == 3


def test_a_mixture_of_sends_keeps_its_order(producer: MessageProducer, session: Session, queue: Queue) -> None:
    for number in range(20):
        listener = None if number % 3 else lambda message, error: None
        producer.send(TextMessage(str(number)), completion_listener=listener)
    producer.close()
    received = [message.get_body(str) for message in receive_all(session.create_consumer(queue))]
    assert received == [str(number) for number in range(20)]


def test_error_of_the_call_is_raised_and_not_told(producer: MessageProducer) -> None:
    told: list[object] = []
    with pytest.raises(MessageFormatException):
        producer.send("no message", completion_listener=lambda *outcome: told.append(outcome))  # type: ignore[arg-type]
    producer.close()
    assert told == []


def test_time_to_live_and_delay_take_seconds_or_a_timedelta(producer: MessageProducer) -> None:
    producer.time_to_live = timedelta(minutes=1)
    producer.delivery_delay = timedelta(milliseconds=1)
    assert (producer.time_to_live, producer.delivery_delay) == (60, 0.001)
    message = Message()
    producer.send(message)
    assert message.jms_expiration == message.jms_timestamp + 60_000
    assert message.jms_delivery_time == message.jms_timestamp + 1
    producer.send(message, time_to_live=0)
    assert message.jms_expiration == 0


# QueueBrowser


def test_browser_tells_its_queue_and_selector(session: Session, queue: Queue) -> None:
    assert session.create_browser(queue).queue == queue
    assert session.create_browser(queue, "a = 1").message_selector == "a = 1"
    for none in (None, ""):
        assert session.create_browser(queue, none).message_selector is None


def test_browser_leaves_messages_and_shows_them_as_they_would_be_received(session: Session, queue: Queue) -> None:
    with session.create_producer(queue) as producer:
        for priority, text in ((1, "low"), (9, "high"), (4, "a"), (4, "b")):
            producer.send(TextMessage(text), priority=priority)
    browser = session.create_browser(queue)
    shown = [message.get_body(str) for message in browser.enumeration]
    assert shown == ["high", "a", "b", "low"]
    assert [message.get_body(str) for message in browser.enumeration] == shown
    assert [message.get_body(str) for message in receive_all(session.create_consumer(queue))] == shown
    assert list(browser.enumeration) == []


def test_browser_closes_with_its_session_and_any_number_of_times(connection: Connection, queue: Queue) -> None:
    session = connection.create_session()
    browser = session.create_browser(queue)
    browser.close()
    browser.close()
    other = session.create_browser(queue)
    session.close()
    other.close()
    with pytest.raises(IllegalStateException):
        _ = other.queue


def test_browser_is_of_a_queue(session: Session) -> None:
    for destination in (Topic("news"), None, "topic://news"):
        with pytest.raises(InvalidDestinationException):
            session.create_browser(destination)  # type: ignore[arg-type]
