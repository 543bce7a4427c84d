"""Messages that no client can read, and texts that UTF-8 does not have: they end no read, stream or archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

import jmsql
from jmsql.spark import archive
from jmsql.spark.columns.expressions import COLUMNS
from jmsql.spark.options import Options, PropertyFormat
from jmsql.spark.reading.batch_reader import BatchReader, HistoryReader
from jmsql.spark.streaming.history_stream_reader import HistoryStreamReader
from jmsql.spark.streaming.queue_stream_reader import StreamReader
from tests.integration.client.server import Server
from tests.integration.spark.test_batch_reader import KINDS
from tests.unit.spark.test_arrow import PROPERTIES
from tests.unreadable_messages import UNREADABLE, store_unreadable

ORDERS = jmsql.Queue("orders")
LONE = "x\ud800y"
COUNT = len(UNREADABLE) + 1


@pytest.fixture(autouse=True)
def unreadable(
    jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory, server: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A queue of such messages, which keeps history."""
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    with jmsql.admin.Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
    with jmsql_factory.create_context() as context:
        message = context.create_map_message()
        message.set_string(LONE, LONE)
        message.set_string_property("color", LONE)
        message.set_byte_property("size", 1)
        message.jms_correlation_id = message.jms_type = LONE
        context.create_producer().send(ORDERS, message)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        store_unreadable(connection, "orders")
    yield
    server.terminate("jmsql-spark-keeping-a-snapshot")


def schema(properties: PropertyFormat) -> StructType:
    """All columns of a read, with a body that is parsed."""
    fields = [StructField(name, KINDS[kind]) for name, kind in COLUMNS.items()]
    if properties is PropertyFormat.map:
        fields = [field for field in fields if field.name not in {"properties", "property_types"}]
        fields += PROPERTIES.fields
    return StructType([*fields, StructField("body", StructType([StructField("a", StringType())]))])


def read_batch(reader: BatchReader) -> list[dict[str, Any]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def read_stream(reader: StreamReader | HistoryStreamReader) -> list[dict[str, Any]]:
    try:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = reader.partitions(start, end)
        found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        reader.commit(end)
    finally:
        reader.stop()
    return found


def assert_all_there(rows: list[dict[str, Any]], properties: PropertyFormat) -> None:
    assert len(rows) == COUNT
    [lone] = [row for row in rows if row["correlation_id"] is not None]
    assert (lone["correlation_id"], lone["jms_type"], lone["json_body"]) == ("x?y", "x?y", '{"x?y": "x?y"}')
    if properties is PropertyFormat.json:
        assert lone["properties"] == '{"size": 1, "color": "x?y"}'
        return
    maps = [dict(row["properties"]) for row in rows]
    assert {name: value["string"] or value["long"] for name, value in maps[rows.index(lone)].items()} == {
        "color": "x?y",
        "size": 1,
    }
    texts = {name: value["string"] for each in maps for name, value in each.items() if value["type"] == "json"}
    assert texts.keys() == {"", "huge", "large"}
    assert texts["large"] == "9223372036854775808"


@pytest.mark.parametrize("properties", PropertyFormat)
def test_messages_that_cannot_be_read_end_nothing(
    jmsql_factory: jmsql.ConnectionFactory, properties: PropertyFormat, tmp_path: Path
) -> None:
    queue = {"queue": "orders", "properties": properties.value, "bodySchema": "a STRING"}
    history = {**queue, "history": "true"}
    assert_all_there(read_batch(BatchReader(Options.read(queue), schema(properties))), properties)
    archive(str(tmp_path), properties=properties, live=True)
    assert_all_there(pyarrow.parquet.read_table(tmp_path / "_live").to_pylist(), properties)
    assert_all_there(read_stream(StreamReader(Options.read(queue), schema(properties))), properties)
    # They have left the queue.
    assert_all_there(read_batch(HistoryReader(Options.read(history), schema(properties))), properties)
    assert_all_there(read_stream(HistoryStreamReader(Options.read(history), schema(properties))), properties)
    assert archive(str(tmp_path), properties=properties).messages == COUNT
