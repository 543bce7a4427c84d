from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import jmsql
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.spark.streaming import archived, break_down, run_now, stream

pytestmark = pytest.mark.timeout(400)


def send(context: jmsql.JMSContext, *bodies: str, queue: str = "orders") -> None:
    for body in bodies:
        context.create_producer().send(context.create_queue(queue), body)
    context.commit()


def names(*numbers: int) -> list[str]:
    return sorted(f"{number:04}" for number in numbers)


def state(server: Server) -> tuple[int, int, int]:
    """How many messages, claims and unfinished batches there are."""
    counts = "select (select count(*) from jmsql_internal.message), (select count(*) from jmsql_internal.delivery where claim_id is not null), (select count(*) from jmsql_internal.spark_batch)"  # noqa: E501
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


def test_batch_that_was_not_finished_comes_again_unchanged(
    spark: SparkSession, context: jmsql.JMSContext, server: Server, tmp_path: Path
) -> None:
    send(context, *names(0, 1, 2))
    rows = stream(spark, columns="text_body")
    break_down(rows, tmp_path)
    wait_for(lambda: server.connections("jmsql-spark-streaming") == 0)

    # What was frozen stays with the stream, whichever client asks for it meanwhile.
    server.rows("delete from jmsql_internal.connection")
    assert context.create_consumer(jmsql.Queue("orders")).receive(1.5) is None
    send(context, *names(3))

    run_now(rows, tmp_path)
    assert archived(tmp_path, column="batch::text") == ["0", "0", "0", "1"]
    assert archived(tmp_path) == names(0, 1, 2, 3)
    assert state(server) == (0, 0, 0)


def test_new_history_is_streamed_exactly_once(
    spark: SparkSession,
    context: jmsql.JMSContext,
    server: Server,
    tmp_path: Path,
    jmsql_factory: jmsql.ConnectionFactory,
) -> None:
    with jmsql.admin.Administration(jmsql_factory) as administration:
        for name in ("orders", "returns"):
            administration.create_queue(name, history=True)

    def pass_through(*numbers: int) -> None:
        for number in numbers:
            name = "orders" if number % 2 else "returns"
            send(context, *names(number), queue=name)
            assert context.create_consumer(jmsql.Queue(name)).receive(60) is not None
            context.commit()

    rows = (
        spark.readStream.format("jmsql")
        .options(history="true", maxMessagesPerTrigger="8", partitions="2", columns="destination,text_body,outcome")
        .load()
    )
    run_now(rows, tmp_path)  # before anything has left
    pass_through(*range(20))
    run_now(rows, tmp_path)
    assert archived(tmp_path) == names(*range(20))
    assert sorted(set(archived(tmp_path, column="batch::text"))) == ["1", "2", "3"]

    pass_through(20, 21)
    run_now(rows, tmp_path)
    assert archived(tmp_path) == names(*range(22))
    assert set(archived(tmp_path, column="destination || outcome")) == {
        "queue://ordersacknowledged",
        "queue://returnsacknowledged",
    }
    assert server.rows("select count(*) from jmsql.history") == [(22,)]
    assert server.rows("select history, epoch > 0 from jmsql.spark_sources") == [(True, True)]
