"""Transactions that PostgreSQL begins by itself, spoken in libpq's terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from jmsql.client._sync.database.opening import open_runner
from jmsql.exceptions import JMSException
from jmsql.store.runners._sync.implicit_transaction import ImplicitTransaction
from jmsql.store.runners.prepared_statements import PreparedStatements
from jmsql.store.statement import Statement, column, nothing, value

NUMBER = Statement("number", "select %(number)s::integer", "asking", value(int))
INSERT = Statement("insert", "insert into implicit values (%(number)s)", "inserting", nothing)
NUMBERS = Statement("numbers", "select number from implicit order by number", "asking", column)
TERMINATE = Statement("terminate", "select pg_terminate_backend(pg_backend_pid())", "asking", nothing)


@pytest.fixture
def connection(jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    with open_runner(jmsql_url, "jmsql") as runner:
        runner.connection.execute("create temporary table implicit (number integer primary key)")
        yield runner.connection


@pytest.fixture
def prepared() -> PreparedStatements:
    return PreparedStatements()


@pytest.fixture
def transaction(connection: psycopg.Connection[Any], prepared: PreparedStatements) -> ImplicitTransaction:
    return ImplicitTransaction(connection, "jmsql", prepared)


def rows(connection: psycopg.Connection[Any]) -> list[int]:
    return [number for (number,) in connection.execute("select number from implicit order by number")]


def test_its_statements_take_effect_together(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    transaction.run(INSERT.bind(number=1))
    transaction.run(INSERT.bind(number=2))
    assert transaction.run(NUMBERS.bind()) == [1, 2]
    transaction.commit()
    assert transaction.is_idle
    assert rows(connection) == [1, 2]


def test_what_is_rolled_back_has_no_effect(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    transaction.run(INSERT.bind(number=1))
    transaction.roll_back()
    assert rows(connection) == []
    transaction.run(INSERT.bind(number=2))
    transaction.commit()
    assert rows(connection) == [2]


def test_an_error_undoes_what_went_before(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    transaction.run(INSERT.bind(number=1))
    with pytest.raises(JMSException, match="inserting"):
        transaction.run(INSERT.bind(number=1))
    assert rows(connection) == []
    assert transaction.run(NUMBER.bind(number=3)) == 3
    transaction.commit()


def test_an_error_of_the_commit_is_raised(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    connection.execute("alter table implicit add constraint once unique (number) deferrable initially deferred")
    connection.execute("alter table implicit drop constraint implicit_pkey")
    transaction.run(INSERT.bind(number=1))
    transaction.run(INSERT.bind(number=1))
    with pytest.raises(psycopg.errors.UniqueViolation):
        transaction.commit()
    assert rows(connection) == []


@pytest.mark.parametrize("statement", ["deallocate all", "discard all"])
def test_statements_that_somebody_deallocates_are_prepared_again(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction, statement: str
) -> None:
    for number in range(2):
        assert transaction.run(NUMBER.bind(number=number)) == number
        transaction.commit()
        connection.execute(statement.encode(), prepare=False)


def test_a_statement_whose_result_has_other_columns_now_is_prepared_again(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    everything = Statement("everything", "select * from implicit", "asking", lambda result: result.rows)
    transaction.run(INSERT.bind(number=1))
    assert transaction.run(everything.bind()) == [(1,)]
    transaction.commit()
    connection.execute("alter table implicit add column other text")
    assert transaction.run(everything.bind()) == [(1, None)]
    transaction.commit()


def test_no_more_than_a_hundred_stay_prepared(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    statements = [Statement("number", f"select {number}", "asking", value(int)) for number in range(105)]
    for number, statement in enumerate(statements):
        assert transaction.run(statement.bind()) == number
        transaction.commit()
    count = connection.execute("select count(*) from pg_prepared_statements where name like 'jmsql%'").fetchone()
    assert count == (100,)
    assert transaction.run(statements[0].bind()) == 0
    transaction.commit()


def test_nothing_is_prepared_through_a_pooler_that_loses_it(connection: psycopg.Connection[Any]) -> None:
    transaction = ImplicitTransaction(connection, "jmsql", None)
    assert transaction.run(NUMBER.bind(number=7)) == 7
    transaction.commit()
    count = connection.execute("select count(*) from pg_prepared_statements where name like 'jmsql%'").fetchone()
    assert count == (0,)


def test_a_connection_that_the_server_ends_is_closed(
    connection: psycopg.Connection[Any], transaction: ImplicitTransaction
) -> None:
    with pytest.raises(JMSException, match="the server closed the connection"):
        transaction.run(TERMINATE.bind())
    assert connection.closed


def test_percent_signs_stay(transaction: ImplicitTransaction) -> None:
    statement = Statement("like", "select 'a%%b' like %(pattern)s || '%%'", "asking", value(bool))
    assert transaction.run(statement.bind(pattern="a"))
    transaction.commit()
