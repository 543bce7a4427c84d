"""Rows for queues become messages in the transaction of the task, as a client would have sent them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import jmsql
from jmsql.spark.writing.copying import QueueCopy
from jmsql.spark.writing.outgoing import Staging
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.store.lookup import queue_id
from tests.integration.client.server import Server, with_parameters

SCHEMA = pa.schema(
    {
        "destination": pa.string(),
        "text_body": pa.string(),
        "json_body": pa.string(),
        "bytes_body": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "priority": pa.int32(),
        "correlation_id": pa.string(),
        "delivery_time": pa.timestamp("us", "UTC"),
    }
)
TOMORROW = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def task(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """The connection of a task, in its transaction."""
    with psycopg.connect(jmsql_clean_url) as connection:
        yield connection


@pytest.fixture
def server(jmsql_clean_url: str) -> Iterator[Server]:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield Server(connection)


def copy(task: psycopg.Connection, url: str, *batches: Sequence[dict[str, Any]]) -> list[str]:
    """Copy batches; return the text bodies of what remains to be staged."""
    made: list[str] = []

    def make_queues(names: Sequence[str]) -> None:
        with psycopg.connect(url) as connection:
            for name in names:
                made.append(name)
                PsycopgRunner(connection, "jmsql").run(queue_id(name))

    staging = Staging(1, None)
    queues = QueueCopy(task, "jmsql", make_queues)
    given = [[{"destination": "queue://orders", **row} for row in rows] for rows in batches]
    rest = [queues.copy(staging.stage(pa.RecordBatch.from_pylist(rows, SCHEMA))) for rows in given]
    assert len(made) == len(set(made))
    return [body for batch in rest for body in batch.column("text_body").to_pylist()]


def test_messages_are_those_that_a_client_would_have_sent(
    task: psycopg.Connection, jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> None:
    before = server.rows("select jmsql_internal.current_milliseconds()")[0][0]
    first = {"text_body": "two kites \u00e9\0", "properties": [("color", "blue")], "correlation_id": "c\0"}
    rest = copy(task, jmsql_clean_url, [first, {"json_body": '{"a": 5000000000}'}], [{"bytes_body": b"\0\1"}, {}])
    assert rest == []
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]
    task.commit()
    after = server.rows("select jmsql_internal.current_milliseconds()")[0][0]
    with jmsql_factory.create_context() as context:
        consumer = context.create_consumer(context.create_queue("orders"))
        text, mapped, binary, plain = (consumer.receive(timeout=10) for _ in range(4))
    assert isinstance(text, jmsql.TextMessage)
    assert (text.text, text.jms_correlation_id) == ("two kites \u00e9\0", "c\0")
    assert text.get_string_property("color") == "blue"
    assert before <= text.jms_timestamp <= after
    assert str(text.jms_message_id).startswith("ID:")
    assert (text.jms_priority, text.jms_delivery_mode) == (4, jmsql.DeliveryMode.PERSISTENT)
    assert isinstance(mapped, jmsql.MapMessage)
    assert mapped.get_long("a") == 5_000_000_000
    assert isinstance(binary, jmsql.BytesMessage)
    assert binary.get_body(bytes) == b"\0\1"
    assert type(plain) is jmsql.Message


def test_rows_go_to_their_queues_in_their_order_by_priority(
    task: psycopg.Connection, jmsql_clean_url: str, server: Server
) -> None:
    rows = [
        {"destination": f"queue://{name}", "text_body": f"{name}{number}", "priority": 9 if number == 3 else 4}
        for number in range(4)
        for name in ("orders", "parcels")
    ]
    assert copy(task, jmsql_clean_url, rows[:3], rows[3:]) == []
    task.commit()
    ordered = "select body from jmsql.messages where queue = %s order by priority desc, sequence"
    for name in ("orders", "parcels"):
        assert [body for (body,) in server.rows(ordered, name)] == [f"{name}{number}" for number in (3, 0, 1, 2)]


def test_groups_are_noted(task: psycopg.Connection, jmsql_clean_url: str, server: Server) -> None:
    copy(task, jmsql_clean_url, [{"text_body": "a", "properties": [("JMSXGroupID", "g")]}])
    task.commit()
    assert server.rows("select count(*) from jmsql_internal.grouped_queue") == [(1,)]


def test_what_goes_to_topics_or_later_remains(task: psycopg.Connection, jmsql_clean_url: str, server: Server) -> None:
    rows: list[dict[str, Any]] = [
        {"text_body": "now"},
        {"text_body": "later", "delivery_time": TOMORROW},
        {"destination": "topic://prices", "text_body": "price"},
    ]
    assert copy(task, jmsql_clean_url, rows, rows[1:], rows[2:]) == ["later", "price", "later", "price", "price"]
    task.commit()
    assert server.rows("select body from jmsql.messages") == [("now",)]


def test_all_remains_where_row_security_is_active_for_the_role(
    jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory, server: Server
) -> None:
    with jmsql.admin.Administration(jmsql_factory) as administration:
        orders = administration.create_queue("orders")
        server.rows("create role row_writer")
        try:
            administration.grant(orders, "row_writer", send=True)
            with psycopg.connect(with_parameters(jmsql_clean_url, options="-crole=row_writer")) as task:
                assert copy(task, jmsql_clean_url, [{"text_body": "a"}]) == ["a"]
        finally:
            administration.revoke(orders, "row_writer", send=True)
            server.rows("drop owned by row_writer")
            server.rows("drop role row_writer")
