"""A client in a process of its own, which sends asynchronously until it is killed.

It writes the text of each message whose completion listener is called.
"""

from __future__ import annotations

import itertools
import signal
import sys
from typing import Self

from jmsql import ConnectionFactory, JMSException, Message, Queue, TextMessage
from tests.forked import ForkedProcess


class SendingProcess:
    """A running client. A context manager, which kills it at the end.

    Args:
        url: Where the database is.
        queue: Where it sends numbers to.
    """

    def __init__(self, url: str, queue: str) -> None:
        self._process = ForkedProcess(_main, url, queue)

    def completed(self, count: int) -> list[str]:
        """Wait until so many more messages are complete; return their texts."""
        return [self._process.read_line().strip() for _ in range(count)]

    def kill(self) -> list[str]:
        """End it as nothing can prevent; return the texts of the messages that were complete by then, too."""
        self._process.send_signal(signal.SIGKILL)
        lines = list(iter(self._process.read_line, ""))
        return [line.strip() for line in lines if line.endswith("\n")]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


def _tell(message: Message, error: JMSException | None) -> None:
    if error is None:
        sys.stdout.write(f"{message.get_body(str)}\n")
        sys.stdout.flush()


def _main(url: str, queue: str) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(queue))
        for number in itertools.count():
            producer.send(TextMessage(str(number)), completion_listener=_tell)
