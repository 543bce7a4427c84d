"""Waiting for conditions elsewhere, as long as needed and no longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from jmsql.concurrency.threads import call
from jmsql.public_names import set_module
from jmsql.values.clock import monotonic

Value = TypeVar("Value")
Received_co = TypeVar("Received_co", covariant=True)


class Receiver(Protocol[Received_co]):
    """A source of messages, such as a ``MessageConsumer``."""

    def receive(self, timeout: float | None = None) -> Received_co | None:
        """The next message, or None if none came within `timeout` seconds."""


@set_module("jmsql.testing")
def wait_for(condition: Callable[[], Value], timeout: float = 10.0) -> Value:
    """Call `condition` again and again until its result is true, and return that.

    Args:
        condition: Cheap to call, without side effects; a plain function.
        timeout: Seconds until the wait fails.

    Raises:
        AssertionError: It never was; the message shows the last result.
        TypeError: The condition is a coroutine function or returns an awaitable, which would always be true.
    """
    deadline = monotonic() + timeout
    pause = 0.001
    while not (value := call(condition)):
        if monotonic() >= deadline:
            raise AssertionError(f"Not fulfilled within {timeout} s; the last value was {value!r}.")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return value


@set_module("jmsql.testing")
def receive_all(consumer: Receiver[Received_co], *, timeout: float = 0.0) -> list[Received_co]:
    """Receive all messages that are there.

    Args:
        consumer: Where they come from; its connection must be started.
        timeout: Seconds to wait for each message.

    Returns:
        The messages, in the order received.
    """
    messages = []
    while (message := consumer.receive(timeout=timeout)) is not None:
        messages.append(message)
    return messages
