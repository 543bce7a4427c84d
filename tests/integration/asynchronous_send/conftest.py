"""Producers for asynchronous sends, and listeners for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import (
    Connection,
    MessageProducer,
    Queue,
    Session,
)
from tests.integration.asynchronous_send.completions import Completions, Gate


@pytest.fixture
def completions() -> Completions:
    return Completions()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def producer(session: Session, queue: Queue) -> MessageProducer:
    return session.create_producer(queue)


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(transacted=True)
