"""What Spark does with a stream of the history, without Spark: places, batches that are read again, and retention."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

import jmsql
from jmsql.spark.options import Options
from jmsql.spark.streaming.history_stream_reader import HistoryStreamReader
from jmsql.store.history.partitions import HistoryPartitions
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.integration.history.conftest import SetClock, database, set_clock  # noqa: F401 - fixtures

SCHEMA = StructType([StructField("text_body", StringType())])
ALL = ReadAllAvailable()
Offset = dict[str, Any]

RECORD = """
    insert into jmsql_internal.message_history (
        acknowledged_at, sequence, queue_id, delivery_count, message_type, outcome, inverse_priority,
        jms_delivery_mode, is_topic, destination, text_body)
    select {moment}, nextval('jmsql_internal.message_sequence'), 1, 1, 'TextMessage', 'acknowledged', 5, 2, false, %s,
        body
    from unnest(%s::text[]) with ordinality as b (body, n) order by n"""


@pytest.fixture(autouse=True)
def url(
    jmsql_clean_url: str,
    server: Server,
    set_clock: SetClock,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Where the history is. The day does not end during a test."""
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    set_clock(dt.datetime.now(dt.UTC))
    server.rows(
        "select jmsql_internal.make_history_partition((jmsql_internal.history_clock() at time zone 'UTC')::date)"
    )
    server.rows("select jmsql.create_queue('orders', '{\"history\": true}')")
    return jmsql_clean_url


@contextmanager
def driver(**options: str) -> Iterator[HistoryStreamReader]:
    """A driver, which dies at the end of the block."""
    reader = HistoryStreamReader(Options.read({"history": "true", "queue": "orders", **options}), SCHEMA)
    try:
        yield reader
    finally:
        reader.stop()


def everywhere(**options: str) -> HistoryStreamReader:
    return HistoryStreamReader(Options.read({"history": "true", **options}), SCHEMA)


def record(connection: psycopg.Connection[Any], *bodies: str, queue: str = "orders", days_ago: int = 0) -> None:
    """Have messages in the history, with the transaction of the connection."""
    moment = f"jmsql_internal.history_clock() - interval '{days_ago} days'"
    connection.execute(RECORD.format(moment=moment).encode(), (queue, list(bodies)))


def read(reader: HistoryStreamReader, start: Offset, end: Offset) -> list[str]:
    """What all tasks of a batch return."""
    return sorted(
        body
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for body in batch.column("text_body").to_pylist()
    )


