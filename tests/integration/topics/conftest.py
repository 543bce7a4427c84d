"""Clients of topics."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jmsql import Connection, ConnectionFactory, Topic

Connect = Callable[[str | None], Connection]


_numbers = itertools.count(1)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> Topic:
    """A topic without subscriptions."""
    return Topic(f"news {next(_numbers)}" if "shared_connection" in request.fixturenames else "news")


@pytest.fixture
def connect(factory: ConnectionFactory) -> Iterator[Connect]:
    """Makes started connections, of clients with identifiers or without; closes them at the end of the test."""
    with ExitStack() as stack:

        def connect(client_id: str | None) -> Connection:
            connection = stack.enter_context(dataclasses.replace(factory, client_id=client_id).create_connection())
            connection.start()
            return connection

        yield connect


@pytest.fixture
def reader(connect: Connect) -> Connection:
    """A started connection of a client that can have durable subscriptions."""
    return connect("reader")
