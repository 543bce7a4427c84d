"""An application's listeners for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from jmsql.exceptions import JMSException
from jmsql.messages import Message
from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.values.destinations import Destination


class OnMessage(Protocol):
    """An object that messages can be given to."""

    def on_message(self, message: Message, /) -> object:
        """Handle a message."""


MessageListener = Callable[[Message], object] | OnMessage
"""A listener: a callable, or an object with `on_message`."""


MessageCheck = Callable[[Message], object]
"""Raises an exception if a message does not fit its receiver."""


def function_of(listener: MessageListener) -> Callable[[Message], object]:
    """Return the function that is called with messages.

    Raises:
        TypeError: The listener is no callable and has no `on_message`.
    """
    if callable(listener):
        return listener
    if callable(getattr(listener, "on_message", None)):
        return listener.on_message
    raise TypeError(f"Expected a message listener, a callable or an object with on_message(message), got {listener!r}.")


class OnCompletion(Protocol):
    """An object that is told of a message that it was sent, or why it was not."""

    def on_completion(self, message: Message, /) -> object:
        """Take note that the message was sent; in a transacted session, that it was inserted in the transaction."""

    def on_exception(self, message: Message, exception: JMSException, /) -> object:
        """Take note that the message was not sent, or, if the error code is 08007, perhaps not."""


CompletionListener = Callable[[Message, JMSException | None], object] | OnCompletion
"""A listener of an asynchronous send: a callable that takes the message and None, or the error if it failed; or an
object with `on_completion` and `on_exception`."""


class AsynchronousSend(NamedTuple):
    """A message on its way."""

    destination: Destination
    outgoing: OutgoingMessage
    message: Message
    listener: CompletionListener
    size: int

    def complete(self, error: JMSException | None) -> object:
        """Notify the listener that the message was sent, or of the error; return the listener's result."""
        if callable(self.listener):
            return self.listener(self.message, error)
        if error is None:
            return self.listener.on_completion(self.message)
        return self.listener.on_exception(self.message, error)


def completion_functions(listener: CompletionListener) -> tuple[Callable[..., object], ...]:
    """Return the functions that are called when a message was sent, or was not.

    Raises:
        TypeError: The object is not a completion listener.
    """
    if callable(listener):
        return (listener,)
    if all(callable(getattr(listener, name, None)) for name in ("on_completion", "on_exception")):
        return listener.on_completion, listener.on_exception
    raise TypeError(
        "A completion listener is a callable, or has on_completion(message) and on_exception(message, exception), "
        f"unlike {listener!r}."
    )
