"""Transactions that begin with their first statement, and end with their last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from jmsql.exceptions import JMSException
from jmsql.store.statement import Statement, column, row_count, value
from jmsql.store.wire._sync.runner import WireConnection, WireRunner
from jmsql.store.wire.exchange import End, Exchange, Outcome

NUMBER = Statement("number", "select %(number)s::integer", "asking", value(int))
OTHER = Statement("other", "select -%(number)s::integer", "asking", value(int))
INSERT = Statement("insert", "insert into transacted values (%(number)s)", "inserting", row_count)
NUMBERS = Statement("numbers", "select number from transacted order by number", "asking", column)
LEVEL = Statement("level", "select current_setting('transaction_isolation')", "asking", value(str))
COUNT = Statement("count", "select count(*) from transacted", "asking", value(int))
ISOLATED = Statement(
    "isolated", "select count(*) from transacted where xmin = pg_current_xact_id()::xid", "asking", value(int)
)
FAILING = Statement("failing", "select count(*) / (random() * 0)::integer from transacted", "asking", value(int))
TERMINATE = Statement("terminate", "select pg_terminate_backend(pg_backend_pid())::integer", "asking", value(int))
COPY = Statement("copy", "copy transacted from stdin", "sending", row_count)


class CountingConnection(WireConnection):
    """Counts its exchanges."""

    exchanges = 0

    def exchange(self, exchange: Exchange) -> Outcome:
        self.exchanges += 1
        return super().exchange(exchange)


@pytest.fixture
def connection(jmsql_url: str) -> Iterator[CountingConnection]:
    with CountingConnection.connect(jmsql_url) as connection:
        connection.execute("create temporary table transacted (number integer primary key)")
        connection.commit()
        yield connection


@pytest.fixture
def make(connection: CountingConnection) -> Callable[[], WireRunner]:
    return lambda: WireRunner(connection, "jmsql", begin=True)


@pytest.fixture(params=[True, False], ids=["prepared", "not prepared"])
def runner(connection: CountingConnection, request: pytest.FixtureRequest) -> WireRunner:
    if not request.param:
        connection.prepare_threshold = None
    return WireRunner(connection, "jmsql", begin=True)


def looking_runner(connection: WireConnection) -> WireRunner:
    """Return what runs statements that leave no transaction open."""
    return WireRunner(connection, "jmsql", begin=True, end=End.COMMIT)


def test_a_transaction_takes_an_exchange_to_begin_and_one_to_end(
    connection: CountingConnection, runner: WireRunner
) -> None:
    for number in (1, 2):
        before = connection.exchanges
        assert runner.run(NUMBERS.bind()) == list(range(1, number))
        assert not runner.is_idle
        runner.commit([INSERT.bind(number=number), NUMBER.bind(number=1)])
        assert connection.exchanges - before == 2
    assert runner.run(LEVEL.bind()) == "read committed"
    runner.rollback()
    before = connection.exchanges
    runner.commit()
    runner.rollback()
    assert connection.exchanges == before


def test_a_look_leaves_no_transaction_open(connection: CountingConnection, runner: WireRunner) -> None:
    looking = looking_runner(connection)
    for _ in range(2):
        before = connection.exchanges
        assert looking.run(LEVEL.bind()) == "read committed"
        assert runner.is_idle
        assert connection.exchanges - before == 1
    with pytest.raises(JMSException, match="division by zero"):
        looking.run(Statement("failing", "select 1 / 0", "asking", value(int)).bind())
    assert looking.run(LEVEL.bind()) == "read committed", "nothing is left of the failure"


def test_a_look_goes_on_if_its_statement_was_forgotten(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    runner = make()
    runner.run(NUMBER.bind(number=1))
    runner.commit()
    connection.execute("deallocate all", prepare=False)
    connection.commit()
    assert looking_runner(connection).run(NUMBER.bind(number=2)) == 2
    assert runner.is_idle


def test_a_rolled_back_transaction_is_undone(runner: WireRunner) -> None:
    runner.run(INSERT.bind(number=1))
    runner.rollback()
    assert runner.run(NUMBERS.bind()) == []


def test_nothing_is_committed_if_a_last_statement_fails(runner: WireRunner) -> None:
    runner.run(INSERT.bind(number=1))
    with pytest.raises(psycopg.errors.UniqueViolation):
        runner.commit([INSERT.bind(number=2), INSERT.bind(number=1), INSERT.bind(number=3)])
    with pytest.raises(JMSException) as failed:
        runner.run(NUMBERS.bind())
    assert failed.value.error_code == "25P02"
    runner.rollback()
    assert runner.run(NUMBERS.bind()) == []


def test_a_batch_is_copied(connection: CountingConnection, runner: WireRunner) -> None:
    runner.run(NUMBERS.bind())
    assert runner.run(COPY.copying(b"1\n2\n")) == 2
    runner.commit([INSERT.bind(number=3)])
    assert connection.execute("select count(*) from transacted").fetchone() == (3,)


def test_a_transaction_begins_again_if_its_first_statement_was_forgotten(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    runner = make()
    runner.run(NUMBER.bind(number=1))
    runner.commit()
    connection.execute("deallocate all", prepare=False)
    connection.commit()
    assert runner.run(NUMBER.bind(number=2)) == 2
    runner.commit([INSERT.bind(number=1)])


def test_a_statement_can_begin_and_end_a_transaction_in_one_exchange(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    runner = make()
    before = connection.exchanges
    runner.commit([INSERT.bind(number=1)])
    assert runner.is_idle
    assert connection.exchanges - before == 1
    connection.execute("deallocate all", prepare=False)
    connection.commit()
    runner.commit([INSERT.bind(number=2), NUMBER.bind(number=1)])
    assert runner.run(NUMBERS.bind()) == [1, 2]
    with pytest.raises(psycopg.errors.UniqueViolation):
        runner.commit([INSERT.bind(number=1)])
    runner.rollback()
    assert runner.run(NUMBERS.bind()) == [1, 2]


def test_later_statements_do_not_rely_on_preparations_of_a_former_user(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    former = make()
    former.run(NUMBER.bind(number=1))
    former.commit()
    connection.execute("deallocate all", prepare=False)
    connection.commit()
    runner = make()
    assert runner.run(OTHER.bind(number=1)) == -1
    assert runner.run(NUMBER.bind(number=2)) == 2
    runner.commit([NUMBER.bind(number=3)])
    assert runner.run(NUMBER.bind(number=4)) == 4
    runner.commit()


def test_a_statement_that_cannot_be_prepared_is_not_taken_for_prepared(make: Callable[[], WireRunner]) -> None:
    runner = make()
    wrong = Statement("wrong", "select missing", "asking", value(int))
    for _ in range(2):
        with pytest.raises(JMSException) as refused:
            runner.run(wrong.bind())
        assert refused.value.error_code == "42703"
        runner.rollback()


def test_no_more_than_a_hundred_statements_stay_prepared(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    runner = make()
    for number in range(105):
        assert runner.run(Statement("many", f"select {number}", "asking", value(int)).bind()) == number
    runner.commit()
    assert connection.execute("select count(*) from pg_prepared_statements", prepare=False).fetchone() == (100,)


def test_a_connection_that_the_server_has_ended_is_noticed_before_a_commit(
    connection: CountingConnection, runner: WireRunner, jmsql_url: str
) -> None:
    runner.run(INSERT.bind(number=1))
    connection.notice_loss()
    assert not connection.closed
    with psycopg.connect(jmsql_url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])
    connection.notice_loss()
    assert connection.closed


def test_a_question_after_a_commit_is_another_transaction(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    runner = make()
    for number in (1, 2):
        before = connection.exchanges
        assert runner.commit([INSERT.bind(number=number)], COUNT.bind()) == number
        assert connection.exchanges - before == 1
        runner.run(NUMBERS.bind())
        assert runner.commit([], ISOLATED.bind()) == 0
    assert runner.commit([], COUNT.bind()) is None, "no transaction was open"


def test_an_answer_that_fails_leaves_the_commit(make: Callable[[], WireRunner]) -> None:
    runner = make()
    assert runner.commit([INSERT.bind(number=1)], FAILING.bind()) is None
    assert runner.is_idle
    assert runner.commit([INSERT.bind(number=2)], COUNT.bind()) == 2
    with pytest.raises(psycopg.errors.UniqueViolation):
        runner.commit([INSERT.bind(number=2)], COUNT.bind())
    runner.rollback()
    assert runner.commit([INSERT.bind(number=3)], COUNT.bind()) == 3


def test_a_connection_that_is_lost_with_the_answer_has_committed(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    assert make().commit([INSERT.bind(number=1)], TERMINATE.bind()) is None
    assert connection.closed


def test_an_answer_that_was_forgotten_leaves_the_commit(
    connection: CountingConnection, make: Callable[[], WireRunner]
) -> None:
    runner = make()
    runner.commit([INSERT.bind(number=1)], COUNT.bind())
    connection.execute("deallocate jmsql_2", prepare=False)
    connection.commit()
    assert runner.commit([INSERT.bind(number=2)], COUNT.bind()) is None
    assert runner.run(NUMBERS.bind()) == [1, 2]
    assert runner.commit([], COUNT.bind()) == 2