@pytest.fixture
def history(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection each of whose statements commits."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def test_acknowledged_messages_are_streamed_and_nothing_is_consumed(client: jmsql.JMSContext, server: Server) -> None:
    orders = client.create_queue("orders")
    consumer = client.create_consumer(orders)
    with driver() as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        for body in "abc":
            client.create_producer().send(orders, body)
            assert consumer.receive(60) is not None
        # The last commit may be on its way, and so may an earlier transaction be, which a stream does not pass.
        passed = "select count(*) from jmsql.history where transaction_id < pg_snapshot_xmin(pg_current_snapshot())"
        wait_for(lambda: server.rows(passed) == [(3,)])
        end = reader.latestOffset(start, ALL)
        assert read(reader, start, end) == ["a", "b", "c"]
        reader.commit(end)
    assert server.rows("select count(*) from jmsql.history") == [(3,)]


@pytest.mark.parametrize("position", ["earliest", "latest", "2026-11-21T00:00:00+00:00"])
def test_stream_begins_before_anything_has_left_and_is_one_read(
    history: psycopg.Connection[Any], server: Server, position: str
) -> None:
    with driver(startingOffsets=position) as reader:
        end = reader.latestOffset(reader.initialOffset(), ALL)
        # Spark runs the first batch also if it is empty, and asks again where that begins.
        assert reader.partitions(reader.initialOffset(), end) == []
        reader.commit(end)
        record(history, "a")
    with driver(startingOffsets=position) as reader:
        assert read(reader, end, reader.latestOffset(end, ALL)) == ["a"]
    assert server.rows("select count(*) from jmsql_internal.spark_cursor") == [(1,)]


def test_messages_that_have_left_are_found_when_spark_asks_again(history: psycopg.Connection[Any]) -> None:
    """As in `processAllAvailable`, which returns once the stream has said that there is nothing new."""
    with driver() as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        record(history, "a")
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["a"]


def test_empty_first_batch_that_was_noted_and_not_done_comes_again(history: psycopg.Connection[Any]) -> None:
    with driver() as reader:
        noted = reader.latestOffset(reader.initialOffset(), ALL)
    record(history, "a")
    with driver() as reader:
        assert reader.partitions(noted, noted) == []
        assert reader.partitions(reader.initialOffset(), noted) == []
        reader.commit(noted)
        assert read(reader, noted, reader.latestOffset(noted, ALL)) == ["a"]


def test_restored_checkpoint_is_told_unless_that_is_allowed(history: psycopg.Connection[Any], server: Server) -> None:
    record(history, "a")
    with driver() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ALL)
        reader.commit(first)
        record(history, "b")
        second = reader.latestOffset(first, ALL)
        reader.commit(second)
    # Retention may have removed by now what was passed.
    with driver() as reader, pytest.raises(jmsql.JMSException, match=r"has passed .* restored or copied.*failOnDataL"):
        reader.latestOffset(start, ALL)
    with driver(failOnDataLoss="false") as reader:
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["a", "b"]
        # What it reads again is kept again.
        assert server.rows("select transaction_id = '0' from jmsql_internal.spark_cursor") == [(True,)]


def test_transactions_that_commit_late_are_not_missed(url: str, history: psycopg.Connection[Any]) -> None:
    with psycopg.connect(url) as late, driver() as reader:
        start = reader.initialOffset()
        record(history, "before")
        record(late, "late")
        record(history, "after")
        first = reader.latestOffset(start, ALL)
        assert read(reader, start, first) == ["before"]
        late.commit()
        record(history, "last")
        second = reader.latestOffset(first, ALL)
        # "late" has a lower sequence than "after": a cursor on the sequence would have passed it.
        assert read(reader, first, second) == ["after", "last", "late"]


def test_prepared_transactions_are_not_missed(url: str, history: psycopg.Connection[Any]) -> None:
    preparing = psycopg.connect(url)
    preparing.tpc_begin("history stream")
    record(preparing, "prepared")
    preparing.tpc_prepare()
    preparing.close()
    try:
        record(history, "after")
        with driver() as reader:
            start = reader.initialOffset()
            assert reader.latestOffset(start, ALL) == start
    finally:
        history.execute("commit prepared 'history stream'")
    with driver() as reader:
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["after", "prepared"]


def test_rows_of_transactions_that_were_rolled_back_do_not_come(url: str, history: psycopg.Connection[Any]) -> None:
    with psycopg.connect(url) as undone, driver() as reader:
        record(undone, "undone")
        undone.rollback()
        record(history, "done")
        start = reader.initialOffset()
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["done"]


