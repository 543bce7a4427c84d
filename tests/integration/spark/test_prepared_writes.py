"""Writes of Spark in two phases, as the database sees them. The tasks are played by connections of the test."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

import jmsql
from jmsql import InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.options import Options
from jmsql.spark.writing import commit
from jmsql.spark.writing.commit import forget_write
from jmsql.spark.writing.driver_lock import hold_driver_lock
from jmsql.spark.writing.maintenance import request_maintenance
from jmsql.spark.writing.prepared import PreparedTransactions, finish_transactions, living_drivers
from jmsql.spark.writing.prepared import prepare as prepare_attempt
from jmsql.spark.writing.staging import Attempt, StagedDestination, begin_attempt, missing_queues
from jmsql.spark.writing.writer import BatchWriter
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.store.identifier import Schema
from jmsql.store.lookup import queue_id
from jmsql.testing import wait_for
from tests.integration.client.server import Server

ORDERS = StagedDestination("queue://orders", is_delayed=False)
PREPARED = "select gid from pg_prepared_xacts where starts_with(gid, 'jmsql-spark-')"
LEFT = "select (select count(*) from jmsql_internal.spark_attempt), (select count(*) from jmsql_internal.spark_prepared), (select count(*) from jmsql_internal.spark_staging)"  # noqa: E501


@pytest.fixture
def connection(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """The driver's connection. No test leaves a prepared transaction."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        if connection.execute("show max_prepared_transactions").fetchone() == ("0",):
            pytest.skip("the server of JMSQL_TEST_URL has max_prepared_transactions = 0")
        yield connection
        left = connection.execute(PREPARED).fetchall()
        for (name,) in left:
            connection.execute(f"rollback prepared '{name}'".encode())
    assert left == []


@pytest.fixture
def server(connection: psycopg.Connection) -> Server:
    return Server(connection)


@contextmanager
def task(url: str, *places: StagedDestination, messages: int = 10, properties: str | None = None) -> Iterator[Attempt]:
    """A task that has staged messages for each place; it prepares them when the block ends."""
    with psycopg.connect(url) as connection:
        attempt_id = PsycopgRunner(connection, "jmsql").run(begin_attempt("w"))
        connection.commit()
        for place in places:
            connection.execute(
                "insert into jmsql_internal.spark_staging (attempt_id, position, inverse_priority, jms_delivery_mode, "
                "destination, jms_delivery_time, message_type, properties, text_body) select %s, nextval("
                "'jmsql_internal.claim_sequence'), 5, 2, %s, case when %s then 1 end, 'TextMessage', %s, n::text "
                "from generate_series(1, %s) as n",
                (attempt_id, place.destination, place.is_delayed, properties, messages),
            )
        attempt = Attempt(attempt_id, 0, dict.fromkeys(places, messages))
        yield attempt
        PsycopgRunner(connection, "jmsql").run(prepare_attempt(attempt))


@pytest.fixture
def prepare(jmsql_clean_url: str, server: Server) -> Callable[..., Attempt]:
    """Run a task; all queues are there."""

    def prepare(*places: StagedDestination, messages: int = 10, properties: str | None = None) -> Attempt:
        for place in places:
            if place.is_queue:
                server.rows("insert into jmsql_internal.queue (name) values (%s) on conflict do nothing", place.name)
        with task(jmsql_clean_url, *places, messages=messages, properties=properties) as attempt:
            pass
        return attempt

    return prepare


def decide(connection: psycopg.Connection, *attempts: Attempt, batch: int = 0) -> bool:
    with connection.transaction():
        return PsycopgRunner(connection, "jmsql").run(commit.decide(attempts, "w", batch, is_stream=True))


def finish(connection: psycopg.Connection, *attempts: Attempt) -> None:
    finish_transactions(PsycopgRunner(connection, "jmsql"), attempts)


def give_up(connection: psycopg.Connection, *attempts: Attempt) -> None:
    PsycopgRunner(connection, "jmsql").run(forget_write(attempts, "w"))


def bodies(server: Server) -> list[str]:
    return [body for (body,) in server.rows("select text_body from jmsql_internal.message order by sequence")]


TEN = [str(number) for number in range(1, 11)]


def test_what_is_decided_is_sent_once(
    server: Server, connection: psycopg.Connection, prepare: Callable[..., Attempt]
) -> None:
    attempts = prepare(ORDERS), prepare(ORDERS)
    assert len(server.rows(PREPARED)) == 2
    assert decide(connection, *attempts)
    assert bodies(server) == []
    finish(connection, *attempts)
    assert bodies(server) == 2 * TEN
    assert server.rows(LEFT) == [(0, 0, 0)]

    again = prepare(ORDERS), prepare(ORDERS)
    assert not decide(connection, *again)
    finish(connection, *again)
    assert bodies(server) == 2 * TEN
    assert server.rows(LEFT) == [(0, 0, 0)]
    assert server.rows("select sent from jmsql.counters where destination = 'orders'") == [(20,)]


