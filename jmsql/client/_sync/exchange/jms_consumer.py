"""Receiving by the simplified interface (Jakarta Messaging 3.1, chapter 8.12)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._sync.exchange.consumer import MessageConsumer
    from jmsql.client.message_listener import MessageListener
    from jmsql.messages import Message

__all__ = ["JMSConsumer"]

T = TypeVar("T")


@set_module("jmsql")
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
        """Return the next message's body; see [`MessageConsumer`][jmsql.MessageConsumer.receive_body]."""
        return self._consumer.receive_body(body_type, timeout)

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
