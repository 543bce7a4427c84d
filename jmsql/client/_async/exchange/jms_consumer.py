"""Receiving by the simplified interface (Jakarta Messaging 3.1, chapter 8.12)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from jmsql.concurrency import ASYNC
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._async.exchange.consumer import MessageConsumer
    from jmsql.client.receiving.message_listener import MessageListener
    from jmsql.messages import Message

__all__ = ["JMSConsumer"]

T = TypeVar("T")


@set_module("jmsql.asyncio")
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

    if not ASYNC:

        @message_listener.setter
        def message_listener(self, listener: MessageListener | None) -> None:
            self.set_message_listener(listener)

    async def set_message_listener(self, listener: MessageListener | None) -> None:
        """Have a listener called; see [`MessageConsumer`][jmsql.MessageConsumer.set_message_listener]."""
        await self._consumer.set_message_listener(listener)

    async def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it if need be.

        Args:
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.
        """
        return await self._consumer.receive(timeout)

    async def receive_no_wait(self) -> Message | None:
        """Return the next message if one is there now, else None."""
        return await self._consumer.receive_no_wait()

    async def receive_body(self, body_type: type[T], timeout: float | timedelta | None = None) -> T | None:
        """Return the next message's body; see [`MessageConsumer`][jmsql.MessageConsumer.receive_body]."""
        return await self._consumer.receive_body(body_type, timeout)

    async def receive_body_no_wait(self, body_type: type[T]) -> T | None:
        """Return the next message's body if a message is there now, else None; see `receive_body`."""
        return await self.receive_body(body_type, 0)

    async def close(self) -> None:
        """Stop receiving. Closing again does nothing."""
        await self._consumer.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return aiter(self._consumer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._consumer!r}>"
