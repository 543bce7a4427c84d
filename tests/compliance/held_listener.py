"""A message listener that the test holds while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from jmsql import Message
from tests.background import Background

_PATIENCE = 60.0


class HeldListener:
    """Waits in each call until it is released, then does its work.

    Args:
        work: What to do with the message.
    """

    def __init__(self, work: Callable[[Message], object] = lambda message: None) -> None:
        self._work = work
        self._called = threading.Event()
        self._released = threading.Event()
        self.has_returned = False
        self.messages: list[Message] = []
        self.errors: list[BaseException] = []

    def on_message(self, message: Message) -> None:
        """Take a message."""
        self.messages.append(message)
        self._called.set()
        try:
            assert self._released.wait(_PATIENCE), "nobody released the listener"
            self._work(message)
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            self.has_returned = True

    def wait_until_called(self) -> None:
        """Return when it runs."""
        assert self._called.wait(_PATIENCE), "nobody called the listener"

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    def must_return_before(self, act: Callable[[], object]) -> None:
        """Do what has to wait for the listener, and let the listener go on while it waits."""

        def act_and_look() -> bool:
            act()
            return self.has_returned

        acting = Background(act_and_look)
        acting.wait_until_it_waits()
        self.release()
        assert acting.result(), "it did not wait for the listener"
