"""Where messages wait for their consumer: every kind of destination, and of subscription, that there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from jmsql import Connection, Destination, MessageConsumer, Queue, Session, Topic

MakeConsumer = Callable[[Session, Any], MessageConsumer]


class PlaceKind(Enum):
    """A way for messages to reach their consumer."""

    QUEUE = "queue"
    TEMPORARY_QUEUE = "temporary queue"
    TOPIC = "topic"
    TEMPORARY_TOPIC = "temporary topic"
    DURABLE_SUBSCRIPTION = "durable subscription"
    SHARED_DURABLE_SUBSCRIPTION = "shared durable subscription"


@dataclass(frozen=True)
class Place:
    """A destination whose messages wait, from the start, for a call of `consumer`.

    On a topic they wait in a subscription, which is there before the first message.
    """

    destination: Destination
    _make_consumer: MakeConsumer = field(repr=False)

    def consumer(self, session: Session) -> MessageConsumer:
        """Make a consumer of the messages that wait."""
        return self._make_consumer(session, self.destination)


def make_place(kind: PlaceKind, connection: Connection, name: str) -> Place:
    """Make a place of a kind, for the sessions of a connection with a client identifier.

    Args:
        kind: The kind.
        connection: The connection.
        name: What the destination and the subscription are called.
    """
    session = connection.create_session()
    match kind:
        case PlaceKind.QUEUE:
            return Place(session.create_queue(name), _consume)
        case PlaceKind.TEMPORARY_QUEUE:
            return Place(session.create_temporary_queue(), _consume)
        case PlaceKind.TOPIC:
            return _shared(session, session.create_topic(name), name)
        case PlaceKind.TEMPORARY_TOPIC:
            return _shared(session, session.create_temporary_topic(), name)
        case PlaceKind.DURABLE_SUBSCRIPTION:
            return _durable(session, name, _OneAtATime(name))
        case PlaceKind.SHARED_DURABLE_SUBSCRIPTION:
            return _durable(session, name, lambda session, topic: session.create_shared_durable_consumer(topic, name))


def _consume(session: Session, queue: Queue) -> MessageConsumer:
    return session.create_consumer(queue)


class _OneAtATime:
    """Makes the consumer of a durable subscription, and closes the one before, since there can be only one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._consumer: MessageConsumer | None = None

    def __call__(self, session: Session, topic: Topic) -> MessageConsumer:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = session.create_durable_consumer(topic, self._name)
        return self._consumer


def _shared(session: Session, topic: Topic, name: str) -> Place:
    place = Place(topic, lambda session, topic: session.create_shared_consumer(topic, name))
    place.consumer(session)  # takes nothing, and keeps the subscription between consumers
    return place


def _durable(session: Session, name: str, make_consumer: MakeConsumer) -> Place:
    place = Place(session.create_topic(name), make_consumer)
    place.consumer(session).close()
    return place
