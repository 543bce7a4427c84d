"""Messages of groups, sent and told apart in a word."""

from __future__ import annotations

from collections.abc import Iterable

from jmsql import Destination, Message, MessageConsumer, Session
from tests.texts import receive

GroupPlace = tuple[str | None, int]
"""A message's group, and its number in it."""


def send_places(session: Session, destination: Destination, *places: GroupPlace, priority: int | None = None) -> None:
    """Send a message for each place, in one transaction if the session is transacted."""
    with session.create_producer(destination) as producer:
        for group, number in places:
            message = session.create_text_message(f"{group or ''}{number}")
            message.set_int_property("number", number)
            if group is not None:
                message.set_string_property("JMSXGroupID", group)
                message.set_int_property("JMSXGroupSeq", number)
            producer.send(message, priority=priority)
    if session.transacted:
        session.commit()


def send_group(session: Session, destination: Destination, group: str, count: int) -> None:
    """Send a group's messages 1 to `count`."""
    send_places(session, destination, *((group, number) for number in range(1, count + 1)))


def place_of(message: Message) -> GroupPlace:
    """The group of a message, and its number in it."""
    group = message.get_string_property("JMSXGroupID") if message.property_exists("JMSXGroupID") else None
    return group, message.get_int_property("number")


def places_of(messages: Iterable[Message]) -> list[GroupPlace]:
    """The groups of messages, and their numbers in them."""
    return [place_of(message) for message in messages]


def receive_places(consumer: MessageConsumer, count: int) -> list[GroupPlace]:
    """Receive so many messages, which are sure to come."""
    return places_of(receive(consumer) for _ in range(count))
