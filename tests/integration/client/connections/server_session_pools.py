"""Pools of server sessions, and listeners that remember what they heard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import jmsql
from jmsql import AcknowledgeMode, Connection, Destination, Message, Session
from jmsql.connection_consumers import ServerSession, ThreadServerSessionPool
from jmsql.testing import wait_for
from tests.texts import texts_of

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


LISTENING = [mode for mode in AcknowledgeMode if mode is not AcknowledgeMode.CLIENT]


class Heard:
    """A listener for several sessions at once, which acknowledges.

    Args:
        work: What to do with each message before.
    """

    def __init__(self, work: Callable[[Message], object] = lambda message: None) -> None:
        self._work = work
        self._lock = threading.Lock()
        self.messages: list[Message] = []

    def __call__(self, session: Session) -> Callable[[Message], None]:
        return self.hear

    def hear(self, message: Message) -> None:
        self._work(message)
        message.acknowledge()
        with self._lock:
            self.messages.append(message)

    @property
    def texts(self) -> list[str]:
        return texts_of(list(self.messages))

    def wait_for(self, count: int) -> None:
        wait_for(lambda: len(self.messages) >= count, timeout=60)


@contextmanager
def listening(
    connection: Connection,
    queue: Destination,
    create_listener: Callable[[Session], jmsql.types.MessageListener],
    *,
    mode: AcknowledgeMode = AcknowledgeMode.AUTO,
    size: int = 1,
    max_messages: int = 10,
    selector: str | None = None,
) -> Iterator[jmsql.connection_consumers.ConnectionConsumer]:
    """A pool whose listeners receive from the queue for as long as the block lasts."""
    transacted = mode is AcknowledgeMode.TRANSACTED
    with (
        ThreadServerSessionPool(
            connection, size, create_listener, transacted=transacted, acknowledge_mode=mode
        ) as pool,
        connection.create_connection_consumer(queue, selector, pool, max_messages) as consumer,
    ):
        yield consumer


class OneSession:
    """A pool of one session, which the test runs itself."""

    def __init__(self, session: Session, fails: bool = False) -> None:
        self.session = session
        self.fails = fails
        self.free = threading.Semaphore()
        self.started = threading.Semaphore(0)

    def get_server_session(self) -> ServerSession:
        self.free.acquire()
        return self

    def start(self) -> None:
        if self.fails:
            raise RuntimeError("no thread is left")
        self.started.release()
