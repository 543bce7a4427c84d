"""Connections that the tests of a module share: to connect costs ten times as much as to send a message and receive it.

A module says that it shares one by `pytest.mark.usefixtures("shared_connection")`. Each of its tests has sessions and a
queue of its own, and meets no messages but its own; nobody does the maintenance, unless a test is marked `maintained`.
Tests that close their connection, or have more sessions with transactions than it has connections for, are marked
`own_connection`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jmsql import Connection, ConnectionFactory, Message, Queue
from jmsql.testing import FAST_TIMINGS
from jmsql.testing.database import SessionDatabase
from tests.leadership import POSTPONE_MAINTENANCE, SUSPEND_MAINTENANCE

_SESSIONS = 4
"""How many sessions that use the database at once a shared connection has connections for."""

_KEEPING = dataclasses.replace(FAST_TIMINGS, idle_connection_timeout=3600.0)
"""Connections that are open when a test begins are there when it needs them, however long the one before took."""

_LEFT = ("delivery", "message", "delayed_message", "subscription")
"""What a test leaves, where it sends messages and subscribes."""

_numbers = itertools.count(1)


def shares_connection(request: pytest.FixtureRequest) -> bool:
    """Whether the test's module shares a connection."""
    return "shared_connection" in request.fixturenames


def is_maintained(request: pytest.FixtureRequest) -> bool:
    """True if the test's own clients do the maintenance, and from the first moment."""
    return request.node.get_closest_marker("maintained") is not None


@contextmanager
def connected_for_module(factory: ConnectionFactory) -> Iterator[Connection]:
    """Connect, and open what sessions use: what a test opens, it has to close."""
    with dataclasses.replace(factory, timings=_KEEPING).create_connection() as connection:
        connection.start()
        # Each session is in a transaction, which keeps its connection: those of asyncio share what others do not use.
        sessions = [connection.create_session(transacted=True) for _ in range(_SESSIONS)]
        for session in sessions:
            queue = Queue(f"first {next(_numbers)}")
            session.create_producer(queue).send(Message())
            session.commit()
            assert session.create_consumer(queue).receive(timeout=10) is not None
        sessions[0].create_temporary_queue().delete()  # which is done beside the sessions
        for session in sessions:
            session.close()
        yield connection


@contextmanager
def lent(connection: Connection) -> Iterator[Connection]:
    """Give a shared connection to one test; afterwards it is as it was before."""
    try:
        yield connection
    finally:
        connection.exception_listener = None
        connection.start()
        connection._sessions.close()


def empty(database: SessionDatabase, request: pytest.FixtureRequest) -> None:
    """Empty the schema for a test, but for what the connections know that its module shares."""
    if not shares_connection(request):
        database.clean()
        if not is_maintained(request):
            database.execute(POSTPONE_MAINTENANCE)
        return
    for table in _LEFT:
        database.execute(f"delete from jmsql_internal.{table}")
    database.execute("delete from jmsql_internal.leadership" if is_maintained(request) else SUSPEND_MAINTENANCE)
