"""JMSExpiration as the time-to-live of a queue's sender or a topic's publisher sets it: JMS 1.1 chapter 3.4.9."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import NamedTuple

import pytest

from jmsql import Destination, JMSException, Message, MessageProducer, Queue, Session, Topic
from tests.texts import receive

pytestmark = [
    pytest.mark.requirement("message.expiration.send", "message.expiration.receive"),
    pytest.mark.usefixtures("shared_connection"),
]

LIFETIMES = pytest.mark.parametrize("time_to_live", [30, 12.345, timedelta(hours=1), timedelta(days=30_000)])


class Way(NamedTuple):
    """To what a message is sent, and whether each send names it."""

    destination: Destination
    is_named: bool

    def producer(self, session: Session) -> MessageProducer:
        """Make the producer."""
        return session.create_producer(None if self.is_named else self.destination)

    def send(self, producer: MessageProducer, message: Message, time_to_live: float | timedelta | None = None) -> None:
        """Send a message."""
        producer.send(message, self.destination if self.is_named else None, time_to_live=time_to_live)


def with_cases(of_its_own: int, named: int) -> pytest.MarkDecorator:
    """Run with a producer for one destination and with one that names it in each send, each being a case."""
    return pytest.mark.parametrize(
        "way",
        [
            pytest.param(
                Way(destination, is_named),
                marks=pytest.mark.case(f"time-to-live-{suite}-{number:02}"),
                id=f"{suite}, destination {'named with the send' if is_named else 'of its own'}",
            )
            for suite, destination in (("sender", Queue("compliance")), ("publisher", Topic("compliance")))
            for is_named, number in ((False, of_its_own), (True, named))
        ],
    )


def seconds(duration: float | timedelta) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def milliseconds() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.requirement("message.expiration.zero", "producer.ttl.default")
@with_cases(1, 2)
def test_default_is_to_live_for_ever(session: Session, way: Way) -> None:
    producer, message = way.producer(session), Message()
    consumer = session.create_consumer(way.destination)
    assert producer.time_to_live == 0
    message.jms_expiration = 1
    way.send(producer, message)
    assert message.jms_expiration == 0
    assert receive(consumer).jms_expiration == 0


@with_cases(3, 4)
@LIFETIMES
def test_time_to_live_of_the_send_is_used(session: Session, way: Way, time_to_live: float | timedelta) -> None:
    producer, message = way.producer(session), Message()
    consumer = session.create_consumer(way.destination)
    before = milliseconds()
    way.send(producer, message, time_to_live)
    lifetime = round(seconds(time_to_live) * 1000)
    assert before + lifetime <= message.jms_expiration <= milliseconds() + lifetime
    assert receive(consumer).jms_expiration == message.jms_expiration
    assert producer.time_to_live == 0


@pytest.mark.requirement("producer.ttl.set")
@with_cases(5, 6)
@LIFETIMES
def test_time_to_live_of_the_sender_is_used_if_the_send_names_none(
    session: Session, way: Way, time_to_live: float | timedelta
) -> None:
    producer, message = way.producer(session), Message()
    consumer = session.create_consumer(way.destination)
    producer.time_to_live = time_to_live
    assert producer.time_to_live == seconds(time_to_live)
    before = milliseconds()
    way.send(producer, message)
    lifetime = round(seconds(time_to_live) * 1000)
    assert before + lifetime <= message.jms_expiration <= milliseconds() + lifetime
    assert receive(consumer).jms_expiration == message.jms_expiration


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


# The second is Java's Long.MAX_VALUE, which is in milliseconds.
@pytest.mark.parametrize(
    "time_to_live", [36_500 * 86_400 + 1, (2**63 - 1) / 1000, 10**400, float("inf"), timedelta.max]
)
def test_a_time_to_live_of_more_than_a_hundred_years_is_for_ever(
    session: Session, queue: Queue, time_to_live: float | timedelta
) -> None:
    producer = session.create_producer(queue)
    message = Message()
    producer.send(message, time_to_live=time_to_live)
    assert message.jms_expiration == 0
    producer.time_to_live = time_to_live
    assert timedelta(days=36_500).total_seconds() < producer.time_to_live
    producer.send(message)
    assert message.jms_expiration == 0
    consumer = session.create_consumer(queue)
    assert [receive(consumer).jms_expiration for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("time_to_live", [-1, -0.001, float("nan"), timedelta(seconds=-1)])
def test_time_to_live_that_is_none_is_refused(session: Session, queue: Queue, time_to_live: float | timedelta) -> None:
    producer = session.create_producer(queue)
    with pytest.raises((ValueError, JMSException)):
        producer.time_to_live = time_to_live
    with pytest.raises((ValueError, JMSException)):
        producer.send(Message(), time_to_live=time_to_live)
    assert session.create_consumer(queue).receive(timeout=0) is None
