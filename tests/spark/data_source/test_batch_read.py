from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Iterator
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

import jmsql
from tests.integration.client.server import Server

pytestmark = pytest.mark.timeout(400)


def property_row(kind: str, **value: object) -> Row:
    return Row(**{"type": kind, "boolean": None, "long": None, "double": None, "string": None, **value})


def test_each_kind_of_message_is_read_with_its_headers_properties_and_body(
    spark: SparkSession, context: jmsql.JMSContext
) -> None:
    queue = context.create_queue("orders")
    producer = context.create_producer()
    text = context.create_text_message("a NUL: \0")
    text.jms_correlation_id, text.jms_type, text.jms_reply_to = "c-1", "greeting", jmsql.Queue("replies")
    text.set_byte_property("byte", 1)
    text.set_long_property("long", 2)
    text.set_float_property("float", 0.5)
    text.properties.update({"int": 3, "double": 1.0, "infinite": float("inf"), "yes": True, "name": "kite", "no": None})
    before = dt.datetime.fromtimestamp(int(time.time()))  # noqa: DTZ006 - as Spark shows it
    urgent = context.create_producer(priority=7, time_to_live=3600, delivery_mode=jmsql.DeliveryMode.NON_PERSISTENT)
    urgent.send(queue, text)
    map_message = context.create_map_message()
    map_message.set_short("n", 5)
    producer.send(queue, map_message)
    producer.send(queue, b"\x00\x01")
    context.create_producer(delivery_delay=3600).send(queue, "later")
    context.commit()

    read = spark.read.format("jmsql").option("queue", "orders").option("properties", "map").load()
    first, second, third, delayed = sorted(read.collect(), key=lambda row: row.sequence)

    assert (first.destination, first.type, first.priority) == ("queue://orders", "TextMessage", 7)
    assert first.message_id == text.jms_message_id
    assert (first.correlation_id, first.jms_type, first.reply_to) == ("c-1", "greeting", "queue://replies")
    assert first.delivery_mode == "NON_PERSISTENT"
    assert before <= first.sent_at <= before + dt.timedelta(seconds=60)
    assert first.expires_at - first.sent_at == dt.timedelta(hours=1)
    assert first.text_body == "a NUL: \0"
    assert (first.json_body, first.bytes_body, first.delivery_time) == (None, None, None)
    assert first.properties == {
        "byte": property_row("byte", long=1),
        "long": property_row("long", long=2),
        "float": property_row("float", double=0.5),
        "int": property_row("int", long=3),
        "double": property_row("double", double=1.0),
        "infinite": property_row("double", double=float("inf")),
        "yes": property_row("boolean", boolean=True),
        "name": property_row("string", string="kite"),
        "no": property_row("null"),
    }
    assert (second.type, second.json_body, second.body_types) == ("MapMessage", '{"n": 5}', '{"n": "short"}')
    assert (third.type, third.bytes_body, third.properties) == ("BytesMessage", b"\x00\x01", {})
    assert (delayed.text_body, delayed.delivery_count) == ("later", 0)
    assert delayed.delivery_time - delayed.sent_at == dt.timedelta(hours=1)


def test_selector_columns_and_body_schema_limit_the_read_and_nothing_is_consumed(
    spark: SparkSession, context: jmsql.JMSContext, server: Server
) -> None:
    queue = context.create_queue("orders")
    bodies = ['{"n": 1, "price": "9.50", "more": [1]}', "no JSON", '{"n": "one"}', '{"n":\n 4}', "[5]", "{} {}"]
    for number, body in enumerate(bodies):
        message = context.create_text_message(body)
        message.properties["number"] = number
        context.create_producer().send(queue, message)
    item = context.create_map_message()
    item["n"], item["price"] = 6, "1"
    item.properties["number"] = 6
    context.create_producer().send(queue, item)
    context.create_producer().send(queue, "without the property")
    context.commit()

    read = (
        spark.read.format("jmsql")
        .options(queue="orders", selector="number >= 0", columns="sequence, body")
        .option("bodySchema", "n INT, price DECIMAL(10,2)")
        .load()
    )
    rows = sorted(read.collect(), key=lambda row: row.sequence)

    assert read.columns == ["sequence", "body"]
    assert [row.body and (row.body.n, row.body.price) for row in rows] == [
        (1, Decimal("9.50")),
        None,
        None,
        (4, None),
        None,
        None,
        (6, Decimal("1.00")),
    ]
    assert server.rows("select count(*) from jmsql.messages where state = 'ready'") == [(8,)]


def test_all_partitions_read_the_moment_of_planning(
    spark: SparkSession, context: jmsql.JMSContext, server: Server
) -> None:
    queue = context.create_queue("orders")
    for number in range(300):
        context.create_producer(priority=number % 10).send(queue, str(number))
    context.commit()
    read = (spark.read.format("jmsql").options(queue="orders", partitions="3", columns="text_body")).load()

    assert read.rdd.getNumPartitions() == 3
    server.rows("delete from jmsql_internal.message")
    context.create_producer().send(queue, "too late")
    context.commit()

    assert sorted(int(row.text_body) for row in read.collect()) == list(range(300))

    assert server.terminate("jmsql-spark-keeping-a-snapshot") == 1
    assert [row.text_body for row in read.collect()] == ["too late"]


