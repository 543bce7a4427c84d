"""How many files and functions of jmsql a message passes, all of which a reader has to follow.

The numbers are upper bounds, which a change may lower and not raise. They are those of a client for threads that has
sent and received before, and that has learned whether the queue keeps history: until then a deletion asks.
"""

from __future__ import annotations

import queue as queues
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

import jmsql
from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue
from jmsql.client._sync.session.transactions import handler
from jmsql.store.control.counters import meters
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from jmsql.worker import Application
from jmsql.worker.handlers._sync.handlers import Handlers
from jmsql.worker.settings import HandlerSettings

pytestmark = pytest.mark.usefixtures("shared_connection", "unmetered")

PACKAGE = str(Path(jmsql.__file__).parent)

# A round in which a statement is prepared or a queue is looked at from its front passes more.
ROUNDS = 8


@pytest.fixture
def unmetered() -> Iterator[None]:
    """Nobody counts for metrics of the process, which tests before may have registered for good."""
    registered = set(meters)
    meters.clear()
    yield
    meters.update(registered)


class Walk(NamedTuple):
    """What a call passes."""

    files: int
    functions: int
    names: tuple[str, ...]


def walk(call: Callable[[], object]) -> Walk:
    """Return what a call passes of jmsql."""
    passed: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed.add(frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return walk_of(passed)


def walk_of(passed: set[CodeType]) -> Walk:
    """Return a walk, with the names of what was passed: they tell why it has become longer."""
    passed = passed.copy()  # other threads go on
    names = sorted(f"{Path(code.co_filename).relative_to(PACKAGE)}: {code.co_qualname}" for code in passed)
    return Walk(len({code.co_filename for code in passed}), len(passed), tuple(names))


def shortest(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> Walk:
    """Return the shortest walk of some rounds, each after a preparation that does not count."""
    walks = []
    for _ in range(ROUNDS):
        before()
        walks.append(walk(call))
    return min(walks, key=lambda each: each.functions)


def learn_of_history(connection: Connection) -> None:
    """Return when the client has looked whether the queues that it receives from keep history."""
    wait_for(lambda: not connection._client.control.queues_with_history.new)


def check(walked: Walk, files: int, functions: int) -> None:
    """Make sure that a walk is no longer than it was."""
    names = "\n".join(walked.names)
    assert 0 < walked.functions <= functions, names
    assert walked.files <= files, names


def test_a_message_of_an_auto_session(connection: Connection, queue: Queue) -> None:
    connection.start()
    with connection.create_session() as session:
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        message = session.create_text_message("x")
        # Every 2 ms a send asks whether somebody waits, and on a slow machine each one does, or wakes the notifier.
        check(shortest(lambda: producer.send(message)), files=19, functions=43)
        learn_of_history(connection)
        check(shortest(lambda: consumer.receive(5)), files=18, functions=55)


def test_a_message_of_a_transacted_session(connection: Connection, queue: Queue) -> None:
    connection.start()
    with connection.create_session() as other, connection.create_session(transacted=True) as session:
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        message = session.create_text_message("x")
        for _ in range(ROUNDS * 2):
            other.create_producer(queue).send(message)
        check(shortest(lambda: producer.send(message), session.rollback), files=10, functions=11)
        session.rollback()
        learn_of_history(connection)
        check(shortest(lambda: consumer.receive(5), session.commit), files=18, functions=58)
        check(shortest(session.commit, lambda: consumer.receive(5)), files=14, functions=56)


def test_an_acknowledgement(connection: Connection, queue: Queue) -> None:
    connection.start()
    with connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT) as session:
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        for _ in range(ROUNDS):
            producer.send(session.create_text_message("x"))
        learn_of_history(connection)
        received: list[Message] = []

        def receive() -> None:
            message = consumer.receive(5)
            assert message is not None
            received.append(message)

        def acknowledge() -> None:
            received[-1].acknowledge()

        check(shortest(acknowledge, receive), files=15, functions=41)


def test_a_message_through_the_worker(
    jmsql_factory: ConnectionFactory,
    connection: Connection,
    queue: Queue,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Measure the path of a message that was claimed ahead, as nearly all are. On a slow machine, none would be: one
    # message takes as long there as the time for which others are claimed.
    monkeypatch.setattr(handler, "_AHEAD", 60.0)
    monkeypatch.setattr(handler, "_LONGEST", 120.0)
    timings = InternalTimings(prefetch_duration=60.0)
    passed: set[CodeType] = set()
    walks = queues.SimpleQueue[Walk]()
    application = Application()

    @application.listener(queue)
    def handle(message: Message) -> None:
        walks.put(walk_of(passed))
        passed.clear()  # what follows is the commit, and how the next message is received

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            passed.add(frame.f_code)

    with connection.create_session() as session, session.create_producer(queue) as producer:
        for _ in range(ROUNDS * 2):
            producer.send(session.create_text_message("x"))
    handlers = Handlers.open(replace(jmsql_factory, timings=timings), application.listeners, HandlerSettings())
    request.addfinalizer(lambda: handlers.end(30.0))
    threading.setprofile(note)
    request.addfinalizer(lambda: threading.setprofile(None))
    handlers.start()
    found = [walks.get(timeout=60) for _ in range(ROUNDS * 2)]
    # The worker's client handles all of them before it has looked for history.
    check(min(found[1:], key=lambda each: each.functions), files=32, functions=90)
