"""JMSExpiration as the time-to-live of a queue's sender sets it: JMS 1.1 chapter 3.4.9."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from jmsql import JMSException, Message, MessageProducer, Queue, Session
from tests.texts import receive

pytestmark = pytest.mark.requirement("message.expiration.send", "message.expiration.receive")

LIFETIMES = pytest.mark.parametrize("time_to_live", [30, 12.345, timedelta(hours=1), timedelta(days=30_000)])


def with_cases(of_its_own: str, named: str) -> pytest.MarkDecorator:
    """Run with a sender to one queue and with one that names it in each send, each being a case of the suite."""
    return pytest.mark.parametrize(
        "destination",
        [
            pytest.param(None, marks=pytest.mark.case(of_its_own), id="destination of its own"),
            pytest.param(Queue("compliance"), marks=pytest.mark.case(named), id="destination named with the send"),
        ],
    )


def producer_for(session: Session, destination: Queue | None) -> MessageProducer:
    return session.create_producer(Queue("compliance") if destination is None else None)


def seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.requirement("message.expiration.zero", "producer.ttl.default")
@with_cases("time-to-live-sender-01", "time-to-live-sender-02")
def test_default_is_to_live_for_ever(session: Session, queue: Queue, destination: Queue | None) -> None:
    producer, message = producer_for(session, destination), Message()
    assert producer.time_to_live == 0
    message.jms_expiration = 1
    producer.send(message, destination)
    assert message.jms_expiration == 0
    assert receive(session.create_consumer(queue)).jms_expiration == 0


@with_cases("time-to-live-sender-03", "time-to-live-sender-04")
@LIFETIMES
def test_time_to_live_of_the_send_is_used(
    session: Session, queue: Queue, destination: Queue | None, time_to_live: float | timedelta
) -> None:
    producer, message = producer_for(session, destination), Message()
    before = milliseconds()
    producer.send(message, destination, time_to_live=time_to_live)
    lifetime = round(seconds(time_to_live) * 1000)
    assert before + lifetime <= message.jms_expiration <= milliseconds() + lifetime
    assert receive(session.create_consumer(queue)).jms_expiration == message.jms_expiration
    assert producer.time_to_live == 0


@pytest.mark.requirement("producer.ttl.set")
@with_cases("time-to-live-sender-05", "time-to-live-sender-06")
@LIFETIMES
def test_time_to_live_of_the_sender_is_used_if_the_send_names_none(
    session: Session, queue: Queue, destination: Queue | None, time_to_live: float | timedelta
) -> None:
    producer, message = producer_for(session, destination), Message()
    producer.time_to_live = time_to_live
    assert producer.time_to_live == seconds(time_to_live)
    before = milliseconds()
    producer.send(message, destination)
    lifetime = round(seconds(time_to_live) * 1000)
    assert before + lifetime <= message.jms_expiration <= milliseconds() + lifetime
    assert receive(session.create_consumer(queue)).jms_expiration == message.jms_expiration


@pytest.mark.requirement("message.expiration.zero", "producer.ttl.set")
def test_send_may_name_zero_where_the_sender_does_not(session: Session, queue: Queue) -> None:
    producer, message = session.create_producer(queue), Message()
    producer.time_to_live = 30
    producer.send(message, time_to_live=0)
    assert message.jms_expiration == 0
    assert receive(session.create_consumer(queue)).jms_expiration == 0


def test_expiration_is_that_of_the_send_and_not_of_the_commit_or_of_a_message_sent_on(
    session: Session, queue: Queue
) -> None:
    onward = Queue("onward")
    producer = session.create_producer()
    producer.send(Message(), queue, time_to_live=30)
    received = receive(session.create_consumer(queue))
    first = received.jms_expiration
    producer.send(received, onward, time_to_live=60)
    assert received.jms_expiration > first
    assert receive(session.create_consumer(onward)).jms_expiration == received.jms_expiration


@pytest.mark.parametrize("time_to_live", [-1, -0.001, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_time_to_live_that_is_none_is_refused(session: Session, queue: Queue, time_to_live: float | timedelta) -> None:
    producer = session.create_producer(queue)
    with pytest.raises((ValueError, JMSException)):
        producer.time_to_live = time_to_live
    with pytest.raises((ValueError, JMSException)):
        producer.send(Message(), time_to_live=time_to_live)
    assert session.create_consumer(queue).receive(timeout=0) is None
