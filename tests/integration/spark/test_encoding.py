"""Texts come as they were sent, whatever encoding the clients of a role have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import jmsql
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BatchReader, HistoryReader
from tests.integration.client.server import Server, with_parameters

SCHEMA = StructType([StructField("text_body", StringType()), StructField("jms_type", StringType())])


@pytest.fixture
def queue(jmsql_factory: jmsql.ConnectionFactory, server: Server) -> Iterator[str]:
    """A queue with history, with a message in either of them."""
    server.rows("select jmsql.create_queue('orders', '{\"history\": true}')")
    with jmsql_factory.create_context() as context:
        for _ in range(2):
            message = context.create_text_message("two kites to Köln")
            message.jms_type = "größer"
            context.create_producer().send(context.create_queue("orders"), message)
        assert context.create_consumer(context.create_queue("orders")).receive(60) is not None
    yield "orders"
    server.terminate("jmsql-spark-keeping-a-snapshot")


@pytest.mark.parametrize("place", ["URL", "options", "environment"])
@pytest.mark.parametrize("reader", [BatchReader, HistoryReader])
def test_texts_and_selectors_are_utf8(
    reader: type[BatchReader], place: str, queue: str, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {
        "URL": {"client_encoding": "LATIN1"},
        "options": {"options": "-cclient_encoding=LATIN1"},
        "environment": {},
    }
    monkeypatch.setenv("JMSQL_URL", with_parameters(jmsql_clean_url, **parameters[place]))
    if place == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    history = str(reader is HistoryReader)
    options = Options.read({"queue": queue, "history": history, "selector": "JMSType = 'größer'"})
    reading = reader(options, SCHEMA)
    [partition] = reading.partitions()
    rows = [row for batch in reading.read(partition) for row in batch.to_pylist()]
    assert rows == [{"text_body": "two kites to Köln", "jms_type": "größer"}]