@pytest.mark.parametrize("queue", ["orders", None])
@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [12]),
        ({"maxMessagesPerTrigger": "5"}, [5, 5, 2]),
        ({"maxBytesPerTrigger": "1"}, [1] * 12),
        ({"maxMessagesPerTrigger": "6", "maxBytesPerTrigger": "1000000"}, [6, 6]),
    ],
)
def test_same_rows_come_back_for_the_same_offsets(
    history: psycopg.Connection[Any], queue: str | None, options: dict[str, str], sizes: list[int]
) -> None:
    bodies = [f"{number:02}" for number in range(12)]
    for number in range(0, 12, 3):
        name = "orders" if queue is not None else f"queue{number // 3 % 3}"
        record(history, *bodies[number : number + 3], queue=name)
    chosen = {} if queue is None else {"queue": queue}
    reader = everywhere(partitions="3", **chosen, **options)
    offsets = [reader.initialOffset()]
    while (latest := reader.latestOffset(offsets[-1], reader.getDefaultReadLimit())) != offsets[-1]:
        offsets.append(latest)
    batches = [read(reader, *pair) for pair in itertools.pairwise(offsets)]
    reader.stop()
    assert [len(batch) for batch in batches] == sizes
    assert [body for batch in batches for body in batch] == bodies

    record(history, "later")
    again = everywhere(partitions="2", **chosen, **options)
    assert [read(again, *pair) for pair in itertools.pairwise(offsets)] == batches
    again.stop()


def test_available_now_leaves_later_history(history: psycopg.Connection[Any]) -> None:
    record(history, "a")
    with driver() as reader:
        reader.prepareForTriggerAvailableNow()
        record(history, "b")
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert read(reader, start, end) == ["a"]
        assert reader.latestOffset(end, ALL) == end


def test_stream_starts_where_it_is_told(history: psycopg.Connection[Any], server: Server) -> None:
    server.rows(
        "select jmsql_internal.make_history_partition((jmsql_internal.history_clock() at time zone 'UTC')::date - 1)"
    )
    record(history, "yesterday", days_ago=1)
    record(history, "today")
    moment = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    with driver(startingOffsets=moment.isoformat()) as reader:
        start = reader.initialOffset()
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["today"]
    with driver(startingOffsets="latest") as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        record(history, "new")
        reader.stop()
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["new"]


def test_selector_chooses(history: psycopg.Connection[Any], server: Server) -> None:
    record(history, "a", "b")
    server.rows("update jmsql_internal.message_history set properties = '{\"color\": \"blue\"}' where text_body = 'b'")
    with driver(selector="color = 'blue'") as reader:
        start = reader.initialOffset()
        assert read(reader, start, reader.latestOffset(start, ALL)) == ["b"]


def test_driver_that_was_replaced_stops(history: psycopg.Connection[Any]) -> None:
    record(history, "a")
    with driver() as first, driver() as second:
        start = first.initialOffset()
        end = first.latestOffset(start, ALL)
        again = second.latestOffset(start, ALL)
        for refused in (
            lambda: first.partitions(start, end),
            lambda: first.commit(end),
            lambda: first.latestOffset(end, ALL),
        ):
            with pytest.raises(jmsql.IllegalStateException, match="Another driver has taken over"):
                refused()
        assert read(second, start, end) == read(second, start, again) == ["a"]


def test_connection_that_breaks_is_made_again(history: psycopg.Connection[Any], server: Server) -> None:
    record(history, "a")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert server.terminate("jmsql-spark-streaming-history") == 1
        assert read(reader, start, end) == ["a"]
        assert server.terminate("jmsql-spark-streaming-history") == 1
        reader.commit(end)
    assert server.rows("select queue, history, lag < interval '1 hour' from jmsql.spark_sources") == [
        ("orders", True, True)
    ]


def test_backlog_is_reported(history: psycopg.Connection[Any]) -> None:
    record(history, "a", "b", "c")
    with driver() as reader:
        assert reader.reportLatestOffset() is None
        start = reader.initialOffset()
        reader.latestOffset(start, ReadMaxRows(1))
        report = reader.reportLatestOffset()
    assert report is not None
    assert report["backlogMessages"] == 3
    assert report["backlogBytes"] > 0
    assert 0 <= report["lagSeconds"] < 600


# What is lost


