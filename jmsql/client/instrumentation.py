"""The hook by which `jmsql.tracing` follows messages through this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jmsql.client.acknowledge_mode import AcknowledgeMode
    from jmsql.messages import Message
    from jmsql.store.rows.message_rows import OutgoingMessage
    from jmsql.values.destinations import Destination


# `active` is the only hook: None costs a comparison for each call, which the hot paths make themselves. It is written
# by `install` and read without a lock.


@dataclass(frozen=True, eq=False)
class SessionFacts:
    """A session's facts for the instrumentation. Each session has its own, which tells it from others.

    Args:
        acknowledge_mode: How it acknowledges; None: that is the business of the caller, whose transaction it is in.
        host: The server, as far as it is known.
        port: Its port.
        client_id: Returns the client identifier that the connection has now.
    """

    acknowledge_mode: AcknowledgeMode | None = None
    host: str | None = None
    port: int | None = None
    client_id: Callable[[], str | None] = lambda: None


class Instrumentation(Protocol):
    """Follows messages on their way. Its methods are called in the thread that has the message."""

    def sending(
        self, session: SessionFacts, destination: Destination, message: OutgoingMessage
    ) -> AbstractContextManager[OutgoingMessage]:
        """Follow a send, for as long as the block lasts, and give the message that is to be sent."""

    def receiving(
        self, session: SessionFacts, destination: Destination, subscription: str | None
    ) -> AbstractContextManager[Callable[[Message | None], None]]:
        """Follow a call of a consumer's `receive`, from a destination or a named subscription.

        Yields a function to call with the received message.
        """

    def processing(self, session: SessionFacts, *messages: Message) -> AbstractContextManager[object]:
        """Follow the call of a listener, with one message or a chunk of them."""

    def settling(self, session: SessionFacts, operation: str) -> AbstractContextManager[object]:
        """Follow the acknowledgement of the session's received messages, or another outcome."""


active: Instrumentation | None = None
_nothing = nullcontext()


def install(new: Instrumentation | None) -> None:
    """Install the instrumentation of messages from now on; None removes it."""
    global active
    active = new


def processing(session: SessionFacts, *messages: Message) -> AbstractContextManager[object]:
    """Follow the call of a listener, if anybody follows messages."""
    return _nothing if active is None else active.processing(session, *messages)


def settling(session: SessionFacts, operation: str) -> AbstractContextManager[object]:
    """Follow the outcome of a session's received messages, if an instrumentation is installed."""
    return _nothing if active is None else active.settling(session, operation)
