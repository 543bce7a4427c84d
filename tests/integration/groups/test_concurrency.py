"""Many consumers of all kinds, some of which fail: each group's messages come in order, to one consumer at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from jmsql import AcknowledgeMode, ConnectionFactory, Message, Queue, Session
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.groups.grouped import GroupPlace, place_of, send_places
from tests.integration.groups.observer import Observer

GROUPS = 8
MESSAGES = 20
"""In each group, and as many without one."""
FAILURES = 0.15
"""How often a consumer releases what it has received."""

ALL: list[GroupPlace] = [
    (group, number) for number in range(1, MESSAGES + 1) for group in [*(f"group {n}" for n in range(GROUPS)), None]
]

Consume = Callable[[Session, Observer, random.Random, threading.Event], None]


def transacted(session: Session, observer: Observer, chance: random.Random, finished: threading.Event) -> None:
    """Receive a few messages in each transaction, and roll some transactions back."""
    consumer = session.create_consumer(Queue("orders"))
    while not finished.is_set():
        held = []
        for _ in range(chance.randint(1, 4)):
            message = consumer.receive(timeout=0.05)
            if message is None:
                break
            held.append(place_of(message))
            observer.begun(held[-1], session)
            finished.wait(chance.uniform(0, 0.002))
        if chance.random() < FAILURES:
            observer.released(held)
            session.rollback()
        else:
            observer.done(held)
            session.commit()


def by_client(session: Session, observer: Observer, chance: random.Random, finished: threading.Event) -> None:
    """Acknowledge every few messages, and recover some instead."""
    consumer = session.create_consumer(Queue("orders"))
    while not finished.is_set():
        held = []
        message: Message | None = None
        for _ in range(chance.randint(1, 4)):
            found = consumer.receive(timeout=0.05)
            if found is None:
                break
            message = found
            held.append(place_of(message))
            observer.begun(held[-1], session)
        if message is not None and chance.random() >= FAILURES:
            observer.done(held)
            message.acknowledge()
        elif message is not None:
            observer.released(held)
            session.recover()
    session.close()


def listening(session: Session, observer: Observer, chance: random.Random, finished: threading.Event) -> None:
    """Have a listener called, which fails sometimes, but at most once with a message: it comes later each time."""

    def listen(message: Message) -> None:
        place = place_of(message)
        observer.begun(place, session)
        finished.wait(chance.uniform(0, 0.002))
        if chance.random() < FAILURES and not message.jms_redelivered:
            observer.released([place])
            raise ValueError("Not this time.")
        observer.done([place])

    session.create_consumer(Queue("orders")).message_listener = listen
    finished.wait()


KINDS = {
    "transacted": (transacted, AcknowledgeMode.TRANSACTED),
    "by the client": (by_client, AcknowledgeMode.CLIENT),
    "by a listener": (listening, AcknowledgeMode.AUTO),
}
MIXES = {name: [name] * 4 for name in KINDS} | {"of all kinds": [*KINDS, *KINDS]}


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES.keys())
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_consumers_that_compete_and_fail(jmsql_factory: ConnectionFactory, server: Server, mix: list[str]) -> None:
    seed = random.randrange(1_000_000)
    observer, finished = Observer(), threading.Event()
    with jmsql_factory.create_connection() as connection, jmsql_factory.create_connection() as other:
        connection.start()
        other.start()
        workers = []
        for number, name in enumerate(mix):
            consume, mode = KINDS[name]
            owner = connection if number % 2 else other
            session = owner.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
            workers.append(Background(partial(consume, session, observer, random.Random(f"{seed} {number}"), finished)))
        sender = connection.create_session(transacted=True)
        for start in range(0, len(ALL), 30):
            send_places(sender, Queue("orders"), *ALL[start : start + 30])
        try:
            wait_for(lambda: observer.violations or observer.count_done() == len(ALL), timeout=60)
        finally:
            finished.set()
            for worker in workers:
                worker.result()
    assert observer.violations == [], f"seed {seed}"
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]
