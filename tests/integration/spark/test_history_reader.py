"""A batch read of the history, without Spark: which rows come back, whole and once, and by which plans."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

import jmsql
from jmsql.spark.columns.expressions import HISTORY_COLUMNS, Condition
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BrowsePartition, HistoryReader
from jmsql.spark.reading.history import HistoryOrigin, HistorySpan, divide_history
from jmsql.store.wire._sync.runner import PsycopgRunner
from tests.integration.client.server import Server, with_parameters
from tests.integration.store.plans import Plan

ROWS = 100_000
KINDS: dict[str, DataType] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "timestamp": TimestampType(),
}

# Three days, fifty queues, twenty messages a transaction, but for a transaction with a tenth of it all.
FILL = """
    insert into jmsql_internal.message_history (
        acknowledged_at, transaction_id, sequence, queue_id, delivery_count, message_type, outcome, inverse_priority,
        jms_delivery_mode, is_topic, destination, text_body)
    select timestamptz '2026-03-01 00:00+00' + n * interval '2.5 s',
           (case when n between 20000 and 29999 then 1000 else n / 20 end + 10)::text::xid8, n, 1, 1, 'TextMessage',
           'acknowledged', 5, 2, false, 'queue' || n * 7919::bigint %% 50, n::text
    from generate_series(0, 99999) as n"""


@pytest.fixture(autouse=True)
def url(jmsql_clean_url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    yield jmsql_clean_url
    server.terminate("jmsql-spark-keeping-a-snapshot")


@pytest.fixture
def long_history(server: Server) -> Iterator[None]:
    for day in range(3):
        server.rows("select jmsql_internal.make_history_partition(date '2026-03-01' + %s::integer)", day)
    server.rows(FILL)
    server.rows("vacuum analyze jmsql_internal.message_history")
    yield
    # While it runs, no day can be dropped.
    server.terminate("jmsql-spark-keeping-a-snapshot")
    server.rows(
        "drop table jmsql_internal.message_history_20260301, jmsql_internal.message_history_20260302, "
        "jmsql_internal.message_history_20260303"
    )


def reader(columns: str = "text_body", **options: str) -> HistoryReader:
    schema = StructType([StructField(name, KINDS[HISTORY_COLUMNS[name]]) for name in columns.split(",")])
    return HistoryReader(Options.read({"history": "true", "columns": columns, **options}), schema)


def rows(source: HistoryReader, *partitions: InputPartition) -> list[dict[str, Any]]:
    chosen = partitions or source.partitions()
    return [row for partition in chosen for batch in source.read(partition) for row in batch.to_pylist()]


def bodies(source: HistoryReader) -> list[str]:
    return sorted(row["text_body"] for row in rows(source))


def plan(url: str, partition: InputPartition) -> Plan:
    assert isinstance(partition, BrowsePartition)
    statement = f"explain (analyze, buffers, format json) {partition.statement}"
    with psycopg.connect(url) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return Plan(row[0][0]["Plan"])


def end(client: jmsql.JMSContext, destination: jmsql.Destination, *texts: str) -> None:
    """Have messages in the history: send them and receive them."""
    with client.create_consumer(destination) as consumer:
        for text in texts:
            client.create_producer().send(destination, text)
            assert consumer.receive_body(str, timeout=60) == text


def test_rows_say_how_each_message_left_its_destination(
    client: jmsql.JMSContext, administration: jmsql.admin.Administration, server: Server
) -> None:
    orders = administration.create_queue("orders", history=True)
    end(client, orders, "a")
    client.create_producer().send(orders, "b")
    assert administration.purge("orders") == 1
    columns = "destination,sequence,text_body,acknowledged_at,outcome,subscription,connection_id,client_id,user_name,transaction_id,delivery_count"  # noqa: E501
    first, second = sorted(rows(reader(columns, queue="orders")), key=lambda row: row["sequence"])
    known = server.rows(
        "select acknowledged_at, consumed_by, user_name, transaction_id::text::bigint, sequence from jmsql.history "
        "where body = 'a'"
    )
    assert known == [
        tuple(first[name] for name in ("acknowledged_at", "connection_id", "user_name", "transaction_id", "sequence"))
    ]
    assert [first[name] for name in ("destination", "text_body", "outcome", "delivery_count", "subscription")] == [
        "queue://orders",
        "a",
        "acknowledged",
        1,
        None,
    ]
    assert (second["text_body"], second["outcome"], second["connection_id"]) == ("b", "purged", None)


def test_options_choose_a_queue_a_topic_a_subscription_or_all(
    client: jmsql.JMSContext, administration: jmsql.admin.Administration, server: Server
) -> None:
    queue = administration.create_queue("prices", history=True)
    topic = administration.create_topic("prices", history=True)
    end(client, queue, "from the queue")
    server.rows("analyze jmsql_internal.message_history")  # which tells that nothing has a subscription
    for name in ("audit", "report"):
        client.create_shared_durable_consumer(topic, name).close()
    client.create_producer().send(topic, "from the topic")
    for name in ("audit", "report"):
        with client.create_shared_durable_consumer(topic, name) as consumer:
            assert consumer.receive(60) is not None

    assert bodies(reader(queue="prices")) == ["from the queue"]
    assert bodies(reader(topic="prices")) == ["from the topic"] * 2
    columns = "destination,subscription,subscription_client_id"
    (row,) = rows(reader(columns, topic="prices", subscription="audit"))
    assert row == {"destination": "topic://prices", "subscription": "audit", "subscription_client_id": None}
    assert len(bodies(reader())) == 3


def test_history_outlives_its_destination_and_names_that_never_were_are_refused(
    client: jmsql.JMSContext, administration: jmsql.admin.Administration
) -> None:
    orders = administration.create_queue("orders", history=True)
    end(client, orders, "a")
    administration.delete(orders, force=True)
    assert bodies(reader(queue="orders")) == ["a"]
    for options, words in (
        ({"queue": "ordres"}, "Option 'queue': there is no queue 'ordres', and nothing of it in the history"),
        ({"topic": "orders"}, "Option 'topic': there is no topic 'orders'"),
        ({"topic": "orders", "subscription": "audit"}, "Option 'subscription': there is no subscription 'audit'"),
    ):
        with pytest.raises(jmsql.InvalidDestinationException, match=words):
            reader(**options).partitions()


def test_a_destination_that_keeps_no_history_is_warned_of(
    administration: jmsql.admin.Administration, caplog: pytest.LogCaptureFixture
) -> None:
    for keeps in (True, False):
        administration.create_queue("orders", history=keeps)
        administration.create_topic("prices", history=not keeps)
        caplog.clear()
        assert bodies(reader(queue="orders")) == []
        assert bodies(reader(topic="prices")) == []
        [warning] = caplog.messages
        named = "topic://prices" if keeps else "queue://orders"
        assert warning.startswith(f"{named} keeps no history")
        assert f"`jmsql destination set {named} --history`" in warning
        administration.delete(jmsql.Queue("orders"))
        administration.delete(jmsql.Topic("prices"))


def test_selector_chooses(client: jmsql.JMSContext, administration: jmsql.admin.Administration) -> None:
    orders = administration.create_queue("orders", history=True)
    end(client, orders, "a", "b")
    message = client.create_text_message("c")
    message.properties["color"] = "blue"
    client.create_producer().send(orders, message)
    with client.create_consumer(orders) as consumer:  # whose end waits for the commit
        assert consumer.receive(60) is not None
    assert bodies(reader(queue="orders", selector="color = 'blue'")) == ["c"]
    assert bodies(reader(selector="color is null", partitions="2")) == ["a", "b"]


@pytest.mark.usefixtures("long_history")
def test_tasks_share_all_rows_evenly_and_each_reads_its_own(server: Server, url: str) -> None:
    ((blocks,),) = server.rows("select sum(bytes)::bigint / 8192 from jmsql.history_days")
    for options, kinds in (
        ({}, {"Seq Scan", "Tid Range Scan"}),
        ({"queue": "queue7"}, {"Index Scan", "Index Only Scan", "Bitmap Heap Scan"}),
    ):
        source = reader(partitions="4", **options)
        expected = server.rows(
            "select text_body from jmsql.history where destination like %s", options.get("queue", "%")
        )
        partitions = source.partitions()
        found = [[row["text_body"] for row in rows(source, partition)] for partition in partitions]
        assert sorted(text for part in found for text in part) == sorted(text for (text,) in expected)
        assert len(found) == 4
        assert max(map(len, found)) < 1.2 * len(expected) / 4
        plans = [plan(url, partition) for partition in partitions]
        assert sum(p.buffers for p in plans) < 1.2 * blocks
        assert {scan.kind for p in plans for scan in p.scans if "202603" in scan.table} <= kinds


@pytest.mark.usefixtures("long_history")
def test_range_of_time_is_divided_so_that_each_row_is_in_one_part(url: str) -> None:
    morning = dt.datetime(2026, 3, 1, 7, tzinfo=dt.UTC)
    spans = [
        HistorySpan(morning, morning + dt.timedelta(hours=40)),
        HistorySpan(morning, morning + dt.timedelta(minutes=1)),
        HistorySpan(morning, morning),
        HistorySpan(None, morning + dt.timedelta(days=300)),
    ]
    with psycopg.connect(url) as connection:
        cursor = psycopg.ClientCursor(connection)

        def found(origin: HistoryOrigin, condition: Condition) -> list[int]:
            chosen = origin.condition()
            text = f"select m.sequence from jmsql_internal.message_history m where {condition.text} {chosen.text}"
            return [row[0] for row in cursor.execute(text, {**condition.parameters, **chosen.parameters})]

        for span, name in itertools.product(spans, (None, "queue7")):
            origin = HistoryOrigin(None if name is None else jmsql.Queue(name))
            parts = PsycopgRunner(connection, "jmsql").run(divide_history(origin, span, lambda _: 7))
            divided = [number for part in parts for condition in part for number in found(origin, condition)]
            assert sorted(divided) == sorted(found(origin, span.condition()))


@pytest.mark.usefixtures("long_history")
def test_all_tasks_see_the_moment_of_planning_and_no_day_is_dropped_meanwhile(server: Server) -> None:
    source = reader("sequence", partitions="3")
    partitions = source.partitions()
    server.rows("delete from jmsql_internal.message_history where sequence < 1000")
    server.rows("set lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        server.rows(
            "alter table jmsql_internal.message_history detach partition "
            "jmsql_internal.message_history_20260301 concurrently"
        )
    assert len(rows(source, *partitions)) == ROWS
    server.terminate("jmsql-spark-keeping-a-snapshot")
    server.rows("set lock_timeout = 0")
    server.rows(
        "alter table jmsql_internal.message_history detach partition jmsql_internal.message_history_20260301 finalize"
    )


def test_row_security_shows_what_the_role_may_browse(
    client: jmsql.JMSContext,
    administration: jmsql.admin.Administration,
    server: Server,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("orders", "salaries"):
        end(client, administration.create_queue(name, history=True), name)
    server.rows("create role history_reader login")
    try:
        server.rows("select jmsql.grant_access('queue://orders', 'history_reader', 'browse')")
        monkeypatch.setenv("JMSQL_URL", with_parameters(url, options="-crole=history_reader"))
        assert bodies(reader(partitions="2")) == ["orders"]
        assert bodies(reader(queue="salaries")) == []
    finally:
        server.rows("select jmsql.revoke_access('queue://orders', 'history_reader', 'browse')")
        server.rows("drop owned by history_reader")
        server.rows("drop role history_reader")
