from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import jmsql
from jmsql.spark.connection import DatabaseReference
from jmsql.spark.options import PropertyFormat
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.spark.streaming import finish, forward_now, stream

pytestmark = pytest.mark.timeout(400)

PENDING = (
    "select (select count(*) from jmsql_internal.pending_transaction), "
    "(select count(*) from jmsql_internal.spark_staging)"
)


def messages(server: Server, queue: str = "orders") -> list[str]:
    return [
        body for (body,) in server.rows("select body from jmsql.messages where queue = %s order by sequence", queue)
    ]


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as text_body")


def something_is_written() -> bool:
    with DatabaseReference().connect("looking at what is written") as connection:
        return connection.execute("select from jmsql_internal.pending_transaction").fetchone() is not None


def failing(rows: DataFrame, *, always: bool) -> DataFrame:
    """The same rows, of which the second partition breaks after its last one: in its first attempt, or in each.

    In each, it waits for what the first has written: when Spark gives a write up, it forgets tasks that have not ended.
    """

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and (always or context.attemptNumber() == 0):
            if always:
                wait_for(something_is_written, timeout=100)
            raise RuntimeError("the task breaks")

    return rows.mapInArrow(pass_on, rows.schema)


@pytest.mark.parametrize("properties", PropertyFormat)
def test_read_messages_are_written_unchanged(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, properties: PropertyFormat
) -> None:
    sent = context.create_map_message()
    sent.set_short("n", 5)
    sent.jms_correlation_id = "c-1"
    sent.set_byte_property("byte", 1)
    sent.properties["color"] = "blue"
    context.create_producer(priority=7).send(context.create_queue("orders"), sent)
    context.create_producer(delivery_delay=3600).send(context.create_queue("orders"), b"later")
    context.commit()

    read = spark.read.format("jmsql").options(queue="orders", properties=properties).load()
    read.drop("destination").write.format("jmsql").option("queue", "copies").mode("append").save()

    received = context.create_consumer(context.create_queue("copies")).receive(60)
    assert isinstance(received, jmsql.MapMessage)
    assert (received.get_object("n"), type(received.get_object("n")).__name__) == (5, "Short")
    assert (received.jms_correlation_id, received.jms_priority) == ("c-1", 7)
    assert type(received.get_object_property("byte")).__name__ == "Byte"
    assert received.properties["color"] == "blue"
    assert received.jms_message_id not in {None, sent.jms_message_id}
    assert received.jms_timestamp >= sent.jms_timestamp
    assert server.rows("select body from jmsql.messages where queue = 'copies' and state = 'delayed'") == [
        (r"\x6c61746572",)
    ]


def test_rows_go_to_the_destinations_that_they_name(
    spark: SparkSession, context: jmsql.JMSContext, server: Server
) -> None:
    prices = context.create_topic("prices")
    for name, selector in (("all", None), ("euro", "currency = 'EUR'")):
        context.create_shared_durable_consumer(prices, name, selector).close()
    context.commit()
    rows = spark.sql(
        """select * from values
            ('topic://prices', '1', map('currency', 'EUR')),
            ('topic://prices', '2', map('currency', 'USD')),
            ('queue://orders', '3', null) as t (destination, text_body, properties)"""
    )
    rows.write.format("jmsql").mode("append").save()

    found = server.rows("select coalesce(queue, subscription), body from jmsql.messages order by 1, 2")
    assert found == [("all", "1"), ("all", "2"), ("euro", "1"), ("orders", "3")]


