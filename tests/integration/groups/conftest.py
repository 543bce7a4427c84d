"""Consumers of one queue, each with a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from jmsql import AcknowledgeMode, Connection, MessageConsumer, Queue, Session

OpenSession = Callable[[AcknowledgeMode], Session]


class Receiver(NamedTuple):
    """A consumer of the queue, and its session."""

    session: Session
    consumer: MessageConsumer

    @property
    def mode(self) -> AcknowledgeMode:
        """The session's."""
        return self.session.acknowledge_mode


def _receiver(session: Session, queue: Queue) -> Receiver:
    return Receiver(session, session.create_consumer(queue))


@pytest.fixture
def open_session(connection: Connection, other_connection: Connection) -> OpenSession:
    """Opens sessions, of one client and another by turns."""
    clients = [connection, other_connection]

    def open_one(mode: AcknowledgeMode) -> Session:
        clients.reverse()
        return clients[0].create_session(mode is AcknowledgeMode.TRANSACTED, mode)

    return open_one


@pytest.fixture(params=[AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT], ids=lambda mode: f"held by {mode.name}")
def holder(request: pytest.FixtureRequest, open_session: OpenSession, queue: Queue) -> Receiver:
    """A consumer that holds what it has received until its session settles it."""
    return _receiver(open_session(request.param), queue)


@pytest.fixture(
    params=[AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT, AcknowledgeMode.AUTO],
    ids=lambda mode: f"wanted by {mode.name}",
)
def other(request: pytest.FixtureRequest, open_session: OpenSession, queue: Queue) -> Receiver:
    """A consumer of another session, which would like the same."""
    return _receiver(open_session(request.param), queue)