def test_checkpoint_of_another_database_is_refused_or_begins_again(
    history: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    record(history, "a")
    unknown = {"source": "00000000-0000-0000-0000-000000000000", "transaction": 10**9, "sequence": 0}
    with driver() as reader, pytest.raises(jmsql.InvalidDestinationException, match="does not know"):
        reader.latestOffset(unknown, ALL)
    with driver(failOnDataLoss="false") as reader, caplog.at_level(logging.WARNING, "jmsql"):
        end = reader.latestOffset(unknown, ALL)
        assert read(reader, unknown, end) == ["a"]
        reader.commit(end)
        assert reader.latestOffset(end, ALL) == end
    assert "starts again" in caplog.text


def test_checkpoint_of_another_history_is_refused_and_its_driver_goes_on(
    history: psycopg.Connection[Any], server: Server
) -> None:
    server.rows("select jmsql.create_queue('bills', '{\"history\": true}')")
    record(history, "a")
    with driver() as reader, driver(queue="bills") as other:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        for refused in (
            lambda: other.latestOffset(start, ALL),
            lambda: other.partitions(start, end),
            lambda: everywhere().latestOffset(start, ALL),
        ):
            with pytest.raises(jmsql.JMSException, match="a stream of another history than the options"):
                refused()
        assert read(reader, start, end) == ["a"]
        reader.commit(end)


def test_checkpoint_of_a_stream_that_consumes_is_refused(url: str) -> None:
    of_queue = {"source": "00000000-0000-0000-0000-000000000000", "batch": 1}
    with driver() as reader:
        for refused in (
            lambda: reader.latestOffset(of_queue, ALL),
            lambda: reader.partitions(of_queue, {**of_queue, "batch": 2}),
            lambda: reader.commit(of_queue),
        ):
            with pytest.raises(jmsql.JMSException, match="a stream that consumes messages"):
                refused()


def test_restored_database_is_noticed(history: psycopg.Connection[Any], server: Server) -> None:
    record(history, "a")
    with driver() as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, ALL)
        assert read(reader, start, first) == ["a"]
        reader.commit(first)
        server.rows("create table public.backup as table jmsql_internal.spark_cursor")
        record(history, "b")
        reader.stop()
        second = reader.latestOffset(first, ALL)
        assert read(reader, first, second) == ["b"]
        reader.commit(second)
    # As in a backup that was made after the first batch.
    server.rows("delete from jmsql_internal.spark_cursor")
    server.rows("insert into jmsql_internal.spark_cursor table public.backup")
    server.rows("drop table public.backup")
    server.rows("delete from jmsql_internal.message_history where text_body = 'b'")
    record(history, "c")
    with driver() as reader:
        with pytest.raises(jmsql.JMSException, match=r"it was restored, or is another. .*failOnDataLoss"):
            reader.latestOffset(second, ALL)
        with pytest.raises(jmsql.JMSException, match="it was restored, or is another"):
            reader.partitions(first, second)
    with driver(failOnDataLoss="false") as reader:
        assert reader.partitions(first, second) == []
        third = reader.latestOffset(second, ALL)
        assert read(reader, second, third) == ["c"]


def test_rows_that_vanish_from_a_batch_are_told_unless_that_is_allowed(
    history: psycopg.Connection[Any], server: Server
) -> None:
    record(history, "a", "b")
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        (partition,) = reader.partitions(start, end)
        server.rows("delete from jmsql_internal.message_history where text_body = 'a'")
        with pytest.raises(jmsql.JMSException, match="1 rows of a batch were removed"):
            list(reader.read(partition))
        with pytest.raises(jmsql.JMSException, match=r"1 of the 2 rows of a batch are gone.*failOnDataLoss"):
            reader.partitions(start, end)
    with driver(failOnDataLoss="false") as reader:
        assert read(reader, start, end) == ["b"]


# Retention


