"""Completion listeners, and what they are told of."""

from __future__ import annotations

import threading
from typing import Any

from jmsql import (
    JMSException,
    Message,
    MessageProducer,
    TextMessage,
)
from tests.integration.client.server import Server

PATIENCE = 60.0


class Completions:
    """A completion listener that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Message, JMSException | None]] = []
        self.threads: set[threading.Thread] = set()

    def on_completion(self, message: Message) -> None:
        self._note(message, None)

    def on_exception(self, message: Message, exception: JMSException) -> None:
        self._note(message, exception)

    def _note(self, message: Message, exception: JMSException | None) -> None:
        self.told.append((message, exception))
        self.threads.add(threading.current_thread())

    @property
    def sent(self) -> list[str | None]:
        """The texts of the messages that were sent."""
        return [message.get_body(str) for message, error in self.told if error is None]

    @property
    def failed(self) -> list[str | None]:
        """The texts of the messages that were not."""
        return [message.get_body(str) for message, error in self.told if error is not None]

    @property
    def errors(self) -> list[JMSException]:
        """Why."""
        return [error for _, error in self.told if error is not None]


class Gate:
    """A completion listener that waits until it is let go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.passed: list[str | None] = []

    def __call__(self, message: Message, _: JMSException | None) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE)
        self.passed.append(message.get_body(str))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def send_numbers(producer: MessageProducer, count: int, listener: Any) -> None:
    for text in numbers(count):
        producer.send(TextMessage(text), completion_listener=listener)


def stored(server: Server) -> list[str]:
    """The texts of the messages in the store, in their order."""
    return [row[0] for row in server.rows("select body from jmsql.messages order by priority desc, sequence")]
