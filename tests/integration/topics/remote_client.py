"""A client in a process of its own, which does what it is told until it is killed.

It takes one order a line on its input, as JSON, and answers each with one line on its output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jmsql import AcknowledgeMode, ConnectionFactory, JMSException, MessageConsumer, Session, Topic
from tests.forked import ForkedProcess


class RemoteClient:
    """Gives orders to the process, and waits for each to be done."""

    def __init__(self, url: str, client_id: str | None) -> None:
        self._process = ForkedProcess(_main, url, client_id)

    def subscribe(self, topic: Topic, selector: str | None = None) -> None:
        """Make a consumer."""
        self._order("subscribe", topic.name, selector)

    def subscribe_durably(self, topic: Topic, name: str) -> str | None:
        """Make the consumer of a durable subscription; return the name of the exception that it raises."""
        refusal: str | None = self._order("subscribe_durably", topic.name, name)
        return refusal

    def share(self, topic: Topic, name: str) -> None:
        """Make the consumer of a shared subscription."""
        self._order("share", topic.name, name)

    def receive(self, count: int) -> list[str]:
        """Receive so many messages with the newest consumer, and do not acknowledge them; return their texts."""
        texts: list[str] = self._order("receive", count)
        return texts

    def temporary_destinations(self) -> list[str]:
        """Make a temporary queue and a temporary topic; return their names."""
        names: list[str] = self._order("temporary_destinations")
        return names

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self._process.kill()

    def _order(self, *order: object) -> Any:
        self._process.write_line(json.dumps(order))
        return json.loads(self._process.read_line())


@contextmanager
def remote_client(url: str, client_id: str | None = None) -> Iterator[RemoteClient]:
    """Run a client for as long as the block lasts."""
    client = RemoteClient(url, client_id)
    try:
        yield client
    finally:
        client.kill()


class _Client:
    """Carries out the orders, each a method of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._consumers: list[MessageConsumer] = []

    def subscribe(self, topic: str, selector: str | None) -> None:
        self._consumers.append(self._session.create_consumer(Topic(topic), selector))

    def subscribe_durably(self, topic: str, name: str) -> str | None:
        try:
            self._consumers.append(self._session.create_durable_consumer(Topic(topic), name))
        except JMSException as error:
            return type(error).__name__
        return None

    def share(self, topic: str, name: str) -> None:
        self._consumers.append(self._session.create_shared_consumer(Topic(topic), name))

    def receive(self, count: int) -> list[str]:
        texts = []
        for _ in range(count):
            message = self._consumers[-1].receive(timeout=30)
            assert message is not None
            texts.append(str(message.get_body(str)))
        return texts

    def temporary_destinations(self) -> list[str]:
        return [self._session.create_temporary_queue().name, self._session.create_temporary_topic().name]


def _main(url: str, client_id: str | None) -> None:
    with ConnectionFactory(url, client_id=client_id).create_connection() as connection:
        connection.start()
        client = _Client(connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT))
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            answer = getattr(client, name)(*arguments)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