def test_consumer_that_waits_is_woken_in_the_order_of_the_rows(
    spark: SparkSession, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        numbers(spark, 10, 1).write.format("jmsql").option("queue", "orders").mode("append").save()
        assert [consumer.receive_body(str, timeout=60) for _ in range(10)] == [str(number) for number in range(10)]


def test_attempt_that_breaks_is_repeated_and_leaves_nothing(
    spark: SparkSession, jmsql_clean_url: str, server: Server
) -> None:
    write = failing(numbers(spark, 100), always=False).write.format("jmsql").option("queue", "orders")
    write.mode("append").save()
    in_each_task = sorted(messages(server), key=lambda body: int(body) // 50)  # those of several tasks are mixed
    assert in_each_task == [str(number) for number in range(100)]
    assert server.rows(PENDING) == [(0, 0)]


def test_write_that_fails_writes_nothing(spark: SparkSession, jmsql_clean_url: str, server: Server) -> None:
    with pytest.raises(PySparkException, match="the task breaks"):
        failing(numbers(spark, 100), always=True).write.format("jmsql").option("queue", "orders").mode("append").save()
    assert messages(server) == []
    assert server.rows(PENDING) == [(0, 0)]


def test_write_with_an_id_is_done_once(spark: SparkSession, jmsql_clean_url: str, server: Server) -> None:
    for _ in range(2):
        write = numbers(spark, 10, 1).write.format("jmsql").options(queue="orders", writeId="import 2026-11-21")
        write.mode("append").save()
    assert messages(server) == [str(number) for number in range(10)]
    assert server.rows("select write_id, batch_id, messages from jmsql_internal.spark_write") == [
        ("import 2026-11-21", 0, 10)
    ]
    assert server.rows(PENDING) == [(0, 0)]


def test_batch_of_a_stream_that_comes_again_is_not_sent_again(
    spark: SparkSession, jmsql_clean_url: str, server: Server, tmp_path: Path
) -> None:
    def run() -> None:
        rows = spark.readStream.schema("text_body string").json(str(tmp_path / "in"))
        finish(rows.writeStream.format("jmsql").option("queue", "orders"), tmp_path)

    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"text_body": "{number}"}}\n')
        run()
    assert messages(server) == ["0", "1"]

    # As if the driver had died between sending the last batch and noting that it is done.
    (tmp_path / "query.checkpoint/commits/1").unlink()
    (tmp_path / "query.checkpoint/commits/.1.crc").unlink()
    run()
    assert messages(server) == ["0", "1"]
    assert server.rows("select batch_id, messages from jmsql_internal.spark_write order by batch_id") == [
        (0, 1),
        (1, 1),
    ]
    assert server.rows(PENDING) == [(0, 0)]


def test_query_with_a_new_checkpoint_needs_a_new_write_id_and_loses_nothing(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    orders = jmsql.Queue("orders")
    for number in range(2):
        for body in range(3):
            context.create_producer().send(orders, f"{number}{body}")
        context.commit()
        rows = stream(spark).select("text_body")
        if number:
            with pytest.raises(StreamingQueryException, match=r"the name 'etl' belongs to the query .* a new name"):
                forward_now(rows, tmp_path, f"query {number}", writeId="etl")
            assert messages(server, "copies") == ["00", "01", "02"]
        forward_now(rows, tmp_path, f"query {number}", writeId=f"etl {number}" if number else "etl")
    assert messages(server, "copies") == ["00", "01", "02", "10", "11", "12"]
    assert server.rows(PENDING) == [(0, 0)]


def test_rows_for_queues_and_topics_are_written_once_though_tasks_break(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    consumer = context.create_shared_durable_consumer(context.create_topic("prices"), "all", "color = 'blue'")
    rows = numbers(spark, 90, 3).where("cast(text_body as int) < 60")  # nothing in the last task
    rows = rows.selectExpr("text_body", "'topic://prices' as destination", "map('color', 'blue') as properties").union(
        rows.selectExpr("text_body", "'queue://orders'", "null")
    )
    for _ in range(2):
        write = failing(rows, always=False).write.format("jmsql").options(writeId="w")
        write.mode("append").save()
    wanted = sorted(str(number) for number in range(60))
    assert sorted(messages(server)) == wanted
    assert sorted(consumer.receive_body(str, timeout=60) or "" for _ in wanted) == wanted
    context.commit()

    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"text_body": "{number}"}}\n')
        read = spark.readStream.schema("text_body string").json(str(tmp_path / "in"))
        finish(read.writeStream.format("jmsql").options(queue="copies"), tmp_path)
    assert messages(server, "copies") == ["0", "1"]
    assert server.rows(PENDING) == [(0, 0)]


@pytest.mark.parametrize(
    ("columns", "options", "mode", "words"),
    [
        ("id as text_body", {"queue": "orders"}, "append", "'text_body' is written as string, not as bigint"),
        ("id as colour", {"queue": "orders"}, "append", "'colour' cannot be written"),
        ("'a' as text_body", {}, "append", "option 'queue', option 'topic', or a column 'destination'"),
        ("'a' as text_body", {"queue": "orders"}, "overwrite", "use mode"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_before_any_task_starts(
    spark: SparkSession, columns: str, options: dict[str, str], mode: str, words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        spark.range(1).selectExpr(columns).write.format("jmsql").options(**options).mode(mode).save()
