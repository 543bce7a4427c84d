"""What went through destinations, minute by minute, as maintenance notes it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.store.control.counters import Counts, add_counters
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for

ORDERS = jmsql.Queue("orders")


@pytest.fixture
def database(jmsql_clean_url: str) -> Any:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("select jmsql.keep_rates(7)")  # a test before may have changed it
        yield connection


def count(database: Any, **counters: int) -> None:
    """Add to the counters of the queue orders, as clients do."""
    names = ", ".join(counters)
    database.execute(
        f"insert into jmsql_internal.destination_counters as t (destination_id, {names}) "
        f"select queue_id, {', '.join(map(str, counters.values()))} from jmsql_internal.queue where name = 'orders' "
        f"on conflict (destination_id) do update set "
        + ", ".join(f"{name} = t.{name} + excluded.{name}" for name in counters)
    )


def note(database: Any) -> int:
    return int(database.execute("select jmsql_internal.note_rates()").fetchone()[0])


def rates(database: Any) -> list[tuple[Any, ...]]:
    return list(
        database.execute(
            "select kind, destination, sum(sent)::int, sum(acknowledged)::int, sum(rolled_back)::int, "
            "max(extract(epoch from time_in_queue))::float8, max(extract(epoch from handling_time))::float8 "
            "from jmsql.rates group by 1, 2 order by 1 desc"
        )
    )


def test_differences_of_counters_are_noted_for_each_destination_and_all(database: Any) -> None:
    database.execute("select jmsql.create_queue('orders')")
    count(database, sent=100, acknowledged=100)
    assert note(database) == 0  # nothing is known of when they came
    count(database, sent=5, acknowledged=4, rolled_back=2, waited=4 * 1_500_000, calls=4, handled=4 * 250_000)
    assert note(database) == 1
    assert note(database) == 0
    count(database, sent=1)
    note(database)
    expected = [("queue", "orders", 6, 4, 2, 1.5, 0.25), ("all", None, 6, 4, 2, 1.5, 0.25)]
    assert rates(database) == expected
    database.execute("select jmsql.delete_destination('orders')")
    database.execute("delete from jmsql_internal.queue where name is null and deleted_at is not null")
    assert [row[0] for row in rates(database)] == ["all"]


def test_messages_from_long_ago_are_counted_for_years(database: Any, jmsql_factory: jmsql.ConnectionFactory) -> None:
    database.execute("select jmsql.create_queue('orders')")
    [(number,)] = database.execute("select queue_id from jmsql_internal.queue where name = 'orders'").fetchall()
    since_1970 = 1_800_000_000 * 1_000_000
    counts = Counts(acknowledged=10_000, waited=10_000 * since_1970, calls=1, handled=since_1970)
    runner = PsycopgRunner(database, "jmsql")
    runner.run(add_counters({number: counts}))
    note(database)
    runner.run(add_counters({number: counts}))
    assert note(database) == 1
    assert rates(database)[0][1:] == ("orders", 0, 10_000, 0, 1_800_000_000.0, 1_800_000_000.0)
    [measured] = database.execute("select time_in_queue_seconds from jmsql.counters").fetchall()
    assert measured == (2 * 10_000 * 1_800_000_000.0,)
    with jmsql_factory.create_context() as context, Administration(jmsql_factory) as administration:
        jmsql.send(context, "orders", "one that waits")
        for count_limit in (1000, None):
            assert [each.time_in_queue for each in administration.overview(count_limit=count_limit)] == [*measured]


def test_a_mean_remains_an_interval_whatever_a_role_has_counted(
    database: Any, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    database.execute("select jmsql.create_queue('orders')")
    note(database)
    count(database, acknowledged=1, waited=10**30, calls=1, handled=10**30)
    count(database, acknowledged=0, waited=10**30, calls=0, handled=10**30)
    assert note(database) == 1
    assert rates(database)[0][5:] == (1e11, 1e11)
    with Administration(jmsql_factory) as administration:
        assert len(administration.rates("orders")) == 1


def test_rates_go_on_whatever_a_role_has_counted(database: Any) -> None:
    database.execute("select jmsql.create_queue('orders')")
    note(database)
    for minute in range(10):
        database.execute(
            "insert into jmsql_internal.destination_counters (destination_id, sent, acknowledged, waited) "
            "select n, 1e15, 1e15, 1e30 from generate_series(%s::integer, %s::integer) n",
            [1_000_000 + 1000 * minute, 1_000_000 + 1000 * minute + 999],
        )
        assert note(database) == 1000
        database.execute(
            "update jmsql_internal.rate set minute = date_bin('10 minutes', minute, 'epoch') - interval '3 hours' "
            "+ %s::integer * interval '1 minute' where minute > now() - interval '10 minutes'",
            [minute],
        )
    count(database, sent=5)
    assert note(database) == 1
    [row] = database.execute(
        "select sent, time_in_queue > '0' from jmsql.rates where kind = 'all' order by minute limit 1"
    )
    assert row == (10 * 1000 * 10**12, True)


def test_rates_are_noted_by_one_client_at_a_time_and_by_no_key_that_a_role_can_take(
    database: Any, jmsql_clean_url: str
) -> None:
    database.execute("select jmsql.create_queue('orders')")
    note(database)
    count(database, sent=1)
    with psycopg.connect(jmsql_clean_url) as other:
        other.execute("select pg_advisory_lock('jmsql_internal.rate'::regclass::oid::bigint)")
        assert note(database) == 1
        count(database, sent=1)
        assert note(other) == 1
        assert note(database) == 0
        other.rollback()
        assert note(database) == 1


def test_old_minutes_become_ten_and_are_forgotten_after_some_days(database: Any) -> None:
    """Also those of hours ago: no client was there since then."""
    database.execute("select jmsql.create_queue('orders')")
    note(database)
    for minutes in (61 + 9, 61 + 15, 100, 300, 302, 305, 309, 8 * 24 * 60):
        database.execute(
            "insert into jmsql_internal.rate select queue_id, date_trunc('minute', now()) - make_interval(mins => %s), "
            "1, 1, 1, 1, 1, 1, 1 from jmsql_internal.queue where name = 'orders'",
            [minutes],
        )
    note(database)
    [(total, oldest, unaligned)] = database.execute(
        "select sum(sent)::int, now() - min(minute) < interval '6 hours', "
        "count(*) filter (where mod(extract(minute from minute), 10) <> 0 and minute < now() - interval '75 minutes') "
        "from jmsql_internal.rate"
    ).fetchall()
    assert (total, oldest, unaligned) == (7, True, 0)


def test_rates_are_noted_of_the_busiest_thousand_and_the_rest_later(database: Any) -> None:
    database.execute("insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, 1500) n")
    note(database)
    database.execute(
        "insert into jmsql_internal.destination_counters (destination_id, sent) "
        "select queue_id, queue_id from jmsql_internal.queue where name like 'queue %'"
    )
    assert [note(database), note(database), note(database)] == [1000, 500, 0]
    [(noted, all_of_them)] = database.execute(
        "select sum(r.sent) filter (where r.destination_id > 0) = max(t.sent),"
        "sum(r.sent) filter (where r.destination_id = 0) = max(t.sent) "
        "from jmsql_internal.rate r cross join ("
        "  select sum(sent) as sent from jmsql_internal.destination_counters) t"
    ).fetchall()
    assert (noted, all_of_them) == (True, True)


def test_a_setting_keeps_none(database: Any) -> None:
    database.execute("select jmsql.create_queue('orders')")
    note(database)
    count(database, sent=1)
    note(database)
    database.execute("select jmsql.keep_rates(0)")
    note(database)
    assert rates(database) == []
    count(database, sent=10)
    database.execute("select jmsql.keep_rates(1)")
    assert (note(database), note(database)) == (0, 0)
    assert rates(database) == []
    for wrong in ("-1", "367", "null"):
        with pytest.raises(psycopg.Error, match="number of days from 0 to 366"):
            database.execute(f"select jmsql.keep_rates({wrong})")


def test_clients_count_the_time_in_queue_and_the_time_of_handling(
    jmsql_factory: jmsql.ConnectionFactory, database: Any
) -> None:
    def counted() -> tuple[int, ...]:
        row = database.execute(
            "select acknowledged, waited, calls, handled from jmsql_internal.destination_counters t "
            "join jmsql_internal.queue q on q.queue_id = t.destination_id where q.name = 'orders'"
        ).fetchone()
        return (0, 0, 0, 0) if row is None else tuple(row)

    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
    database.execute("update jmsql_internal.message set jms_timestamp = jms_timestamp - 60000")
    with jmsql_factory.create_context() as context:
        assert context.create_consumer(ORDERS).receive(timeout=60) is not None
    wait_for(lambda: counted()[0] == 1, timeout=60)
    assert 60_000_000 <= counted()[1] < 3_600_000_000
    assert counted()[2:] == (0, 0)  # no handler had it
