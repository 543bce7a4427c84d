"""What a selector chooses of messages that really were sent."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence

import pytest

from jmsql import InvalidSelectorException, Message, Queue, Session
from jmsql.messages import PropertyValue
from jmsql.testing import receive_all
from tests.compliance.selector_cases import SelectorCase


class Selecting:
    """Sends messages, and receives them with a selector.

    Args:
        session: One that acknowledges by itself, of a started connection.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    def chosen(self, selector: str | None, messages: Sequence[Message]) -> list[Message]:
        """Send the messages, and return those of them that a consumer with the selector receives.

        A browser must show the same, in the same order, and the others must still be there for a second consumer.
        """
        queue = self.send(messages)
        shown = _identifiers(self.session.create_browser(queue, selector))
        received = self._drain(queue, selector)
        assert received == shown
        left = self._drain(queue)
        assert [message.jms_message_id for message in messages if message.jms_message_id in received] == received
        assert [message.jms_message_id for message in messages if message.jms_message_id not in received] == left
        return [message for message in messages if message.jms_message_id in received]

    def check(self, case: SelectorCase) -> None:
        """See that a consumer receives all or none of three messages, as the case says, or that it is not made."""
        selector = case.text(time.time_ns() // 1_000_000)
        if case.outcome == "invalid":
            self.check_invalid(selector)
            return
        messages = [Message() for _ in range(3)]
        for message in messages:
            for kind, name, value in case.properties:
                getattr(message, f"set_{kind}_property")(name, value)
        assert self.chosen(selector, messages) == (messages if case.outcome == "all" else [])

    def check_invalid(self, selector: str) -> None:
        """See that neither a consumer nor a browser is made with the selector."""
        queue = Queue("selecting")
        with pytest.raises(InvalidSelectorException):
            self.session.create_consumer(queue, selector)
        with pytest.raises(InvalidSelectorException):
            self.session.create_browser(queue, selector)

    def values(self, selector: str, name: str, values: Iterable[PropertyValue]) -> list[PropertyValue]:
        """Send a message for each of the values, and return those whose message is chosen."""
        messages = []
        for value in values:
            message = Message()
            message.set_object_property(name, value)
            messages.append(message)
        return [message.get_object_property(name) for message in self.chosen(selector, messages)]

    def truth(self, condition: str, **properties: PropertyValue) -> bool | None:
        """Tell whether a condition is true, false or unknown of a message: of an unknown one the opposite is too."""
        message = Message()
        message.properties.update(properties)
        if self.chosen(condition, [message]):
            return True
        return False if self.chosen(f"not ({condition})", [message]) else None

    def send(self, messages: Iterable[Message]) -> Queue:
        """Send messages to a new queue."""
        queue = self.session.create_queue(f"selecting {uuid.uuid4()}")
        with self.session.create_producer(queue) as producer:
            for message in messages:
                producer.send(message)
        return queue

    def _drain(self, queue: Queue, selector: str | None = None) -> list[str | None]:
        with self.session.create_consumer(queue, selector) as consumer:
            return _identifiers(receive_all(consumer))


def _identifiers(messages: Iterable[Message]) -> list[str | None]:
    return [message.jms_message_id for message in messages]