@pytest.fixture
def old_days(history: psycopg.Connection[Any], server: Server) -> None:
    """Two days of history that no destination keeps any longer; nobody else does the maintenance."""
    for ago in (9, 8):
        server.rows(
            "select jmsql_internal.make_history_partition((jmsql_internal.history_clock() at time zone "
            "'UTC')::date - %s::integer)",
            ago,
        )
        record(history, f"{ago} days ago", days_ago=ago)
        record(history, "other", queue="others", days_ago=ago)
    server.rows("select jmsql.alter_destination('orders', '{\"history_days\": 5}')")
    server.rows("select jmsql.create_queue('others', '{\"history_days\": 5}')")


def prune(history: psycopg.Connection[Any], partitions: HistoryPartitions) -> None:
    for _ in PsycopgRunner(history, "jmsql").iterate(partitions.apply_retention()):
        pass


def left(server: Server) -> list[str]:
    return [body for (body,) in server.rows("select text_body from jmsql_internal.message_history order by sequence")]


@pytest.mark.usefixtures("old_days")
def test_retention_leaves_what_a_stream_has_not_passed_and_says_so(
    history: psycopg.Connection[Any], server: Server
) -> None:
    held: dict[dt.date, list[str]] = {}
    partitions = HistoryPartitions(patience=1.0, on_held=held.__setitem__)
    with driver(maxMessagesPerTrigger="1") as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert read(reader, start, first) == ["9 days ago"]
        prune(history, partitions)
        assert left(server) == ["9 days ago", "8 days ago"]
        assert (len(held), set(map(tuple, held.values()))) == (2, {(start["source"],)})
        held.clear()

        reader.commit(first)
        prune(history, partitions)
        assert left(server) == ["8 days ago"]
        nine_days_ago = "(jmsql_internal.history_clock() at time zone 'UTC')::date - 9"
        assert server.rows(f"select count(*) from jmsql.history_days where day = {nine_days_ago}") == [(0,)]

        server.rows("select jmsql.forget_spark_source(%s::uuid)", start["source"])
        held.clear()
        prune(history, partitions)
        assert (left(server), held) == ([], {})


@pytest.mark.usefixtures("old_days")
def test_stream_of_all_destinations_holds_them_all(history: psycopg.Connection[Any], server: Server) -> None:
    reader = everywhere()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    partitions = HistoryPartitions(patience=1.0)
    reader.partitions(start, end)
    prune(history, partitions)
    assert len(left(server)) == 4
    reader.commit(end)
    reader.stop()
    prune(history, partitions)
    assert left(server) == []


@pytest.mark.usefixtures("old_days")
def test_read_that_spark_has_never_noted_holds_nothing(history: psycopg.Connection[Any], server: Server) -> None:
    with driver() as reader:
        reader.latestOffset(reader.initialOffset(), ALL)
    prune(history, HistoryPartitions(patience=1.0))
    assert left(server) == []
    server.rows("update jmsql_internal.spark_cursor set used_at = now() - interval '2 days'")
    with driver() as reader:
        reader.initialOffset()
    assert server.rows("select count(*) from jmsql_internal.spark_cursor") == [(1,)]
    assert server.rows("select count(*) from jmsql.spark_sources") == [(0,)]


@pytest.mark.usefixtures("old_days")
def test_pruning_by_force_tells_the_streams_that_lose_something(
    administration: jmsql.admin.Administration, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with driver(maxMessagesPerTrigger="1") as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.partitions(start, first)
        with caplog.at_level(logging.WARNING, "jmsql"):
            list(administration.history.prune())
        assert f"streaming reads of Spark have not passed it ({start['source']})" in caplog.text
        today = administration.history.today()
        list(administration.history.prune(before=today - dt.timedelta(days=8)))
        assert left(server) == ["8 days ago"]
        with pytest.raises(
            jmsql.JMSException, match=r"History that the stream had not read was removed.*failOnDataLoss"
        ):
            reader.latestOffset(first, ALL)
    with driver(failOnDataLoss="false") as reader:
        second = reader.latestOffset(first, ALL)
        assert read(reader, first, second) == ["8 days ago"]
        assert reader.latestOffset(second, ALL) == second
