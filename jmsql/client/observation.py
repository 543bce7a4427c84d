"""Who follows messages through this process: nobody, unless `jmsql.tracing` is asked to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jmsql.client.abstract_session import AbstractSession
    from jmsql.client.consumer import MessageConsumer
    from jmsql.destinations import Destination
    from jmsql.messages import Message
    from jmsql.store.rows import OutgoingMessage

__all__ = ["Observer", "observe", "observer", "processing", "settling"]


class Observer(Protocol):
    """What is told where a message is on its way. Its methods are called in the thread that has the message."""

    def sending(
        self, session: AbstractSession, destination: Destination, message: OutgoingMessage
    ) -> AbstractContextManager[OutgoingMessage]:
        """Follow a send, for as long as the block lasts, and give the message that is to be sent."""

    def receive(self, consumer: MessageConsumer, take: Callable[[], Message | None]) -> Message | None:
        """Follow a call of a consumer's `receive`, which is `take`."""

    def processing(self, session: AbstractSession, message: Message) -> AbstractContextManager[object]:
        """Follow the call of a listener."""

    def settling(self, session: AbstractSession, operation: str) -> AbstractContextManager[object]:
        """Follow the acknowledgement of what the session has received, or whatever else becomes of it."""


observer: Observer | None = None


def observe(new: Observer | None) -> None:
    """Have messages followed from now on; None: no more."""
    global observer
    observer = new


def processing(session: AbstractSession, message: Message) -> AbstractContextManager[object]:
    """Follow the call of a listener, if anybody follows messages."""
    return nullcontext() if observer is None else observer.processing(session, message)


def settling(session: AbstractSession, operation: str) -> AbstractContextManager[object]:
    """Follow what becomes of the messages that a session has received, if anybody follows messages."""
    return nullcontext() if observer is None else observer.settling(session, operation)
