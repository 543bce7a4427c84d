"""Receiving by the simplified interface (Jakarta Messaging 3.1, chapter 8.12)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Message

if TYPE_CHECKING:
    from jmsql.client.consumer import MessageConsumer
    from jmsql.client.message_listener import MessageListener

__all__ = ["JMSConsumer"]

T = TypeVar("T")


def _body_of(message: Message, body_type: type[T]) -> T:
    body = message.get_body(body_type)
    if body is None:
        raise MessageFormatException(f"The {type(message).__name__} {message.jms_message_id} has no body to return.")
    return body


class JMSConsumer:
    """Receives messages.

    Made by [`JMSContext.create_consumer`][jmsql.JMSContext.create_consumer].
    """

    def __init__(self, consumer: MessageConsumer) -> None:
        self._consumer = consumer

    @property
    def message_selector(self) -> str | None:
        """The selector's text, or None if every message is wanted."""
        return self._consumer.message_selector

    @property
    def message_listener(self) -> MessageListener | None:
        """What messages are given to as they come; None while `receive` is used."""
        return self._consumer.message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self.set_message_listener(listener)

    def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have a listener called; see [`MessageConsumer`][jmsql.MessageConsumer.set_message_listener]."""
        self._consumer.set_message_listener(listener)

    def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it if need be.

        Args:
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.
        """
        return self._consumer.receive(timeout)

    def receive_no_wait(self) -> Message | None:
        """Return the next message if one is there now, else None."""
        return self._consumer.receive_no_wait()

    def receive_body(self, body_type: type[T], timeout: float | timedelta | None = None) -> T | None:
        """Return the next message's body, or None if none came in time, or the consumer was closed meanwhile.

        Args:
            body_type: What the body is expected to be, as in [`Message.get_body`][jmsql.Message.get_body].
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.

        Raises:
            MessageFormatException: The message has no body, or one of another type, or one that cannot be decoded, or
                is a StreamMessage. In AUTO and DUPS_OK sessions it is then as if the call had not been made: the same
                message comes next, as one that was not delivered before. In CLIENT sessions and in transactions it
                counts as received, and comes again after `recover` or `rollback`.
            IllegalStateException: The consumer is closed, or has a listener.
            JMSException: The server could not be asked.
        """
        bodies: list[T] = []
        self._consumer._receive_checked(timeout, lambda message: bodies.append(_body_of(message, body_type)))
        return bodies[0] if bodies else None

    def receive_body_no_wait(self, body_type: type[T]) -> T | None:
        """Return the next message's body if a message is there now, else None; see `receive_body`."""
        return self.receive_body(body_type, 0)

    def close(self) -> None:
        """Stop receiving. Closing again does nothing."""
        self._consumer.close()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._consumer!r}>"