def test_batch_that_comes_again_finishes_what_was_decided_and_sends_nothing_else(
    server: Server, connection: psycopg.Connection, prepare: Callable[..., Attempt]
) -> None:
    decide(connection, prepare(ORDERS))  # this driver dies
    again = prepare(ORDERS)
    assert not decide(connection, again)
    finish(connection, again)
    assert bodies(server) == TEN
    assert server.rows(LEFT) == [(0, 0, 0)]


def test_second_of_two_drivers_waits_for_the_first_and_sends_nothing(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, prepare: Callable[..., Attempt]
) -> None:
    first, second = prepare(ORDERS), prepare(ORDERS)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            assert PsycopgRunner(connection, "jmsql").run(commit.decide([first], "w", 0, is_stream=True))
            waiting = pool.submit(decide, other, second)
        assert not waiting.result(10)
        finish(other, second)
        finish(connection, first)
    assert bodies(server) == TEN


def test_two_clients_that_finish_at_once_finish_each_transaction_once(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, prepare: Callable[..., Attempt]
) -> None:
    attempts = [prepare(ORDERS) for _ in range(10)]
    decide(connection, *attempts)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as other, ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(finish, each, *attempts) for each in (connection, other)]:
            done.result(30)
    assert sorted(bodies(server)) == sorted(10 * TEN)
    assert server.rows(LEFT) == [(0, 0, 0)]


def test_what_is_given_up_is_rolled_back_with_all_other_attempts_of_the_write(
    server: Server, connection: psycopg.Connection, prepare: Callable[..., Attempt]
) -> None:
    given_up, _not_reported = prepare(ORDERS), prepare(ORDERS)
    give_up(connection, given_up)
    finish(connection)
    assert server.rows(PREPARED) == []
    assert bodies(server) == []
    assert server.rows(LEFT) == [(0, 0, 0)]


def test_what_was_decided_cannot_be_given_up(
    server: Server, connection: psycopg.Connection, prepare: Callable[..., Attempt]
) -> None:
    attempt = prepare(ORDERS)
    decide(connection, attempt)
    give_up(connection, attempt)
    finish(connection)
    assert bodies(server) == TEN


def test_maintenance_commits_what_was_decided_and_rolls_back_what_nobody_knows(
    server: Server,
    connection: psycopg.Connection,
    jmsql_factory: jmsql.ConnectionFactory,
    prepare: Callable[..., Attempt],
) -> None:
    decided, waiting, orphan = prepare(ORDERS), prepare(ORDERS), prepare(ORDERS)
    server.rows("delete from jmsql_internal.spark_attempt where attempt_id = %s", orphan.attempt_id)
    server.rows("update jmsql_internal.spark_attempt set write_id = 'other' where attempt_id = %s", waiting.attempt_id)
    decide(connection, decided)
    PsycopgRunner(connection, "jmsql").run(request_maintenance(two_phase_commit=True))
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        assert [consumer.receive_body(str, timeout=10) for _ in TEN] == TEN
        wait_for(lambda: len(server.rows(PREPARED)) == 1)
        # Nobody comes to decide it within a day.
        server.rows("update jmsql_internal.spark_attempt set started_at = now() - interval '25 hours'")
        wait_for(lambda: server.rows(PREPARED) == [])
        assert consumer.receive(0) is None
    assert server.rows(LEFT) == [(0, 0, 0)]


DRIVER = 2**62 + 2**40 + 7


def test_what_a_driver_has_not_decided_is_rolled_back_when_it_has_ended_and_not_before(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str, prepare: Callable[..., Attempt]
) -> None:
    attempt, of_nobody = prepare(ORDERS), prepare(ORDERS)
    server.rows("update jmsql_internal.spark_attempt set driver = %s where attempt_id = %s", DRIVER, attempt.attempt_id)
    maintenance = PsycopgRunner(connection, "jmsql")
    transactions = PreparedTransactions(driver_grace=0.0)

    def look() -> int:
        maintenance.run(transactions.give_up())
        assert not maintenance.run(transactions.finish())
        return len(server.rows(PREPARED))

    with psycopg.connect(jmsql_clean_url) as driver:
        driver.execute("select pg_try_advisory_lock(%s::bigint)", (DRIVER,))
        driver.commit()
        assert look() == 2
    wait_for(lambda: not maintenance.run(living_drivers([DRIVER])))
    patient = PreparedTransactions(driver_grace=3600.0)  # the connection may have been lost
    maintenance.run(patient.give_up())
    maintenance.run(patient.finish())
    assert len(server.rows(PREPARED)) == 2
    assert look() == 1
    with pytest.raises(JMSException, match="are gone"):
        decide(connection, attempt)
    give_up(connection, of_nobody)
    assert look() == 0
    assert bodies(server) == []


