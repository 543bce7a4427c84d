"""Conditions of a query that PostgreSQL checks: the rows that it sends are those that fulfil them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, GreaterThan, In, IsNull, LessThan, Not
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import jmsql
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import FilteringBatchReader, FilteringHistoryReader
from tests.integration.client.server import Server

SCHEMA = StructType([StructField("text_body", StringType()), StructField("priority", IntegerType())])


@pytest.fixture(autouse=True)
def messages(
    jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory, server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A queue and a history with the same three messages."""
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    with jmsql.admin.Administration(jmsql_clean_url) as administration:
        administration.create_queue("past", history=True)
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for name in ("orders", "past"):
            queue = context.create_queue(name)
            for body, priority, jms_type in (("a\0", 4, None), ("b", 7, "offer"), ("c", 9, "order")):
                producer = context.create_producer(priority=priority)
                message = context.create_text_message(body)
                message.jms_type = jms_type
                producer.send(queue, message)
        context.create_producer(delivery_delay=3600).send(context.create_queue("orders"), "later")
        context.commit()
        consumer = context.create_consumer(jmsql.Queue("past"))
        assert len([consumer.receive(10) for _ in range(3)]) == 3
        context.commit()
    yield
    server.terminate("jmsql-spark-keeping-a-snapshot")


def read(reader: FilteringBatchReader | FilteringHistoryReader, *conditions: Filter) -> list[str]:
    assert list(reader.pushFilters(conditions)) == list(conditions)  # Spark checks them again
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return sorted(row["text_body"] for batch in batches for row in batch.to_pylist())


CONDITIONS: list[tuple[list[Filter], list[str]]] = [
    ([EqualTo(("text_body",), "a\0")], ["a\0"]),
    ([GreaterThan(("priority",), 4)], ["b", "c"]),
    ([GreaterThan(("priority",), 4), EqualTo(("jms_type",), "order")], ["c"]),
    ([In(("jms_type",), ("offer", "order"))], ["b", "c"]),
    ([Not(In(("jms_type",), ("offer",)))], ["c"]),  # and no null
    ([EqualNullSafe(("type",), "TextMessage"), Not(IsNull(("jms_type",)))], ["b", "c"]),
    ([Not(EqualTo(("delivery_mode",), "PERSISTENT"))], []),
    ([LessThan(("sent_at",), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))], []),
]


def test_rows_of_a_queue() -> None:
    options = Options.read({"queue": "orders"})
    found = [read(FilteringBatchReader(options, SCHEMA), *conditions) for conditions, _ in CONDITIONS]
    assert found == [bodies for _, bodies in CONDITIONS]


def test_rows_of_the_history() -> None:
    options = Options.read({"queue": "past", "history": "true"})
    found = [read(FilteringHistoryReader(options, SCHEMA), *conditions) for conditions, _ in CONDITIONS]
    assert found == [bodies for _, bodies in CONDITIONS]


def test_messages_that_are_delivered_later_are_filtered_too() -> None:
    options = Options.read({"queue": "orders", "partitions": "2"})
    assert read(FilteringBatchReader(options, SCHEMA), EqualTo(("text_body",), "later")) == ["later"]