def test_repeated_task_sees_the_moment_of_its_first_attempt(
    spark: SparkSession, context: jmsql.JMSContext, server: Server
) -> None:
    for number in range(3):
        context.create_producer().send(context.create_queue("orders"), str(number))
    context.commit()
    read = spark.read.format("jmsql").options(queue="orders", columns="text_body").load()

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            with psycopg.connect(os.environ["JMSQL_URL"]) as connection:
                connection.execute("delete from jmsql_internal.message")
            raise RuntimeError("the first attempt")
        yield from found

    assert {row.text_body for row in read.mapInArrow(fail_once, read.schema).collect()} == {"0", "1", "2"}
    assert server.rows("select from jmsql_internal.message") == []
    assert server.terminate("jmsql-spark-keeping-a-snapshot") == 1
    assert read.collect() == []


def test_subscription_is_read(spark: SparkSession, context: jmsql.JMSContext) -> None:
    prices = context.create_topic("prices")
    context.create_shared_durable_consumer(prices, "audit", "currency = 'EUR'").close()
    for currency in ("EUR", "USD"):
        message = context.create_text_message("1")
        message.properties["currency"] = currency
        context.create_producer().send(prices, message)
    context.commit()

    read = spark.read.format("jmsql").options(topic="prices", subscription="audit")

    rows = read.option("columns", "destination,properties").load().collect()
    assert [(row.destination, row.properties) for row in rows] == [("topic://prices", '{"currency": "EUR"}')]


def test_empty_queue_is_read(spark: SparkSession, context: jmsql.JMSContext) -> None:
    context.create_consumer(context.create_queue("orders")).close()
    context.commit()
    assert spark.read.format("jmsql").options(queue="orders", partitions="4").load().collect() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "orders", "selector": "color = "}, "Option 'selector'"),
        ({"queue": "orders", "selectr": "color = 'blue'"}, "did you mean 'selector'"),
        ({"topic": "prices"}, "Option 'topic' needs option 'subscription'"),
        ({"queue": "orders", "url": "postgresql://shop:hidden@db/shop"}, "Option 'url' holds a password"),
    ],
)
def test_wrong_options_fail_when_the_source_is_loaded(spark: SparkSession, options: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisException, match=words) as raised:
        spark.read.format("jmsql").options(**options).load()
    assert "hidden" not in str(raised.value)


def test_missing_queue_is_named_before_any_task_starts(spark: SparkSession, jmsql_clean_url: str) -> None:
    read = spark.read.format("jmsql").option("queue", "nowhere").load()
    with pytest.raises(AnalysisException, match="Option 'queue': there is no queue 'nowhere'"):
        read.collect()


def test_history_is_read_as_it_was_recorded(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql.admin.Administration(jmsql_factory) as administration:
        orders = administration.create_queue("orders", history=True)
    for number in range(20):
        message = context.create_text_message(f'{{"n": {number}}}')
        message.set_short_property("weight", number)
        context.create_producer().send(orders, message)
    context.commit()
    consumer = context.create_consumer(orders)
    for _ in range(20):
        assert consumer.receive(60) is not None
    context.commit()

    read = spark.read.format("jmsql").options(history="true", queue="orders", partitions="2")
    rows = sorted(read.option("bodySchema", "n INT").load().collect(), key=lambda row: row.sequence)

    assert [(row.body.n, row.properties, row.property_types) for row in rows] == [
        (number, f'{{"weight": {number}}}', '{"weight": "short"}') for number in range(20)
    ]
    known = "select outcome, delivery_count, consumed_by, user_name, transaction_id::text::bigint, sequence from jmsql.history order by sequence"  # noqa: E501
    assert [
        (row.outcome, row.delivery_count, row.connection_id, row.user_name, row.transaction_id, row.sequence)
        for row in rows
    ] == server.rows(known)
    assert {row.destination for row in rows} == {"queue://orders"}

    ((ended,),) = server.rows("select min(acknowledged_at) from jmsql.history")
    at = read.option("columns", "sequence").option("startingOffsets", ended.isoformat())
    assert at.load().count() == 20
    assert at.option("endingOffsets", ended.isoformat()).load().count() == 0
    assert server.terminate("jmsql-spark-keeping-a-snapshot") >= 1
    with pytest.raises(AnalysisException, match="Option 'endingOffsets'"):
        at.option("endingOffsets", "tomorrow").load()


@pytest.mark.parametrize("enabled", ["false", "true"])
def test_conditions_hold_for_one_query_alone(spark: SparkSession, context: jmsql.JMSContext, enabled: str) -> None:
    for priority in range(10):
        context.create_producer(priority=priority).send(context.create_queue("orders"), b"")
    context.commit()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
    try:
        rows = spark.read.format("jmsql").options(queue="orders", columns="priority").load()
        urgent, other = rows.where("priority > 7"), rows.where("priority <= 7")
        assert urgent.count() == 2
        assert rows.count() == 10
        assert urgent.union(other).count() == 10
        assert rows.join(urgent, "priority", "left_anti").count() == 8
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
