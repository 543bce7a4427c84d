"""Handlers that set a role in their message's transaction: the worker settles the message as its own role."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql.asyncio
from jmsql import ConnectionFactory, JMSContext, Queue, RedeliveryPolicy
from jmsql.testing import wait_for
from jmsql.worker import Application
from jmsql.xa import XAConnectionFactory
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_handlers import send, texts_in

ONCE = RedeliveryPolicy(maximum_deliveries=1)
CURRENT = "select current_user"
INSERTION = "insert into handled values (current_user, 0, 1)"

SETTINGS = {
    "set local role": "set local role {role}",
    "set role": "set role {role}",
    "set_config": "select set_config('role', '{role}', true)",
    "set local session authorization": "set local session authorization {role}",
    "a block": "do $$ begin set local role {role}; end $$",
}


@pytest.fixture
def role(database: WorkerDatabase) -> Iterator[str]:
    """A role that may insert what a handler has done, and knows nothing of messages."""
    name = f"tenant_{secrets.token_hex(4)}"
    database.rows(f"create role {name}; grant insert on handled to {name}; select")
    yield name
    database.rows(f"drop owned by {name}; drop role {name}; select")


async def test_a_message_is_handled_whose_handler_sets_a_role(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, role: str
) -> None:
    app = Application(jmsql_factory)
    seen: list[str] = []

    @app.listener("plain", redelivery=ONCE, reply_to="replies")
    def handle(body: str, database: sqlalchemy.Connection, context: JMSContext) -> str:
        producer = context.create_producer()
        producer.send(Queue("sent"), "before")
        database.exec_driver_sql(body)
        database.exec_driver_sql(INSERTION)
        producer.send(Queue("sent"), "after")
        seen.append(database.exec_driver_sql(CURRENT).scalar_one())
        return body

    @app.listener("awaited", redelivery=ONCE, reply_to="replies")
    async def handle_awaited(body: str, database: AsyncConnection, context: jmsql.asyncio.JMSContext) -> str:
        producer = context.create_producer()
        await producer.send(Queue("sent"), "before")
        await database.exec_driver_sql(body)
        await database.exec_driver_sql(INSERTION)
        await producer.send(Queue("sent"), "after")
        seen.append((await database.exec_driver_sql(CURRENT)).scalar_one())
        return body

    @app.listener("psycopg", redelivery=ONCE, reply_to="replies")
    def handle_by_driver(body: str, connection: psycopg.Connection, context: JMSContext) -> str:
        producer = context.create_producer()
        producer.send(Queue("sent"), "before")
        connection.execute(body)
        with connection.transaction():
            connection.execute(INSERTION)
            producer.send(Queue("sent"), "after")
        seen.append(connection.execute(CURRENT).fetchone()[0])  # type: ignore[index]
        return body

    count = 3 * len(SETTINGS)
    for setting in SETTINGS.values():
        for listener in app.listeners:
            send(jmsql_factory, listener.destination.name, setting.format(role=role))
    async with app.running(concurrency=2):
        await asyncio.to_thread(wait_for, lambda: not waiting(database), PATIENCE)
    assert database.rows("select last_error from jmsql.dead_letters") == []
    assert seen == [role] * count
    assert database.rows("select distinct text from handled") == [(role,)]
    assert sorted(map(str, texts_in(jmsql_factory, "sent"))) == ["after"] * count + ["before"] * count
    assert len(texts_in(jmsql_factory, "replies")) == count


def waiting(database: WorkerDatabase) -> list[tuple[Any, ...]]:
    return database.rows("select from jmsql.messages where queue in ('plain', 'awaited', 'psycopg', 'orders')")


async def test_statements_after_a_savepoint_run_as_the_earlier_role(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, role: str
) -> None:
    app = Application(jmsql_factory)
    seen: list[str] = []

    @app.listener("orders", redelivery=ONCE)
    def handle(body: str, rows: sqlalchemy.Connection, context: JMSContext) -> None:
        rows.exec_driver_sql(f"set local role {body}")
        with rows.begin_nested() as savepoint:
            context.create_producer().send(Queue("sent"), "undone")
            seen.append(rows.exec_driver_sql(CURRENT).scalar_one())
            savepoint.rollback()
        context.create_producer().send(Queue("sent"), "kept")
        seen.append(rows.exec_driver_sql(CURRENT).scalar_one())

    send(jmsql_factory, "orders", role)
    async with app.running():
        await asyncio.to_thread(wait_for, lambda: not waiting(database), PATIENCE)
    assert seen == [role, role]
    assert texts_in(jmsql_factory, "sent") == ["kept"]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_session_commits_as_its_own_role(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, role: str, setting: str
) -> None:
    send(jmsql_factory, "orders", "a", "b")
    with jmsql_factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        connection.start()
        consumer = session.create_consumer(Queue("orders"))
        for _ in range(2):
            assert consumer.receive(timeout=PATIENCE) is not None
            session.database.exec_driver_sql(setting.format(role=role))
            session.database.exec_driver_sql(INSERTION)
            session.commit()
    assert waiting(database) == []
    assert database.rows("select distinct text from handled") == [(role,)]


def test_a_global_transaction_is_prepared_by_the_session_s_own_role(
    jmsql_clean_url: str, jmsql_factory: ConnectionFactory, database: WorkerDatabase, role: str
) -> None:
    send(jmsql_factory, "orders", "a")
    with (
        XAConnectionFactory(jmsql_clean_url).create_xa_connection() as connection,
        connection.create_xa_session() as session,
    ):
        connection.start()
        session.tpc_begin(session.xid(1, "roles", "a"))
        assert session.create_consumer(Queue("orders")).receive(timeout=PATIENCE) is not None
        session.database.exec_driver_sql(f"set local role {role}")
        session.database.exec_driver_sql(INSERTION)
        session.tpc_prepare()
        owners = database.rows("select owner from pg_prepared_xacts")
        session.tpc_commit()
    assert (role,) not in owners
    assert database.rows("select distinct text from handled") == [(role,)]


def test_a_role_of_a_handler_does_not_outlast_it_in_the_transaction_of_a_test(
    jmsql_clean_url: str, database: WorkerDatabase, role: str
) -> None:
    app = Application()
    seen: list[str] = []

    @app.listener("orders")
    def handle(body: str, connection: psycopg.Connection) -> None:
        connection.execute(f"set local role {role}")
        seen.append(body)

    with psycopg.connect(jmsql_clean_url) as transaction:
        context = jmsql.enlist(transaction)
        for text in "ab":
            context.create_producer().send(Queue("orders"), text)
        before = transaction.execute(CURRENT).fetchone()
        app.drain(transaction=transaction)
        assert transaction.execute(CURRENT).fetchone() == before
        transaction.rollback()
    assert seen == ["a", "b"]
