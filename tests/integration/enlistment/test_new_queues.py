"""The first send to a queue that does not exist makes it, and holds up no other sender until its transaction ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

import jmsql
from jmsql import JMSException, JMSSecurityException, Queue
from jmsql.testing import FAST_TIMINGS
from tests.integration.client.server import with_parameters
from tests.integration.enlistment.callers import KINDS, NAME, Caller, Kind, asyncpg_connection

FIRST, SECOND = Queue("first"), Queue("second")

QUEUES = "select name from jmsql_internal.queue where name is not null"


@pytest.fixture
def application_url(jmsql_clean_url: str) -> str:
    return with_parameters(jmsql_clean_url, application_name=NAME)


@pytest.fixture
def others(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
async def caller(kind: Kind, application_url: str) -> AsyncIterator[Caller]:
    async with kind(application_url) as caller:
        await caller.begin()
        yield caller


def send(transaction: psycopg.Connection[Any], queue: Queue) -> None:
    jmsql.enlist(transaction, timings=FAST_TIMINGS).create_producer().send(queue, "text")


async def test_a_new_queue_is_there_for_others_before_the_transaction_ends(
    caller: Caller, kind: Kind, others: psycopg.Connection[Any]
) -> None:
    await caller.send("text", FIRST)
    if kind is asyncpg_connection:  # which tells nobody its password
        with pytest.raises(JMSException, match="another transaction that has not ended") as refused:
            send(others, FIRST)
        assert refused.value.error_code == "55P03"
        await caller.commit()
    else:
        send(others, FIRST)
        await caller.rollback()
    assert others.execute(QUEUES).fetchall() == [("first",)]
    assert others.execute("select text_body from jmsql_internal.message").fetchall() == [("text",)]


async def test_a_queue_is_made_in_a_transaction_that_would_not_see_it(application_url: str) -> None:
    with psycopg.connect(application_url) as transaction:
        transaction.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        transaction.execute("select 1")
        send(transaction, FIRST)
        transaction.rollback()
        assert transaction.execute(QUEUES).fetchall() == []


def test_transactions_that_make_queues_in_opposite_order_do_not_deadlock(application_url: str) -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(psycopg.connect(application_url)) for _ in range(2))
        send(one, FIRST)
        send(two, SECOND)
        send(one, SECOND)
        send(two, FIRST)


@pytest.fixture
def limited_url(jmsql_clean_url: str, others: psycopg.Connection[Any]) -> Iterator[str]:
    """The URL of a role that may have one connection."""
    name, password = "jmsql_test_one_connection", "secret"
    role = sql.Identifier(name)
    others.execute(sql.SQL("create role {} login connection limit 1 password {}").format(role, password))
    others.execute(sql.SQL("grant {} to {}").format(sql.Identifier(others.info.user), role))
    url = sqlalchemy.make_url(jmsql_clean_url).set(username=name, password=password)
    yield url.render_as_string(hide_password=False)
    others.execute(sql.SQL("drop role {}").format(role))


def test_a_role_with_one_connection_makes_a_queue_in_its_transaction(
    limited_url: str, others: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(limited_url) as transaction:
        transaction.execute("set lock_timeout = '10s'")
        send(transaction, FIRST)
        assert transaction.execute("show lock_timeout").fetchone() == ("10s",)
        with pytest.raises(JMSException, match="another transaction that has not ended"):
            send(others, FIRST)
        with pytest.raises(psycopg.errors.LockNotAvailable, match="another transaction that has not ended"):
            others.execute("select jmsql.send('first', 'text')")
        transaction.rollback()
    assert others.execute(QUEUES).fetchall() == []


def test_the_role_of_the_transaction_makes_the_queue(application_url: str, others: psycopg.Connection[Any]) -> None:
    others.execute("create role jmsql_test_no_rights")
    try:
        with psycopg.connect(application_url) as transaction:
            others.execute("grant usage on schema jmsql, jmsql_internal to jmsql_test_no_rights")
            transaction.execute("set role jmsql_test_no_rights")
            with pytest.raises(JMSSecurityException):
                send(transaction, FIRST)
        assert others.execute(QUEUES).fetchall() == []
    finally:
        others.execute("drop owned by jmsql_test_no_rights; drop role jmsql_test_no_rights")


def test_a_queue_that_the_transaction_has_deleted_is_made_in_it(application_url: str) -> None:
    with psycopg.connect(application_url) as transaction:
        send(transaction, FIRST)
        transaction.commit()
        transaction.execute("select jmsql.delete_destination('first', force => true)")
        send(transaction, FIRST)
        transaction.commit()
        stored = (
            "select text_body from jmsql_internal.message join jmsql_internal.queue using (queue_id) where name = %s"
        )
        assert transaction.execute(stored, [FIRST.name]).fetchall() == [("text",)]