def test_what_a_driver_has_decided_is_committed_though_it_has_ended(
    server: Server, connection: psycopg.Connection, prepare: Callable[..., Attempt]
) -> None:
    attempt = prepare(ORDERS)
    server.rows("update jmsql_internal.spark_attempt set driver = %s", DRIVER)
    decide(connection, attempt)
    transactions = PreparedTransactions(driver_grace=0.0)
    for steps in (transactions.give_up(), transactions.finish()):
        PsycopgRunner(connection, "jmsql").run(steps)
    assert bodies(server) == TEN


@pytest.fixture
def driver_process() -> Iterator[subprocess.Popen[str]]:
    """The process of a driver, until its standard input is closed."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        yield process


def test_lock_of_a_driver_is_held_until_it_ends(
    server: Server,
    connection: psycopg.Connection,
    jmsql_clean_url: str,
    driver_process: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    planning = PsycopgRunner(connection, "jmsql")
    driver = hold_driver_lock(planning, DatabaseReference(), driver_process.pid)
    assert driver is not None
    assert planning.run(living_drivers([driver])) == [driver]
    holder = f"""select {{}} from pg_locks
        where locktype = 'advisory' and (classid::bigint << 32 | objid::bigint) = {driver}"""
    assert hold_driver_lock(planning, DatabaseReference(), driver_process.pid) == driver
    [former] = server.rows(holder.format("pid"))

    # A connection that is lost is made again.
    server.rows(holder.format("pg_terminate_backend(pid)"))
    wait_for(lambda: server.rows(holder.format("pid")) not in ([], [former]))
    wait_for(lambda: planning.run(living_drivers([driver])) == [driver])

    assert driver_process.stdin is not None
    driver_process.stdin.close()
    driver_process.wait(10)
    wait_for(lambda: planning.run(living_drivers([driver])) == [])


def test_driver_that_cannot_be_watched_does_not_write(
    connection: psycopg.Connection, driver_process: subprocess.Popen[str]
) -> None:
    nowhere = DatabaseReference(url="postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(JMSException, match=r"The life of the driver cannot be shown to others: .*cannot be reached"):
        hold_driver_lock(PsycopgRunner(connection, "jmsql"), nowhere, driver_process.pid)


@pytest.mark.parametrize("loss", ["attempt", "transaction"])
def test_write_fails_if_something_prepared_is_gone(
    server: Server, connection: psycopg.Connection, prepare: Callable[..., Attempt], loss: str
) -> None:
    attempts = prepare(ORDERS), prepare(ORDERS, messages=5)
    if loss == "attempt":
        server.rows("delete from jmsql_internal.spark_attempt where attempt_id = %s", attempts[1].attempt_id)
    else:
        ((name,),) = server.rows(PREPARED + " and gid like %s", f"%-{attempts[1].attempt_id}")
        connection.execute(f"rollback prepared '{name}'".encode())
    with pytest.raises(JMSException, match=r"5 of 15 messages .* are gone.*run the write again"):
        decide(connection, *attempts)
    assert server.rows("select count(*) from jmsql_internal.spark_write") == [(0,)]
    give_up(connection, *attempts)
    finish(connection)
    assert bodies(server) == []


def test_tasks_that_need_the_same_new_queue_do_not_wait_for_each_other(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str
) -> None:
    with task(jmsql_clean_url, ORDERS) as first, task(jmsql_clean_url, ORDERS) as second:
        for attempt in (first, second):
            with psycopg.connect(jmsql_clean_url) as making:
                queues = PsycopgRunner(making, "jmsql")
                for name in queues.run(missing_queues(attempt.staged)):
                    queues.run(queue_id(name))
    decide(connection, first, second)
    finish(connection, first, second)
    assert len(bodies(server)) == 20


def test_no_queue_is_made_in_a_transaction_that_is_prepared(
    server: Server, connection: psycopg.Connection, jmsql_clean_url: str
) -> None:
    with (
        pytest.raises(InvalidDestinationException, match="There is no queue 'orders'"),
        task(jmsql_clean_url, ORDERS) as attempt,
    ):
        pass
    give_up(connection, attempt)


def test_groups_of_two_tasks_keep_the_order_of_each(
    server: Server,
    connection: psycopg.Connection,
    jmsql_factory: jmsql.ConnectionFactory,
    prepare: Callable[..., Attempt],
) -> None:
    attempts = prepare(ORDERS, properties='{"JMSXGroupID": "g"}'), prepare(ORDERS, properties='{"JMSXGroupID": "g"}')
    decide(connection, *attempts)
    finish(connection, *attempts)
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        assert [consumer.receive_body(str, timeout=10) for _ in range(20)] == 2 * TEN


def test_topics_and_delayed_messages_are_written_as_by_any_send(
    server: Server,
    connection: psycopg.Connection,
    jmsql_factory: jmsql.ConnectionFactory,
    prepare: Callable[..., Attempt],
) -> None:
    prices = StagedDestination("topic://prices", is_delayed=False)
    with jmsql_factory.create_context() as context:
        context.create_shared_durable_consumer(context.create_topic("prices"), "all").close()
        context.create_shared_durable_consumer(context.create_topic("prices"), "some", "color = 'blue'").close()
        consumer = context.create_shared_durable_consumer(context.create_topic("prices"), "all")
        attempt = prepare(prices, prices._replace(is_delayed=True), ORDERS._replace(is_delayed=True))
        assert consumer.receive(0) is None
        decide(connection, attempt)
        finish(connection, attempt)
        received = [consumer.receive_body(str, timeout=10) for _ in range(20)]
        assert Counter(received) == Counter(2 * TEN)
        late = context.create_consumer(context.create_queue("orders"))
        assert [late.receive_body(str, timeout=10) for _ in TEN] == TEN
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]
    assert server.rows("select kind, destination, sent from jmsql.counters where sent > 0 order by kind") == [
        ("queue", "orders", 10),
        ("topic", "prices", 20),
    ]


@pytest.fixture
def role(jmsql_clean_url: str) -> Iterator[str]:
    """A role that may do everything with the tables, and is no superuser."""
    name = f"jmsql_test_driver_{secrets.token_hex(4)}"
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        for statement in (
            f"create role {name}",
            f"grant usage on schema jmsql, jmsql_internal to {name}",
            f"grant all on all tables in schema jmsql, jmsql_internal to {name}",
        ):
            connection.execute(statement.encode())
        yield name
        connection.execute(f"drop owned by {name}; drop role {name}".encode())


def test_role_that_cannot_commit_what_tasks_have_prepared_decides_nothing(
    connection: psycopg.Connection, prepare: Callable[..., Attempt], role: str, caplog: pytest.LogCaptureFixture
) -> None:
    attempt = prepare(ORDERS)
    connection.execute(f"set role {role}".encode())
    with pytest.raises(JMSSecurityException, match="have prepared messages as the role '"):
        decide(connection, attempt)
    give_up(connection, attempt)
    transactions = PreparedTransactions()
    for _ in range(2):
        PsycopgRunner(connection, "jmsql").run(transactions.finish())
    (told,) = (record.message for record in caplog.records if record.name == "jmsql")
    assert re.search(r"left the prepared transaction 'jmsql-spark-.*superuser can end it: ROLLBACK PREPARED", told)
    connection.execute("reset role")
    finish(connection)


def test_write_that_is_decided_does_not_fail_if_its_transactions_are_not_to_be_finished_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = Options.read({"queue": "orders", "url": "postgresql://127.0.0.1:1/shop", "twoPhaseCommit": "true"})
    BatchWriter(nowhere)._finish([])
    assert "The write is done, and some of its messages come later" in caplog.text


def test_transactions_of_other_schemas_are_left_alone(connection: psycopg.Connection, jmsql_clean_url: str) -> None:
    other = "jmsql.orders-7"  # such that its name could be taken for a table's
    jmsql.migrate(jmsql_clean_url, schema=other)
    try:
        with psycopg.connect(jmsql_clean_url) as task:
            attempt = Attempt(PsycopgRunner(task, other).run(begin_attempt("w")), 0, {})
            task.commit()
            PsycopgRunner(task, other).run(prepare_attempt(attempt))
        with connection.transaction():
            PsycopgRunner(connection, other).run(forget_write([attempt], "w"))
        assert not PsycopgRunner(connection, "jmsql").run(PreparedTransactions().finish())
        assert len(connection.execute(PREPARED).fetchall()) == 1
        assert not PsycopgRunner(connection, other).run(PreparedTransactions().finish())
        assert connection.execute(PREPARED).fetchall() == []
    finally:
        connection.execute(f"drop schema {Schema(other)}, {Schema(other).internal} cascade".encode())
