"""Transactions that PostgreSQL begins by itself, spoken in libpq's terms."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.pq import PipelineStatus, TransactionStatus

from jmsql.exceptions import JMSException
from jmsql.store.statement import Statement, column, nothing, value
from jmsql.store.wire._sync.runner import WireConnection, WireRunner
from jmsql.store.wire.exchange import End

NUMBER = Statement("number", "select %(number)s::integer", "asking", value(int))
INSERT = Statement("insert", "insert into implicit values (%(number)s)", "inserting", nothing)
NUMBERS = Statement("numbers", "select number from implicit order by number", "asking", column)
TERMINATE = Statement("terminate", "select pg_terminate_backend(pg_backend_pid())", "asking", nothing)


@pytest.fixture
def connection(jmsql_url: str) -> Iterator[WireConnection]:
    with WireConnection.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("create temporary table implicit (number integer primary key)")
        yield connection


@pytest.fixture
def transaction(connection: WireConnection) -> WireRunner:
    return WireRunner(connection, "jmsql", end=End.FLUSH)


def rows(connection: psycopg.Connection[Any]) -> list[int]:
    return [number for (number,) in connection.execute("select number from implicit order by number")]


def test_its_statements_take_effect_together(connection: WireConnection, transaction: WireRunner) -> None:
    transaction.run(INSERT.bind(number=1))
    transaction.run(INSERT.bind(number=2))
    assert transaction.run(NUMBERS.bind()) == [1, 2]
    transaction.commit()
    assert transaction.is_idle
    assert rows(connection) == [1, 2]


def test_a_rolled_back_statement_has_no_effect(connection: WireConnection, transaction: WireRunner) -> None:
    transaction.run(INSERT.bind(number=1))
    transaction.rollback()
    assert rows(connection) == []
    transaction.run(INSERT.bind(number=2))
    transaction.commit()
    assert rows(connection) == [2]


def test_an_error_undoes_earlier_statements(connection: WireConnection, transaction: WireRunner) -> None:
    transaction.run(INSERT.bind(number=1))
    with pytest.raises(JMSException, match="inserting"):
        transaction.run(INSERT.bind(number=1))
    assert rows(connection) == []
    assert transaction.run(NUMBER.bind(number=3)) == 3
    transaction.commit()


def test_an_error_of_the_commit_is_raised(connection: WireConnection, transaction: WireRunner) -> None:
    connection.execute("alter table implicit add constraint once unique (number) deferrable initially deferred")
    connection.execute("alter table implicit drop constraint implicit_pkey")
    transaction.run(INSERT.bind(number=1))
    transaction.run(INSERT.bind(number=1))
    with pytest.raises(psycopg.errors.UniqueViolation):
        transaction.commit()
    assert rows(connection) == []


@pytest.mark.parametrize("statement", ["deallocate all", "discard all"])
def test_deallocated_statements_are_prepared_again(
    connection: WireConnection, transaction: WireRunner, statement: str
) -> None:
    for number in range(2):
        assert transaction.run(NUMBER.bind(number=number)) == number
        transaction.commit()
        connection.execute(statement.encode(), prepare=False)


def test_a_statement_whose_result_has_other_columns_now_is_prepared_again(
    connection: WireConnection, transaction: WireRunner
) -> None:
    everything = Statement("everything", "select * from implicit", "asking", lambda result: result.rows)
    transaction.run(INSERT.bind(number=1))
    assert transaction.run(everything.bind()) == [(1,)]
    transaction.commit()
    connection.execute("alter table implicit add column other text")
    assert transaction.run(everything.bind()) == [(1, None)]
    transaction.commit()


def test_no_more_than_a_hundred_stay_prepared(connection: WireConnection, transaction: WireRunner) -> None:
    statements = [Statement("number", f"select {number}", "asking", value(int)) for number in range(105)]
    for number, statement in enumerate(statements):
        assert transaction.run(statement.bind()) == number
        transaction.commit()
    count = connection.execute("select count(*) from pg_prepared_statements where name like 'jmsql%'").fetchone()
    assert count == (100,)
    assert transaction.run(statements[0].bind()) == 0
    transaction.commit()


def test_a_statement_travels_with_its_preparation(
    connection: WireConnection, transaction: WireRunner, tmp_path: Path
) -> None:
    """PgBouncer answers for what it has prepared before, but not until the server sends something."""
    sent = tmp_path / "messages"
    with sent.open("wb") as file:
        connection.pgconn.trace(file.fileno())
        transaction.run(NUMBER.bind(number=1))
        transaction.run(NUMBER.bind(number=2))
        connection.pgconn.untrace()
    assert transaction.is_idle is False
    transaction.commit()
    lines = [line.split("\t") for line in sent.read_text().splitlines() if "\tF\t" in line]
    messages = [name for _, _, _, name, *_ in lines]
    once = ["Bind", "Describe", "Execute", "Flush"]
    assert messages == ["Parse", *once, *once]


def test_a_statement_that_cannot_be_prepared_is_prepared_when_it_can_be(
    connection: WireConnection, transaction: WireRunner
) -> None:
    later = Statement("later", "select count(*) from later", "asking", value(int))
    with pytest.raises(JMSException, match="asking"):
        transaction.run(later.bind())
    connection.execute("create temporary table later ()")
    assert transaction.run(later.bind()) == 0
    transaction.commit()
    assert transaction.run(later.bind()) == 0
    transaction.commit()


def test_nothing_is_prepared_through_a_pooler_that_loses_it(connection: WireConnection) -> None:
    connection.prepare_threshold = None
    transaction = WireRunner(connection, "jmsql", end=End.FLUSH)
    assert transaction.run(NUMBER.bind(number=7)) == 7
    transaction.commit()
    count = connection.execute("select count(*) from pg_prepared_statements where name like 'jmsql%'").fetchone()
    assert count == (0,)


def test_a_connection_that_the_server_ends_is_closed(connection: WireConnection, transaction: WireRunner) -> None:
    with pytest.raises(JMSException, match="the server closed the connection"):
        transaction.run(TERMINATE.bind())
    assert connection.closed


def test_percent_signs_stay(transaction: WireRunner) -> None:
    statement = Statement("like", "select 'a%%b' like %(pattern)s || '%%'", "asking", value(bool))
    assert transaction.run(statement.bind(pattern="a"))
    transaction.commit()


class Outcome:
    """Hears what becomes of a commit that nobody waits for."""

    def __init__(self) -> None:
        self.errors: list[psycopg.Error] = []

    def failed(self, error: psycopg.Error) -> None:
        """Note why it failed."""
        self.errors.append(error)


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block, after so many seconds."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def at_each_commit(connection: psycopg.Connection[Any], action: LiteralString) -> None:
    """Have the server do this at the end of each transaction that inserts a row."""
    connection.execute(
        f"""create function pg_temp.fail() returns trigger language plpgsql as $$begin {action}; return null; end$$;
        create constraint trigger fail after insert on implicit deferrable initially deferred
        for each row execute function pg_temp.fail()"""
    )


def test_a_commit_left_unanswered_comes_before_the_next_transaction(
    connection: WireConnection, transaction: WireRunner
) -> None:
    outcome = Outcome()
    for number in range(3):
        transaction.run(INSERT.bind(number=number))
        transaction.connection.leave_commit(outcome.failed)
        assert transaction.is_idle
        assert connection.is_committing
    another = WireRunner(connection, "jmsql", end=End.FLUSH)
    assert another.run(NUMBERS.bind()) == [0, 1, 2]
    assert not connection.is_committing
    another.rollback()
    assert rows(connection) == [0, 1, 2]
    assert outcome.errors == []


def test_the_next_user_of_the_connection_finds_it_without_unread_answers(
    connection: WireConnection, transaction: WireRunner
) -> None:
    transaction.run(INSERT.bind(number=1))
    transaction.connection.leave_commit(Outcome().failed)
    assert rows(connection) == [1]
    assert connection.pgconn.pipeline_status == PipelineStatus.OFF
    transaction.run(INSERT.bind(number=2))
    transaction.connection.leave_commit(Outcome().failed)
    connection.settle()
    assert connection.info.transaction_status == TransactionStatus.IDLE
    transaction.run(INSERT.bind(number=3))
    transaction.connection.leave_commit(Outcome().failed)
    transaction.commit()
    assert rows(connection) == [1, 2, 3]


def test_a_transaction_that_is_rolled_back_leaves_the_commit_before_it_alone(
    connection: WireConnection, transaction: WireRunner
) -> None:
    outcome = Outcome()
    transaction.run(INSERT.bind(number=1))
    transaction.connection.leave_commit(outcome.failed)
    with pytest.raises(KeyError):
        transaction.run(INSERT.bind(another=2))
    transaction.run(INSERT.bind(number=3))
    transaction.connection.leave_commit(outcome.failed)
    with pytest.raises(JMSException, match="inserting"):
        transaction.run(INSERT.bind(number=3))
    assert rows(connection) == [1, 3]
    assert outcome.errors == []


@pytest.mark.parametrize("uses_a_transaction", [True, False])
def test_the_sender_alone_hears_of_a_commit_that_fails(
    connection: WireConnection, transaction: WireRunner, uses_a_transaction: bool
) -> None:
    at_each_commit(connection, "raise exception 'not today'")
    outcome = Outcome()
    transaction.run(INSERT.bind(number=1))
    transaction.connection.leave_commit(outcome.failed)
    if uses_a_transaction:
        assert transaction.run(NUMBERS.bind()) == []
        transaction.commit()
    assert rows(connection) == []
    [error] = outcome.errors
    assert "not today" in str(error)


@pytest.mark.parametrize("uses_a_transaction", [True, False])
def test_a_commit_in_which_the_server_ends_the_connection_is_told_once(
    connection: WireConnection, transaction: WireRunner, uses_a_transaction: bool
) -> None:
    at_each_commit(connection, "perform pg_terminate_backend(pg_backend_pid())")
    outcome = Outcome()
    transaction.run(INSERT.bind(number=1))
    transaction.connection.leave_commit(outcome.failed)
    if uses_a_transaction:
        with pytest.raises(JMSException, match="lost"):
            transaction.run(NUMBERS.bind())
    else:
        connection.settle()
    assert connection.closed
    assert not connection.is_committing
    assert len(outcome.errors) == 1


def test_an_interrupt_while_the_commit_is_waited_for_ends_no_more_than_the_wait(
    connection: WireConnection, transaction: WireRunner
) -> None:
    at_each_commit(connection, "perform pg_sleep(60)")
    outcome = Outcome()
    transaction.run(INSERT.bind(number=1))
    transaction.connection.leave_commit(outcome.failed)
    with pytest.raises(KeyboardInterrupt), interrupted_after(0.1):
        connection.settle()
    assert not connection.is_committing
    assert len(outcome.errors) == 1, "the interrupt has cancelled the trigger, and so the transaction"
    assert rows(connection) == []
