"""How a batch read of a queue is divided, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import jmsql
from jmsql.admin import Administration
from jmsql.spark.columns.expressions import COLUMNS, SMALL_FIELDS
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BatchReader, BrowsePartition
from jmsql.spark.reading.browse import divide_queue
from jmsql.store.wire._sync.runner import PsycopgRunner
from tests.integration.client.server import Server
from tests.integration.store.plans import PlannedStatement

KINDS: dict[str, DataType] = {
    "bigint": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
}
SCHEMA = StructType([StructField("sequence", LongType())])

# One that was forgotten long ago, many of one priority, a few of others, and some that are delayed.
FILL = """
    with new as (
        select n as sequence, case when n % 100 = 0 then n / 100 % 10 else 5 end as inverse_priority
        from generate_series(1000001, 1004000) n
        union all values (1, 5))
    insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, sequence)
    select %(queue_id)s, inverse_priority, 2, 'Message', sequence from new"""
FILL_DELAYED = """
    insert into jmsql_internal.delayed_message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, sequence, jms_delivery_time)
    select %(queue_id)s, 5, 2, 'Message', n, 253402214000000 + n %% 7 from generate_series(2000001, 2000999) n"""
COUNT = 5_000


@pytest.fixture
def queue_id(server: Server, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    server.rows("select jmsql.create_queue('orders')")
    ((number,),) = server.rows("select queue_id from jmsql_internal.queue where name = 'orders'")
    yield number
    server.terminate("jmsql-spark-keeping-a-snapshot")


@pytest.fixture
def full(queue_id: int, server: Server, jmsql_clean_url: str) -> int:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute(FILL.replace("%", "%%").replace("%%(", "%("), {"queue_id": queue_id})
        connection.execute(FILL_DELAYED, {"queue_id": queue_id})
    return queue_id


def all_columns(**options: str) -> tuple[str, list[dict[str, Any]]]:
    """The statement of a read of all columns, and the rows that it brings."""
    schema = StructType([StructField(name, KINDS[kind]) for name, kind in COLUMNS.items()])
    reader = BatchReader(Options.read({"snapshotTimeout": "0", **options}), schema)
    [partition] = reader.partitions()
    assert isinstance(partition, BrowsePartition)
    rows = chain.from_iterable(batch.to_pylist() for batch in reader.read(partition))
    return partition.statement, sorted(rows, key=itemgetter("sequence"))


def sequences(**options: str) -> list[list[int]]:
    """What each task reads."""
    reader = BatchReader(Options.read({"queue": "orders", "snapshotTimeout": "0", **options}), SCHEMA)
    return [
        list(chain.from_iterable(batch.column("sequence").to_pylist() for batch in reader.read(partition)))
        for partition in reader.partitions()
    ]


@pytest.mark.parametrize("partitions", [2, 8, 30])
def test_parts_have_as_many_messages_each_wherever_their_sequences_lie(full: int, partitions: int) -> None:
    parts = sequences(partitions=str(partitions))
    assert len(parts) == partitions
    assert sorted(chain.from_iterable(parts)) == [1, *range(1000001, 1004001), *range(2000001, 2001000)]
    assert max(map(len, parts)) <= 1.2 * COUNT / partitions


def test_limit_does_not_read_a_large_part_of_narrow_rows(queue_id: int, server: Server) -> None:
    server.rows(FILL.replace("1004000", "1150000").replace("%(queue_id)s", str(queue_id)).replace("%", "%%"))
    [partition] = BatchReader(Options.read({"queue": "orders", "snapshotTimeout": "0"}), SCHEMA).partitions()
    batches = BatchReader(Options.read({"queue": "orders"}), SCHEMA).read(partition)
    # The query that needs five rows ends after the first batch, when two more may have been read.
    assert next(batches).num_rows < 50_000
    assert next(batches).num_rows > 10_000
    assert isinstance(batches, Generator)
    batches.close()


def test_few_messages_are_divided_too(queue_id: int, server: Server, jmsql_factory: jmsql.ConnectionFactory) -> None:
    assert sequences(partitions="4") == [[]]
    with jmsql_factory.create_context() as context:
        for priority in (0, 9, 4):
            context.create_producer(priority=priority).send(jmsql.Queue("orders"), "a")
    assert sorted(map(len, sequences(partitions="4"))) == [1, 1, 1]
    assert list(map(len, sequences(partitions="2"))) in ([1, 2], [2, 1])


@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("source", [{"queue": "orders"}, {"topic": "news", "subscription": "s"}], ids=str)
def test_a_read_of_what_was_deleted_since_it_was_planned_fails(
    queue_id: int, jmsql_clean_url: str, source: dict[str, str], *, made_again: bool
) -> None:
    def read(timeout: str) -> Callable[[], list[pa.RecordBatch]]:
        reader = BatchReader(Options.read({**source, "snapshotTimeout": timeout}), SCHEMA)
        [partition] = reader.partitions()
        return lambda: list(reader.read(partition))

    with Administration(jmsql_clean_url) as administration:
        administration.subscribe("news", "s", shared=True)
        read_now, read_as_planned = read("0"), read("60")
        assert read_now() == read_as_planned() == []
        administration.delete("queue://orders")
        administration.unsubscribe("s")
        if made_again:
            administration.create_queue("orders")
            administration.subscribe("news", "s", shared=True)
    with pytest.raises(jmsql.InvalidDestinationException, match=r"(orders|news) was deleted since this read was"):
        read_now()
    assert read_as_planned() == []


@pytest.mark.timeout(60)
def test_far_too_many_tasks_are_planned_at_once(
    queue_id: int, jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        for _ in range(3):
            context.create_producer().send(jmsql.Queue("orders"), "a")
    with psycopg.connect(jmsql_clean_url) as connection:
        parts = PsycopgRunner(connection, "jmsql").run(divide_queue(queue_id, lambda _: 2**31 - 1))
    assert len(parts) == 3


def test_tasks_are_as_many_as_asked_for_or_more_where_one_would_have_too_much(
    full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(sequences(minPartitions="3")) == 3
    monkeypatch.setattr("jmsql.spark.options._MOST_MESSAGES", 1000)
    assert len(sequences(minPartitions="3")) == 5


def test_samples_are_taken_by_keys_alone(full: int, jmsql_clean_url: str) -> None:
    """Whatever PostgreSQL expects of tables that it has not analyzed."""
    with psycopg.connect(jmsql_clean_url) as connection:
        steps = divide_queue(full, lambda _: 2)
        by_index = steps.send(None)
        connection.execute(by_index.statement.encoded("jmsql"))
        query = steps.send(None)
        plan = PlannedStatement(connection, "samples", query.statement.encoded("jmsql").decode()).run(query.parameters)
        scans = [scan for scan in plan.scans if scan.table.endswith("message")]
        assert {scan.kind for scan in scans} == {"Index Only Scan"}, scans
        assert len(PsycopgRunner(connection, "jmsql").run(divide_queue(full, lambda _: 2))) == 2


@pytest.fixture
def _analyzed_by_tests_alone(server: Server) -> Iterator[None]:
    """Autovacuum does not analyze what a test has sent meanwhile."""
    server.rows("alter table jmsql_internal.message set (autovacuum_analyze_threshold = 1000000000)")
    yield
    server.rows("alter table jmsql_internal.message reset (autovacuum_analyze_threshold)")


@pytest.mark.usefixtures("_analyzed_by_tests_alone")
def test_columns_that_statistics_expect_to_be_null_are_read_all_the_same(
    queue_id: int, server: Server, client: jmsql.JMSContext
) -> None:
    """They come as one column then: the same values, without the work of reading nulls."""
    orders, copies = jmsql.Queue("orders"), jmsql.Topic("copies")
    for name in ("one", "other"):
        client.create_shared_durable_consumer(copies, name).close()
    client.create_producer().send(orders, "plain")
    server.rows("analyze jmsql_internal.message, jmsql_internal.delayed_message")
    content = client.create_bytes_message()
    content.write_bytes(b"\x00\xff")
    content.set_string_property("a", 'NUL: \0, "quoted", {braces}, null')
    content.set_byte_property("b", 1)
    client.create_producer().send(orders, content)
    labelled = client.create_producer().set_jms_correlation_id("one").set_jms_reply_to(copies).set_jms_type("NULL")
    labelled.send(orders, {"a": b"\x01", "b": "{}"})
    client.create_producer().set_time_to_live(1e6).send(orders, "text")
    client.create_producer().set_delivery_delay(1e6).send(orders, "later")
    client.create_producer().send(copies, "shared")
    packed_statement, packed = all_columns(queue="orders")
    _, packed_shared = all_columns(topic="copies", subscription="one")
    server.rows("analyze jmsql_internal.message, jmsql_internal.delayed_message")
    statement, found = all_columns(queue="orders")
    _, found_shared = all_columns(topic="copies", subscription="one")
    assert 'as "rare"' in packed_statement
    assert 'as "rare"' not in statement
    assert packed == found
    assert packed_shared == found_shared
    assert {name for row in packed for name, value in row.items() if value is not None} == set(COLUMNS)
    assert [row["text_body"] for row in packed_shared] == ["shared"]


def test_columns_that_come_as_one_number_are_those_that_come_alone(
    queue_id: int, server: Server, client: jmsql.JMSContext
) -> None:
    orders, producer = jmsql.Queue("orders"), client.create_producer()
    producer.set_priority(0).send(orders, "text")
    producer.set_priority(9).set_delivery_mode(jmsql.DeliveryMode.NON_PERSISTENT).send(orders, {"a": 1})
    for message in (
        client.create_message(),
        client.create_bytes_message(),
        client.create_stream_message(),
        client.create_object_message([1]),
    ):
        producer.send(orders, message)
    server.rows(
        "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, delivery_count)"
        f" select queue_id, inverse_priority, sequence, {2**31 - 1} from jmsql_internal.message"
        " where message_type = 'TextMessage' returning 1"
    )
    statement, rows = all_columns(queue="orders")
    assert 'as "small"' in statement
    for name in ("priority", "type", "delivery_mode", "delivery_count"):
        schema = StructType([SCHEMA["sequence"], StructField(name, KINDS[COLUMNS[name]])])
        reader = BatchReader(Options.read({"queue": "orders", "snapshotTimeout": "0"}), schema)
        [partition] = reader.partitions()
        alone = chain.from_iterable(batch.to_pylist() for batch in reader.read(partition))
        assert {row["sequence"]: row[name] for row in rows} == {row["sequence"]: row[name] for row in alone}
    assert {row["delivery_count"] for row in rows} == {0, 2**31 - 1}
    assert {row["type"] for row in rows} == set(SMALL_FIELDS["type"].texts)


@pytest.mark.parametrize(("column", "enumeration"), [("type", "message_type"), ("outcome", "outcome")])
def test_numbers_stand_for_all_values_of_an_enumeration(column: str, enumeration: str, server: Server) -> None:
    [(values,)] = server.rows(f"select enum_range(null::jmsql_internal.{enumeration})::text[]")
    assert set(values) == set(SMALL_FIELDS[column].texts)
    assert len(values) <= 1 << SMALL_FIELDS[column].bits


def test_one_task_sees_the_moment_of_planning_if_that_is_to_be_held(full: int, server: Server) -> None:
    """So that it sees the same when Spark repeats it, or says that it cannot."""
    reader = BatchReader(Options.read({"queue": "orders", "snapshotTimeout": "60"}), SCHEMA)
    [partition] = reader.partitions()
    server.rows("delete from jmsql_internal.message")
    for _ in range(2):
        assert sum(batch.num_rows for batch in reader.read(partition)) == COUNT
    server.terminate("jmsql-spark-keeping-a-snapshot")
    with pytest.raises(jmsql.JMSException, match=r"The moment of this read is gone.*Run the query again"):
        list(reader.read(partition))
