"""Senders and handlers side by side, whose connections are killed at random: a handler has seen each change."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql import AcknowledgeMode, Connection, JMSException
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import Server, with_parameters

KEYS = 3
SENDS = 60
SENDER = "sender in a storm"


@pytest.fixture
def tables(jmsql_clean_url: str) -> Iterator[None]:
    """The application's: what was changed, and how many changes each handler has seen."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        database.execute("create table change (customer integer); create table handled (customer integer, seen bigint)")
        yield
        database.execute("drop table change, handled")


def connect(url: str) -> psycopg.Connection[Any]:
    """Connect, even if the new connection is killed meanwhile."""
    while True:
        with suppress(psycopg.OperationalError):
            return psycopg.connect(url)


def change(url: str, seed: int, options: dict[str, Any]) -> int:
    """Change customers and ask for them to be handled; return how many transactions have committed."""
    chance = random.Random(seed)
    committed = 0
    database = connect(url)
    for _ in range(SENDS):
        try:
            for customer in chance.sample(range(KEYS), chance.choice([1, 1, 2])):
                database.execute("insert into change values (%s)", [customer])
                jmsql.send(database, "customers", str(customer), coalesce=f"customer {customer}", **options)
            threading.Event().wait(chance.choice([0, 0, 0.01]))  # a handler may begin now
            if chance.random() < 0.2:
                database.rollback()
            else:
                database.commit()
                committed += 1
        except (JMSException, psycopg.Error):  # killed, or a deadlock
            database.close()
            database = connect(url)
    database.close()
    return committed


def handle(connection: Connection, mode: AcknowledgeMode, url: str, is_over: Callable[[], bool]) -> None:
    """Handle messages until there are none, after the storm."""
    while True:
        with (
            suppress(JMSException, sqlalchemy.exc.DBAPIError),
            connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session,
        ):
            consumer = session.create_consumer("customers")
            while True:
                was_over = is_over()
                message = consumer.receive(timeout=0.05)
                if message is None and was_over:
                    return
                if message is None:
                    continue
                customer = message.get_body(str)
                see = f"insert into handled select {customer}, count(*) from change where customer = {customer}"
                if mode is AcknowledgeMode.TRANSACTED:
                    session.database.execute(sqlalchemy.text(see))
                    session.commit()
                else:
                    with psycopg.connect(url) as database:
                        database.execute(see.encode())
                    message.acknowledge()


@pytest.mark.parametrize("body", ["first", "latest"])
@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
@pytest.mark.usefixtures("tables")
def test_the_last_handler_of_a_key_has_seen_the_last_change(
    connection: Connection, jmsql_clean_url: str, server: Server, mode: AcknowledgeMode, body: str
) -> None:
    over = threading.Event()
    url = with_parameters(jmsql_clean_url, application_name=SENDER)
    handlers = [Background(lambda: handle(connection, mode, jmsql_clean_url, over.is_set)) for _ in range(2)]
    senders = [Background(lambda seed=seed: change(url, seed, {"coalesce_body": body})) for seed in range(3)]  # type: ignore[misc]
    chance = random.Random(5)
    while any(sender.is_running for sender in senders):
        server.rows(
            "select pg_terminate_backend(pid, 1000) from pg_stat_activity "
            "where datname = current_database() and application_name in (%s, 'client''s sessions') "
            "order by random() limit 1",
            SENDER,
        )
        threading.Event().wait(chance.uniform(0.0, 0.1))
    committed = [sender.result() for sender in senders]
    over.set()
    for handler in handlers:
        handler.result()

    def is_empty() -> bool:
        # Messages of killed handlers come again, and are handled here with those that wait for them.
        handle(connection, mode, jmsql_clean_url, lambda: True)
        return server.rows("select count(*) from jmsql_internal.message") == [(0,)]

    wait_for(is_empty)
    assert min(committed) > 0
    unseen = server.rows(
        "select customer, count(*), (select max(seen) from handled h where h.customer = c.customer) "
        "from change c group by customer"
    )
    assert all(changes == seen for _, changes, seen in unseen), unseen
