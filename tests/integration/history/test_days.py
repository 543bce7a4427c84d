"""The history has a partition for each day, made when it is needed and dropped when no destination keeps it."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.store.history.partitions import HistoryPartitions
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.background import Background
from tests.integration.history.conftest import SetClock, dequeue, send
from tests.leadership import maintain

NOON = datetime(2030, 3, 10, 12, tzinfo=UTC)
MIDNIGHT = datetime(2030, 3, 11, tzinfo=UTC)


def _days(administration: jmsql.admin.Administration) -> list[date]:
    return [each.day for each in administration.history.days()]


def _bodies(database: psycopg.Connection[Any]) -> list[str]:
    return [body for (body,) in database.execute("select body from jmsql.history order by acknowledged_at, sequence")]


def _keep(factory: jmsql.ConnectionFactory, queue: jmsql.Queue, *bodies: str) -> None:
    send(factory, *bodies, destination=queue)
    dequeue(factory, queue, len(bodies))


def _sql(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(statement.encode())


KEEP = """
    with m as materialized (select ctid from jmsql_internal.message order by sequence limit 1 for update skip locked),
    history as materialized (
        select jmsql_internal.keep_history(array(select ctid from m), null, 'acknowledged', null))
    delete from jmsql_internal.message where ctid = any(array(select ctid from m)) and (select true from history)
    """


def test_maintenance_makes_partitions_ahead_where_a_queue_keeps_history(
    administration: jmsql.admin.Administration, database: psycopg.Connection[Any], set_clock: SetClock
) -> None:
    set_clock(NOON)
    maintain(PsycopgRunner(database, "jmsql"))
    assert _days(administration) == []
    administration.create_queue("orders", history=True)
    maintain(PsycopgRunner(database, "jmsql"))
    assert _days(administration) == [NOON.date() + timedelta(days=number) for number in range(4)]


def test_midnight_begins_a_new_partition(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    set_clock(MIDNIGHT - timedelta(microseconds=1))
    _keep(jmsql_factory, orders, "before")
    set_clock(MIDNIGHT)
    _keep(jmsql_factory, orders, "after")

    statement = "select tableoid::regclass::text from jmsql_internal.message_history order by acknowledged_at"
    assert database.execute(statement).fetchall() == [
        ("jmsql_internal.message_history_20300310",),
        ("jmsql_internal.message_history_20300311",),
    ]
    since_midnight = administration.history.messages(orders, since=MIDNIGHT)
    assert [past.message.get_body(str) for past in since_midnight] == ["after"]
    until_midnight = administration.history.messages(orders, until=MIDNIGHT)
    assert [past.message.get_body(str) for past in until_midnight] == ["before"]


def test_the_day_is_that_of_utc_whatever_the_sessions_time_zone(
    orders: jmsql.Queue,
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    set_clock(MIDNIGHT + timedelta(minutes=30))
    send(jmsql_factory, "order", destination=orders)
    _sql(database, "set timezone = 'America/New_York'")
    _sql(database, "set datestyle = 'SQL, DMY'")

    _sql(database, KEEP)

    assert _days(administration) == [MIDNIGHT.date()]
    assert _bodies(database) == ["order"]


def test_two_transactions_that_need_a_new_day_make_it_once(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    jmsql_clean_url: str,
    set_clock: SetClock,
) -> None:
    set_clock(NOON)
    send(jmsql_factory, "first", "second", destination=orders)
    url = jmsql_clean_url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(url) as first, psycopg.connect(url) as second:
        _sql(first, KEEP)
        thread = threading.Thread(target=lambda: _sql(second, KEEP))
        thread.start()
        waiting = "select from pg_locks where not granted and relation = 'jmsql_internal.message_history'::regclass"
        wait_for(lambda: database.execute(waiting).fetchone() is not None)
        first.commit()
        thread.join()
        second.commit()

    assert _days(administration) == [NOON.date()]
    assert sorted(_bodies(database)) == ["first", "second"]


@pytest.mark.usefixtures("row_security_is_off_again")
def test_privileges_change_beside_partitions_that_are_made_and_dropped(
    orders: jmsql.Queue, database: psycopg.Connection[Any], jmsql_clean_url: str, set_clock: SetClock
) -> None:
    """All of them write the same rows of the catalog, which PostgreSQL refuses to one of two at once."""
    set_clock(NOON)
    _sql(database, "analyze jmsql_internal.message_history")  # which notes that there are no partitions
    role = f"jmsql_test_history_{id(database)}"
    _sql(database, f"create role {role}")
    make = "select jmsql_internal.make_history_partition('2030-03-09')"
    change = "select jmsql.{}('orders', '" + role + "', 'send')"
    waiting = "select from pg_locks where not granted and relation = 'jmsql_internal.message_history'::regclass"
    with (
        psycopg.connect(jmsql_clean_url) as first,
        psycopg.connect(jmsql_clean_url, autocommit=True) as second,
    ):

        def prune() -> None:
            runner = PsycopgRunner(second, "jmsql")
            assert len(list(runner.iterate(HistoryPartitions(patience=30).remove(NOON.date(), None)))) == 1

        for before, work in (
            (make, lambda: _sql(second, change.format("grant_access"))),
            (change.format("revoke_access"), prune),
            (change.format("grant_access"), lambda: _sql(second, make)),
        ):
            _sql(first, before)
            running = Background(work)
            wait_for(lambda: database.execute(waiting).fetchone() is not None)
            first.commit()
            running.result()
        assert database.execute("select send from jmsql.grants where role = %s", [role]).fetchall() == [(True,)]
    _sql(database, f"drop owned by {role}; drop role {role}")


@pytest.mark.parametrize("operation", ["make", "drop"])
def test_acknowledgements_do_not_wait_for_partitions_made_or_dropped(
    operation: str,
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    jmsql_clean_url: str,
    set_clock: SetClock,
) -> None:
    """An open transaction has acknowledged, a reader reads, and partitions come and go beside them."""
    set_clock(NOON)
    _keep(jmsql_factory, orders, "old")
    set_clock(NOON + timedelta(days=5))
    send(jmsql_factory, "first", "second", "third", destination=orders)
    url = jmsql_clean_url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(url) as open_transaction, psycopg.connect(url, autocommit=True) as other:
        _sql(database, KEEP)
        _sql(open_transaction, KEEP)
        if operation == "make":
            PsycopgRunner(other, "jmsql").run(HistoryPartitions(patience=1).make_ahead())
            _sql(database, f"set lock_timeout = '1s'; {KEEP}")
            assert _days(administration)[-1] == (NOON + timedelta(days=8)).date()
        else:
            done: list[object] = []
            drop = threading.Thread(
                target=lambda: done.extend(
                    PsycopgRunner(other, "jmsql").iterate(
                        HistoryPartitions(patience=30).remove((NOON + timedelta(days=1)).date(), None)
                    )
                )
            )
            drop.start()
            detaching = "select from pg_inherits where inhdetachpending"
            wait_for(lambda: database.execute(detaching).fetchone() is not None)
            _sql(database, f"set lock_timeout = '1s'; {KEEP}")
            assert not done, "it waits for the transaction that is open"
            open_transaction.commit()
            drop.join()
            assert len(done) == 1
            assert _days(administration)[0] == (NOON + timedelta(days=5)).date()
            assert "old" not in _bodies(database)


def test_retention_drops_days_that_no_destination_keeps(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    short = administration.create_queue("short", history=True, history_days=2)
    long = administration.create_queue("long", history=True, history_days=5)
    first = NOON.date()
    for number in range(3):
        set_clock(NOON + timedelta(days=number))
        _keep(jmsql_factory, short, f"short {number}")
        if number != 1:
            _keep(jmsql_factory, long, f"long {number}")
    assert list(administration.history.prune()) == []

    set_clock(NOON + timedelta(days=4))
    steps = list(administration.history.prune())

    assert [(step.day - first, step.dropped) for step in steps] == [(timedelta(0), False), (timedelta(1), True)]
    assert _bodies(database) == ["long 0", "short 2", "long 2"]
    assert list(administration.history.prune()) == []
    set_clock(NOON + timedelta(days=8))
    assert [step.dropped for step in administration.history.prune()] == [True, True]
    assert _bodies(database) == []


def test_maintenance_applies_the_retention(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    queue = administration.create_queue("orders", history=True, history_days=1)
    set_clock(NOON)
    _keep(jmsql_factory, queue, "old")
    set_clock(NOON + timedelta(days=2))

    maintain(PsycopgRunner(database, "jmsql"))

    assert _days(administration)[0] == (NOON + timedelta(days=2)).date()


def test_without_a_limit_history_stays_and_so_does_that_of_deleted_queues(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    gone = administration.create_queue("gone", history=True, history_days=1)
    set_clock(NOON)
    _keep(jmsql_factory, orders, "kept")
    _keep(jmsql_factory, gone, "of one that is gone")
    administration.delete(gone)
    administration.create_queue("other", history_days=1)
    set_clock(NOON + timedelta(days=1000))

    assert list(administration.history.prune()) == []
    assert _bodies(database) == ["kept", "of one that is gone"]
    steps = administration.history.prune(before=NOON.date() + timedelta(days=1), destination="gone")
    assert [(step.messages, step.dropped) for step in steps] == [(1, False)]
    assert _bodies(database) == ["kept"]
    assert [step.dropped for step in administration.history.prune(before=NOON.date() + timedelta(days=1))] == [True]


def test_history_of_a_topic_goes_without_that_of_the_queue_of_the_same_name(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    set_clock(NOON)
    _keep(jmsql_factory, orders, "of the queue")
    topic = administration.create_topic("orders", history=True)
    with jmsql_factory.create_context() as context:
        consumer = context.create_shared_durable_consumer(topic, "all")
        context.create_producer().send(topic, "of the topic")
        assert consumer.receive_body(str, timeout=60) == "of the topic"
    assert _bodies(database) == ["of the queue", "of the topic"]

    assert administration.history.today() == NOON.date()
    tomorrow = NOON.date() + timedelta(days=1)
    assert [step.messages for step in administration.history.prune(before=tomorrow, destination=topic)] == [1]
    assert _bodies(database) == ["of the queue"]


def test_streaming_reads_that_have_not_passed_a_day_are_known(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    set_clock(NOON)
    _keep(jmsql_factory, orders, "a")
    (day,) = administration.history.days()
    added = database.execute(
        """insert into jmsql_internal.spark_cursor (transaction_id, sequence, last_transaction_id, last_sequence, holds)
           values ('3', 0, '3', 0, true), (pg_current_xact_id(), 0, '3', 0, true), ('3', 0, '3', 0, false)
           returning source_id::text"""
    ).fetchall()
    behind = added[0][0]
    assert administration.history.readers(day) == [behind]
    assert administration.history.readers(day, [orders]) == [behind]
    assert administration.history.readers(day, [jmsql.Queue("other")]) == []


def test_a_topics_history_is_kept_as_long_as_the_topic_says(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    topic = administration.create_topic("prices", history=True, history_days=1)
    set_clock(NOON)
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        connection.start()
        consumer = session.create_consumer(topic)
        session.create_producer(topic).send(session.create_text_message("17.5"))
        assert consumer.receive(timeout=60) is not None
    assert _bodies(database) == ["17.5"]
    set_clock(NOON + timedelta(days=2))

    assert [step.dropped for step in administration.history.prune()] == [True]


def test_a_day_is_settled_when_it_is_over_and_its_transactions_are(
    jmsql_factory: jmsql.ConnectionFactory,
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    jmsql_clean_url: str,
    set_clock: SetClock,
) -> None:
    set_clock(NOON)
    send(jmsql_factory, "order", destination=orders)
    url = jmsql_clean_url.replace("postgresql+psycopg", "postgresql")

    def is_settled() -> bool:
        return administration.history.days()[0].settled

    with psycopg.connect(url) as transaction:
        PsycopgRunner(transaction, "jmsql").run(HistoryPartitions(patience=1).make_ahead())
        transaction.commit()
        _sql(transaction, KEEP)
        assert not is_settled()
        set_clock(MIDNIGHT + timedelta(hours=1))
        assert not is_settled(), "somebody may still commit what was acknowledged then"
        with pytest.raises(jmsql.IllegalStateException, match="still grow"):
            list(administration.history.prune(before=MIDNIGHT.date()))
        transaction.commit()
        assert is_settled()
    assert [step.dropped for step in administration.history.prune(before=MIDNIGHT.date())] == [True]


def test_a_drop_that_was_interrupted_is_finished_later(
    jmsql_factory: jmsql.ConnectionFactory,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    jmsql_clean_url: str,
    set_clock: SetClock,
) -> None:
    queue = administration.create_queue("orders", history=True, history_days=1)
    set_clock(NOON)
    _keep(jmsql_factory, queue, "old")
    set_clock(NOON + timedelta(days=2))
    url = jmsql_clean_url.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(url) as reader:
        _sql(reader, "select from jmsql.history")
        hurried = HistoryPartitions(patience=0.1)
        with pytest.raises(jmsql.JMSException) as raised:
            list(PsycopgRunner(database, "jmsql").iterate(hurried.apply_retention()))
        assert isinstance(raised.value.__cause__, psycopg.errors.LockNotAvailable)
        assert database.execute("select from pg_inherits where inhdetachpending").fetchone() is not None
        # Maintenance leaves it at that, and does the rest of its work.
        maintain(PsycopgRunner(database, "jmsql"))

    assert list(administration.history.prune()) == []
    left = "select from pg_class where relname = 'message_history_20300310'"
    assert database.execute(left).fetchone() is None


def test_the_activity_says_who_has_begun_a_drop_that_broke_off(
    jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str, set_clock: SetClock
) -> None:
    hurried = dataclasses.replace(jmsql_factory, timings=InternalTimings(prune_lock_timeout=0.1))
    set_clock(NOON)
    with jmsql.admin.Administration(hurried, actor="alice") as administration:
        queue = administration.create_queue("orders", history=True, history_days=1)
        _keep(jmsql_factory, queue, "old")
        set_clock(NOON + timedelta(days=2))
        with psycopg.connect(jmsql_clean_url.replace("postgresql+psycopg", "postgresql")) as reader:
            _sql(reader, "select from jmsql.history")
            with pytest.raises(jmsql.JMSException):
                list(administration.history.prune(before=MIDNIGHT.date()))

    def prunings() -> list[tuple[str | None, str | None, str]]:
        return [(each.actor, each.details, each.outcome) for each in other.activity() if each.action == "prune"]

    with jmsql.admin.Administration(jmsql_factory, actor="bob") as other:
        begun = ("alice", "history of 2030-03-10, with about so many messages", "begun")
        assert prunings() == [begun]
        assert list(other.history.prune()) == []
        assert prunings() == [begun]
        _keep(jmsql_factory, queue, "new")
        set_clock(NOON + timedelta(days=4))
        assert [each.dropped for each in other.history.prune(before=NOON.date() + timedelta(days=3))] == [True]
        assert [(actor, outcome) for actor, _, outcome in prunings()] == [("bob", "done"), ("alice", "begun")]


def test_the_owner_alone_prunes(
    orders: jmsql.Queue,
    administration: jmsql.admin.Administration,
    database: psycopg.Connection[Any],
    set_clock: SetClock,
) -> None:
    administration.create_queue("short", history=True, history_days=1)
    set_clock(NOON)
    PsycopgRunner(database, "jmsql").run(HistoryPartitions(patience=1).make_ahead())
    set_clock(NOON + timedelta(days=30))
    role = f"jmsql_reader_{id(database)}"
    _sql(database, f"create role {role}; grant usage on schema jmsql, jmsql_internal to {role}")
    _sql(database, f"grant select on all tables in schema jmsql, jmsql_internal to {role}; set role {role}")
    try:
        with pytest.raises(jmsql.JMSSecurityException, match="must be owner"):
            list(PsycopgRunner(database, "jmsql").iterate(HistoryPartitions(patience=1).apply_retention()))
    finally:
        _sql(database, f"reset role; drop owned by {role}; drop role {role}")
    assert len(administration.history.days()) == 4


@pytest.mark.parametrize("off", ["", "enable_nestloop", "enable_hashjoin, enable_mergejoin"])
def test_days_can_be_chosen_whatever_the_plan(database: psycopg.Connection[Any], set_clock: SetClock, off: str) -> None:
    # A plan may check the condition on more relations than the days' partitions; their names end with no day.
    set_clock(datetime(2030, 1, 9, 12, tzinfo=UTC))
    for ago in range(3):
        database.execute("select jmsql_internal.make_history_partition('2030-01-09'::date - %s::integer)", [ago])
    with database.transaction():
        for setting in filter(None, off.split(", ")):
            database.execute(f"set local {setting} = off".encode())
        days = database.execute("select day::text from jmsql.history_days where day < '2030-01-09' order by 1")
        assert days.fetchall() == [("2030-01-07",), ("2030-01-08",)]
