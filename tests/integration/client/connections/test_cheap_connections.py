"""What it takes to connect: one connection to the server, few statements, and nothing before it is asked for."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

from jmsql import Connection, ConnectionFactory, Queue
from jmsql.store.connections.database_url import parse_url
from jmsql.store.connections.engine import Endpoint
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.texts import receive_texts, send_texts

UNREACHABLE = "postgresql://nobody@127.0.0.1:1/nowhere"
TO_CONNECT = 3
"""How many statements connecting takes: they ask where the connection leads and what the schema is, and make the client
known."""
TO_SEND_FIRST = 9
"""How many statements the first send of another connection takes, with the connections that it opens."""


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that this thread runs from now on."""
    statements: list[str] = []
    thread = threading.current_thread()
    execute = psycopg.Cursor.execute

    def note(cursor: psycopg.Cursor[Any], query: Any, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
        if threading.current_thread() is thread:
            statements.append(str(query))
        return execute(cursor, query, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Cursor, "execute", note)
        yield statements


def exchange(connection: Connection, name: str) -> None:
    """Send and receive."""
    connection.start()
    with connection.create_session() as session:
        send_texts(session, Queue(name), "a")
        assert receive_texts(session.create_consumer(Queue(name)), 1) == ["a"]


def test_a_factory_connects_to_nothing() -> None:
    factory = ConnectionFactory(UNREACHABLE, control_url=UNREACHABLE)
    assert factory == ConnectionFactory(UNREACHABLE, control_url=UNREACHABLE)


def test_connecting_opens_one_connection(factory: ConnectionFactory, server: Server) -> None:
    for number in range(2):
        with factory.create_connection() as connection:
            session = connection.create_session(transacted=True)
            producer = session.create_producer()
            # The server may take a moment to end the connections of the turn before.
            wait_for(lambda: (server.connections(CONTROL), server.connections(SESSIONS)) == (1, 0))
            producer.send(session.create_text_message("a"), destination=Queue(f"queue {number}"))
            session.commit()
            assert server.connections(SESSIONS) >= 1


def test_another_connection_takes_few_statements(jmsql_factory: ConnectionFactory, executed: list[str]) -> None:
    with jmsql_factory.create_connection() as first:
        exchange(first, "orders")
        executed.clear()
        with jmsql_factory.create_connection() as second:
            assert len(executed) <= TO_CONNECT, executed
            executed.clear()
            session = second.create_session()
            send_texts(session, Queue("orders"), "b")
            assert len(executed) <= TO_SEND_FIRST, executed


def test_connections_share_sqlalchemys_dialect_and_no_pool(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as first, jmsql_factory.create_connection() as second:
        exchange(first, "orders")
        with jmsql_factory.create_connection() as third:
            engines = [
                connection.create_session(transacted=True).database.engine for connection in (first, second, third)
            ]
            assert engines[0].dialect is engines[2].dialect
            assert len({engine.pool for engine in engines}) == 3


def test_facts_about_another_server_are_not_used(jmsql_url: str) -> None:
    endpoint = Endpoint(parse_url(jmsql_url))
    engines: list[sqlalchemy.Engine] = []
    for started in ("today", "today", "since it was upgraded"):
        engine = endpoint.open_engine((started,), psycopg.Connection)
        engine.connect().close()
        engine.dispose()
        engines.append(engine)
    assert engines[0].dialect is engines[1].dialect
    assert engines[2].dialect is not engines[0].dialect


def test_threads_may_connect_at_once_for_the_first_time(jmsql_factory: ConnectionFactory) -> None:
    together = threading.Barrier(4)

    def connect(number: int) -> None:
        together.wait(60)
        with jmsql_factory.create_connection() as connection:
            exchange(connection, f"queue {number}")

    def connecting(number: int) -> Callable[[], None]:
        return lambda: connect(number)

    for each in [Background(connecting(number)) for number in range(4)]:
        each.result(60)


def _exchange_in_child(url: str, schema: str) -> None:
    with ConnectionFactory(url, schema=schema).create_connection() as connection:
        exchange(connection, "of the child")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_connects_for_itself(jmsql_factory: ConnectionFactory, server: Server) -> None:
    with jmsql_factory.create_connection() as connection:
        exchange(connection, "orders")
        before = server.connections("jmsql")
        child = multiprocessing.get_context("fork").Process(
            target=_exchange_in_child, args=[jmsql_factory.url, jmsql_factory.schema]
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
        exchange(connection, "still the parent's")
        wait_for(lambda: server.connections("jmsql") == before)  # until the server has ended those of the child
