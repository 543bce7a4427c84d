"""A client in a process of its own, which receives until it is told to stop, or is killed.

It tells of each message received on its output.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jmsql import AcknowledgeMode, ConnectionFactory, Message, Queue, RedeliveryPolicy, Session
from tests.forked import ForkedProcess

STOP = "stop"
"""The text that makes a client which settles its messages stop."""

_READY = "ready"


@dataclass(frozen=True)
class Order:
    """What the client is to do with one queue.

    Args:
        queue: Its name.
        mode: The name of the session's acknowledge mode.
        receives: How many messages to receive and hold; None: to receive, and settle, all until STOP.
        listens: Whether a listener takes them, which then does not return from the last.
        records: Whether the consumer has a policy, so that deliveries in transactions are recorded.
    """

    queue: str
    mode: str
    receives: int | None = None
    listens: bool = False
    records: bool = False


class ClientProcess:
    """A running client."""

    def __init__(self, url: str, *orders: Order) -> None:
        self._process = ForkedProcess(_main, url, orders)

    @property
    def process_id(self) -> int:
        """Its number in the system."""
        return self._process.process_id

    def wait_until_ready(self) -> None:
        """Return when it is about to receive."""
        assert self._line() == [_READY]

    def received(self, count: int) -> list[list[str]]:
        """Wait until it has received so many messages; return the queue and the text of each."""
        return [self._line() for _ in range(count)]

    def texts_until_it_stops(self) -> list[str]:
        """The texts of all messages that it receives."""
        return [text for _, text in iter(self._line, [])]

    def freeze(self) -> None:
        """Hold it up, as a machine that swaps does."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as nothing can prevent."""
        self._process.kill()

    def _line(self) -> list[str]:
        """What it writes next; [] once it has stopped."""
        return list(json.loads(self._process.read_line() or "[]"))


@contextmanager
def client_process(url: str, *orders: Order) -> Iterator[ClientProcess]:
    """Run a client for as long as the block lasts."""
    process = ClientProcess(url, *orders)
    try:
        yield process
    finally:
        process.kill()


def _tell(*facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _hold(session: Session, order: Order) -> None:
    consumer = session.create_consumer(Queue(order.queue))
    assert order.receives is not None
    if order.records:
        consumer.default_redelivery_policy = RedeliveryPolicy()
    if not order.listens:
        for _ in range(order.receives):
            message = consumer.receive(timeout=60)
            assert message is not None
            _tell(order.queue, message.get_body(str))
        return
    heard = []

    def listen(message: Message) -> None:
        heard.append(message)
        _tell(order.queue, message.get_body(str))
        if len(heard) == order.receives:
            sys.stdin.read()

    consumer.message_listener = listen


def _settle_all(session: Session, order: Order) -> None:
    for message in session.create_consumer(Queue(order.queue)):
        is_last = message.get_body(str) == STOP
        if session.transacted:
            session.commit()
        message.acknowledge()
        if is_last:
            return
        _tell(order.queue, message.get_body(str))


def _main(url: str, orders: Iterable[Order]) -> None:
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        _tell(_READY)
        for order in orders:
            mode = AcknowledgeMode[order.mode]
            session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
            (_settle_all if order.receives is None else _hold)(session, order)
        if any(order.receives is not None for order in orders):
            sys.stdin.read()
