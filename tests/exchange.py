"""A message on its way through the store and back."""

from __future__ import annotations

from typing import TypeVar

from jmsql import Message, Queue, Session
from tests.texts import receive

M = TypeVar("M", bound=Message)


def exchange(session: Session, queue: Queue, message: M) -> M:
    """Send a message to a queue that is empty, commit if the session is transacted, and receive it."""
    with session.create_producer(queue) as producer:
        producer.send(message)
    if session.transacted:
        session.commit()
    with session.create_consumer(queue) as consumer:
        received = receive(consumer)
    assert type(received) is type(message)
    return received
