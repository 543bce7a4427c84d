from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import jmsql
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.spark.streaming import archived, break_down, run_now, stream


def send(context: jmsql.JMSContext, *bodies: str, queue: str = "orders") -> None:
    for body in bodies:
        context.create_producer().send(context.create_queue(queue), body)
    context.commit()


def names(*numbers: int) -> list[str]:
    return sorted(f"{number:04}" for number in numbers)


def state(server: Server) -> tuple[int, int, int]:
    """How many messages, claims and unfinished batches there are."""
    counts = "select (select count(*) from jmsql.message), (select count(*) from jmsql.delivery where claim_id is not null), (select count(*) from jmsql.spark_batch)"  # noqa: E501
    return server.rows(counts)[0]


def test_stream_takes_each_message_once_and_leaves_none(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(*range(50)))
    rows = stream(spark, maxMessagesPerTrigger="20", partitions="2", columns="text_body")
    run_now(rows, tmp_path)
    assert archived(tmp_path) == names(*range(50))
    assert state(server) == (0, 0, 0)

    send(context, *names(*range(50, 60)))
    run_now(rows, tmp_path)
    assert archived(tmp_path) == names(*range(60))
    assert sorted(set(archived(tmp_path, column="batch::text"))) == ["0", "1", "2", "3"]
    assert state(server) == (0, 0, 0)


def test_selector_and_other_consumers_share_the_queue_with_the_stream(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    queue = context.create_queue("orders")
    for number in range(10):
        message = context.create_text_message(f"{number:04}")
        message.properties["even"] = number % 2 == 0
        context.create_producer().send(queue, message)
    context.commit()
    assert context.create_consumer(queue, "even").receive_body(str, timeout=10) == "0000"  # not committed yet

    run_now(stream(spark, selector="even", columns="text_body"), tmp_path)
    assert archived(tmp_path) == names(2, 4, 6, 8)
    context.rollback()

    run_now(stream(spark, selector="even", columns="text_body,delivery_count"), tmp_path)
    assert archived(tmp_path) == names(0, 2, 4, 6, 8)
    assert archived(tmp_path, column="delivery_count::text")[-1] == "1"
    assert state(server)[0] == 5


def test_batch_that_was_not_finished_comes_again_unchanged(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(0, 1, 2))
    rows = stream(spark, columns="text_body")
    break_down(rows, tmp_path / "query.checkpoint")
    wait_for(lambda: server.connections("jmsql-spark-streaming") == 0)

    # What was frozen stays with the stream, whoever asks for it meanwhile.
    server.rows("delete from jmsql.connection")
    assert context.create_consumer(jmsql.Queue("orders")).receive(1.5) is None
    send(context, *names(3))

    run_now(rows, tmp_path)
    assert archived(tmp_path, column="batch::text") == ["0", "0", "0", "1"]
    assert archived(tmp_path) == names(0, 1, 2, 3)
    assert state(server) == (0, 0, 0)


def test_shared_durable_subscription_is_streamed(
    spark: SparkSession, context: jmsql.JMSContext, tmp_path: Path
) -> None:
    prices = context.create_topic("prices")
    context.create_shared_durable_consumer(prices, "audit").close()
    context.create_producer().send(prices, "0001")
    context.commit()
    read = spark.readStream.format("jmsql").options(topic="prices", subscription="audit", columns="text_body").load()
    run_now(read, tmp_path)
    assert archived(tmp_path) == names(1)


def test_history_is_kept_of_what_is_streamed(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(0, 1))
    server.rows("update jmsql.queue set history = true")
    run_now(stream(spark, columns="text_body"), tmp_path)
    assert server.rows("select body, outcome, delivery_count from jmsql.history order by 1") == [
        ("0000", "acknowledged", 1),
        ("0001", "acknowledged", 1),
    ]


@pytest.mark.parametrize("bound", ["latest", "id", "timestamp"])
def test_new_stream_starts_where_it_is_told(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path, bound: str
) -> None:
    send(context, *names(0))
    if bound == "latest":
        rows = stream(spark, startingOffsets="latest", columns="text_body")
        run_now(rows, tmp_path)  # the start is where the stream first runs
        send(context, *names(1))
    else:
        server.rows("update jmsql.message set jms_timestamp = jms_timestamp - 60000")
        send(context, *names(1))
        column = "message_id" if bound == "id" else "sent_at::text"
        ((where,),) = server.rows(f"select {column} from jmsql.messages where body = '0001'")
        rows = stream(spark, startingOffsets=where, columns="text_body")
    run_now(rows, tmp_path)
    assert archived(tmp_path) == names(1)
    assert state(server)[0] == 1


def test_progress_tells_the_backlog(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(*range(10)))
    server.rows("update jmsql.message set jms_timestamp = jms_timestamp - 60000")
    rows = stream(spark, maxBytesPerTrigger="1", columns="text_body")
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    started = query.start()
    wait_for(lambda: not started.isActive, timeout=300)
    assert started.exception() is None
    first = json.loads(started.recentProgress[0].json)["sources"][0]
    backlog = first["latestOffset"]
    if isinstance(backlog, str):
        backlog = json.loads(backlog)
    assert backlog["backlogMessages"] == 0
    assert backlog["lagSeconds"] == 0
    assert sum(progress.numInputRows for progress in started.recentProgress) == 10


def test_forgotten_stream_gives_back_what_it_held(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(0))
    break_down(stream(spark, columns="text_body"), tmp_path)
    ((source, queue, claimed),) = server.rows("select source_id, queue, claimed from jmsql.spark_sources")
    assert (queue, claimed) == ("orders", 1)

    assert server.rows("select jmsql.forget_spark_source(%s)", source) == [(1,)]
    assert context.create_consumer(jmsql.Queue("orders")).receive_body(str, timeout=10) == "0000"
    assert server.rows("select count(*) from jmsql.spark_sources") == [(0,)]


def test_messages_that_vanish_fail_the_stream_unless_that_is_allowed(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(0, 1))
    break_down(stream(spark, columns="text_body"), tmp_path / "query.checkpoint")
    server.rows("delete from jmsql.delivery where sequence = (select min(sequence) from jmsql.delivery)")

    with pytest.raises(StreamingQueryException, match=r"1 messages of batch 1 are gone.*failOnDataLoss"):
        run_now(stream(spark, columns="text_body"), tmp_path)
    run_now(stream(spark, columns="text_body", failOnDataLoss="false"), tmp_path)
    assert archived(tmp_path)[-1] == "0001"


def test_subscription_that_is_not_shared_is_refused(
    spark: SparkSession, context: jmsql.JMSContext, tmp_path: Path
) -> None:
    context.client_id = "audit"
    context.create_durable_consumer(context.create_topic("prices"), "own").close()
    context.commit()
    options = {"topic": "prices", "subscription": "own", "clientId": "audit"}
    read = spark.readStream.format("jmsql").options(**options).load()
    with pytest.raises(StreamingQueryException, match="Option 'subscription': 'own' is not both shared and durable"):
        run_now(read, tmp_path)
