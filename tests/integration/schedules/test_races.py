"""Ticks that clients try at once, while an administrator changes the schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from threading import Barrier

import psycopg
import pytest

from jmsql import JMSException
from jmsql.admin import Administration
from jmsql.client._sync.link.opening import open_runner
from jmsql.store.schedules.ticking import NextTick, fire, next_ticks
from jmsql.store.wire._sync.runner import PsycopgRunner
from tests.integration.client.server import with_parameters

ROUNDS = 12
CLIENTS = 3


@pytest.fixture
def runners(jmsql_clean_url: str) -> Iterator[list[PsycopgRunner]]:
    with ExitStack() as exits:
        yield [exits.enter_context(open_runner(jmsql_clean_url, "jmsql")) for _ in range(CLIENTS)]


def due(runner: PsycopgRunner) -> list[NextTick]:
    return [tick for tick in runner.run(next_ticks(60.0, [])) if tick.seconds <= 0]


def edit_times(administration: Administration, number: int) -> None:
    administration.set_schedule("ticks", timedelta(hours=1 + number), "ticks", str(number))


def edit_body(administration: Administration, number: int) -> None:
    administration.set_schedule("ticks", "@yearly", "ticks", str(number))


def pause_and_resume(administration: Administration, _: int) -> None:
    administration.pause_schedule("ticks")
    administration.resume_schedule("ticks")


def delete(administration: Administration, _: int) -> None:
    administration.delete_schedule("ticks")


@pytest.mark.parametrize(("change", "least"), [(edit_times, 1), (edit_body, 1), (pause_and_resume, 0), (delete, 0)])
def test_a_tick_is_sent_once_whatever_is_changed_meanwhile(
    administration: Administration,
    sql: psycopg.Connection,
    runners: list[PsycopgRunner],
    change: Callable[[Administration, int], None],
    least: int,
) -> None:
    with ThreadPoolExecutor(CLIENTS + 1) as threads:
        for number in range(ROUNDS):
            administration.set_schedule("ticks", "@yearly", "ticks", "go")
            sql.execute("update jmsql_internal.schedule set next_at = clock_timestamp()")
            [tick] = due(runners[0])
            together = Barrier(CLIENTS + 1)

            def try_it(runner: PsycopgRunner, tick: NextTick = tick, together: Barrier = together) -> bool:
                together.wait()
                return runner.run(fire(tick, tick.decide()))

            def change_it(number: int = number, together: Barrier = together) -> None:
                together.wait()
                change(administration, number)

            tried = [threads.submit(try_it, runner) for runner in runners]
            threads.submit(change_it).result()
            done = sum(each.result() for each in tried)
            for tick in due(runners[0]):
                done += runners[0].run(fire(tick, tick.decide()))
            assert least <= done <= 1
            assert sql.execute("select count(*) from jmsql.messages where queue = 'ticks'").fetchone() == (done,)
            sql.execute("delete from jmsql_internal.message")


def test_clients_that_try_at_once_do_each_tick_once(
    administration: Administration, sql: psycopg.Connection, runners: list[PsycopgRunner]
) -> None:
    administration.set_schedule("ticks", timedelta(seconds=1), "ticks", missed="all")
    sql.execute("update jmsql_internal.schedule set next_at = clock_timestamp() - interval '60 seconds'")

    def try_all(runner: PsycopgRunner) -> int:
        done = 0
        while ticks := due(runner):
            done += sum(runner.run(fire(tick, tick.decide())) for tick in ticks)
        return done

    with ThreadPoolExecutor(CLIENTS) as threads:
        done = sum(threads.map(try_all, runners))
    found = sql.execute(
        "select count(*), count(distinct properties ->> 'JMS_jmsql_ScheduledTime') from jmsql.messages"
    ).fetchone()
    assert found == (done, done)
    assert done >= 61


def test_no_advisory_lock_keeps_an_administrator_from_a_schedule(jmsql_clean_url: str, sql: psycopg.Connection) -> None:
    """Every role can take any: the schedules' own is a row."""
    patient = with_parameters(jmsql_clean_url, options="-c lock_timeout=2000")
    with Administration(patient) as administration, sql.transaction():
        sql.execute("select pg_advisory_xact_lock(hashtextextended('jmsql schedule jmsql', 0))")
        administration.set_schedule("ticks", "@yearly", "ticks")
        assert [each.name for each in administration.schedules()] == ["ticks"]
        sql.execute("select from jmsql_internal.configuration for no key update")
        with pytest.raises(JMSException):
            administration.set_schedule("ticks", "@monthly", "ticks")


def test_a_tick_whose_schedule_is_locked_is_left_to_the_holder(
    administration: Administration, sql: psycopg.Connection, runners: list[PsycopgRunner]
) -> None:
    administration.set_schedule("ticks", "@yearly", "ticks")
    sql.execute("update jmsql_internal.schedule set next_at = clock_timestamp()")
    [tick] = due(runners[0])
    with sql.transaction():
        sql.execute("select from jmsql_internal.schedule for update")
        assert not runners[0].run(fire(tick, tick.decide()))
    assert runners[0].run(fire(tick, tick.decide()))


def test_a_tick_that_cannot_be_sent_stays_due(
    administration: Administration, sql: psycopg.Connection, runners: list[PsycopgRunner]
) -> None:
    administration.set_schedule("ticks", "@yearly", "ticks")
    administration.delete("ticks")
    administration.set_automatic_creation(enabled=False)
    sql.execute("update jmsql_internal.schedule set next_at = clock_timestamp()")
    try:
        [tick] = due(runners[0])
        with pytest.raises(JMSException, match="ticks"):
            runners[0].run(fire(tick, tick.decide()))
        assert [each.due for each in due(runners[0])] == [tick.due]
    finally:
        administration.set_automatic_creation(enabled=True)
    assert runners[0].run(fire(tick, tick.decide()))
