"""What messages are given to as they come, and what says whether one is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jmsql.messages import Message

__all__ = ["MessageCheck", "MessageListener", "OnMessage", "require_listener"]


class OnMessage(Protocol):
    """An object that messages can be given to."""

    def on_message(self, message: Message, /) -> object:
        """Handle a message."""


MessageListener = Callable[[Message], object] | OnMessage
"""What messages are given to: a callable, or an object with `on_message`."""


MessageCheck = Callable[[Message], object]
"""Raises an exception if a message is not what its receiver wants."""


def require_listener(listener: object) -> None:
    """Make sure that messages can be given to `listener`.

    Raises:
        TypeError: It is no callable and has no `on_message`.
    """
    if not callable(listener) and not callable(getattr(listener, "on_message", None)):
        raise TypeError(f"A message listener is a callable or has on_message(message), unlike {listener!r}.")
