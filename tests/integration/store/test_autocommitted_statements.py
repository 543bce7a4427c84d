"""Statements that commit by themselves, spoken in libpq's terms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from jmsql.exceptions import JMSException
from jmsql.store.errors import is_connection_lost
from jmsql.store.statement import (
    Statement,
    column,
    first_value,
    in_transaction,
    nothing,
    row_count,
    rows,
    value,
)
from jmsql.store.wire._sync.runner import WireConnection, WireRunner

NUMBER = Statement("number", "select %(number)s::integer", "asking", value(int))
TEXTS = Statement("texts", "select 'é%%', %(text)s::text, %(data)s::bytea, null::jsonb", "asking", rows)
INSERT = Statement("insert", "insert into prepared values (%(number)s), (%(number)s + 1)", "inserting", row_count)
EVERYTHING = Statement("everything", "select * from prepared order by number", "asking", rows)
NUMBERS = Statement("numbers", "select number from prepared order by number", "asking", column)
TRANSACTIONS = Statement("transactions", "select array[pg_current_xact_id()::text::bigint]", "asking", first_value)
FAILING = Statement("failing", "select array[1 / (random() * 0)::integer]", "asking", first_value)
TERMINATE_AND_ANSWER = Statement(
    "terminate", "select array[pg_terminate_backend(pg_backend_pid())::integer]", "asking", first_value
)
TERMINATE = Statement("terminate", "select pg_terminate_backend(pg_backend_pid())", "asking", nothing)


@pytest.fixture
def connection(jmsql_url: str) -> Iterator[WireConnection]:
    with WireConnection.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("create temporary table prepared (number integer primary key)")
        yield connection


@pytest.fixture(params=[True, False], ids=["prepared", "not prepared"])
def runner(connection: WireConnection, request: pytest.FixtureRequest) -> WireRunner:
    if not request.param:
        connection.prepare_threshold = None
    return WireRunner(connection, "jmsql")


def asking_runner(connection: WireConnection, question: Statement[list[int]]) -> WireRunner:
    """Return what asks this after each statement."""
    runner = WireRunner(connection, "jmsql")
    runner.question = question.bind()
    return runner


def test_results_are_those_of_a_cursor(runner: WireRunner) -> None:
    assert runner.run(NUMBER.bind(number=7)) == 7
    assert runner.run(TEXTS.bind(text="100 % \\", data=b"\0\xff")) == [("é%", "100 % \\", b"\0\xff", None)]
    assert runner.run(TEXTS.bind(text=None, data=None)) == [("é%", None, None, None)]
    assert runner.run(INSERT.bind(number=1)) == 2
    assert runner.run(NUMBERS.bind()) == [1, 2]


def test_each_statement_commits(runner: WireRunner) -> None:
    runner.run(INSERT.bind(number=1))
    with pytest.raises(JMSException) as refused:
        runner.run(INSERT.bind(number=2))
    assert refused.value.error_code == "23505"
    assert isinstance(refused.value.__cause__, psycopg.errors.UniqueViolation)
    assert runner.is_idle
    assert runner.run(NUMBERS.bind()) == [1, 2]


def test_a_transaction_that_fails_leaves_nothing(runner: WireRunner) -> None:
    def insert_twice() -> Iterator[Any]:
        yield from INSERT.bind(number=1)
        yield from INSERT.bind(number=2)

    with pytest.raises(JMSException):
        runner.run(in_transaction(insert_twice()))  # type: ignore[arg-type]
    assert runner.is_idle
    assert runner.run(NUMBERS.bind()) == []


def test_statements_that_the_server_has_forgotten(connection: WireConnection, runner: WireRunner) -> None:
    assert runner.run(NUMBER.bind(number=1)) == 1
    connection.execute("deallocate all")
    assert runner.run(NUMBER.bind(number=2)) == 2


def test_statements_whose_result_has_changed(connection: WireConnection, runner: WireRunner) -> None:
    runner.run(INSERT.bind(number=1))
    assert runner.run(EVERYTHING.bind()) == [(1,), (2,)]
    connection.execute("alter table prepared add column note text default 'new'")
    assert runner.run(EVERYTHING.bind()) == [(1, "new"), (2, "new")]


def test_many_statements(connection: WireConnection, runner: WireRunner) -> None:
    for number in range(110):
        asked = Statement("asked", f"select {number} + %(more)s::integer", "asking", value(int))
        assert runner.run(asked.bind(more=1)) == number + 1
    row = connection.execute("select count(*) from pg_prepared_statements where name like 'jmsql%'").fetchone()
    assert row is not None
    assert row[0] <= 100


def test_connection_that_breaks(connection: WireConnection, runner: WireRunner) -> None:
    with pytest.raises(JMSException) as lost:
        runner.run(TERMINATE.bind())
    assert is_connection_lost(lost.value)
    with pytest.raises(JMSException) as closed:
        runner.run(NUMBER.bind(number=1))
    assert is_connection_lost(closed.value)
    assert connection.closed


def test_a_question_after_a_statement_sees_its_commit(connection: WireConnection) -> None:
    asking = asking_runner(connection, TRANSACTIONS)
    for number in (1, 3):
        before = connection.execute("select pg_current_xact_id()::text::bigint").fetchone()
        assert asking.run(INSERT.bind(number=number)) == 2
        assert asking.answer is not None
        assert before is not None
        assert asking.answer[0] > before[0] + 1, "the transaction of the statement is over"


def test_an_answer_that_fails_is_none(connection: WireConnection) -> None:
    asking = asking_runner(connection, FAILING)
    assert asking.run(INSERT.bind(number=1)) == 2
    assert asking.answer is None
    with pytest.raises(JMSException) as refused:
        asking.run(INSERT.bind(number=1))
    assert refused.value.error_code == "23505"
    assert asking.is_idle
    assert asking.run(INSERT.bind(number=5)) == 2


def test_a_connection_that_is_lost_with_the_answer_has_committed(connection: WireConnection) -> None:
    asking = asking_runner(connection, TERMINATE_AND_ANSWER)
    assert asking.run(INSERT.bind(number=1)) == 2
    assert asking.answer is None
    assert connection.closed


def test_nothing_is_asked_where_nothing_is_prepared(connection: WireConnection) -> None:
    connection.prepare_threshold = None
    asking = asking_runner(connection, TRANSACTIONS)
    assert asking.run(INSERT.bind(number=1)) == 2
    assert asking.answer is None


def test_statements_and_answers_that_the_server_has_forgotten(connection: WireConnection) -> None:
    asking = asking_runner(connection, TRANSACTIONS)
    asking.run(INSERT.bind(number=1))
    connection.execute("deallocate all")
    assert asking.run(INSERT.bind(number=3)) == 2
    assert asking.answer is not None


def test_a_question_whose_own_commit_fails_is_not_answered(connection: WireConnection) -> None:
    connection.execute("create temporary table asked (number integer unique deferrable initially deferred)")
    twice = "with inserted as (insert into asked values (1), (1) returning number) select array(select * from inserted)"
    runner = asking_runner(connection, Statement("twice", twice, "asking", first_value))
    for number in (1, 10):
        assert runner.run(INSERT.bind(number=number)) == 2
        assert runner.answer is None
    assert runner.run(NUMBERS.bind()) == [1, 2, 10, 11]
