"""The spans of a worker: its handlers go on with the trace of the sender."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jmsql
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase

TRACING = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from jmsql import tracing

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(
    out=open("spans", "a", buffering=1), formatter=lambda span: span.to_json(indent=None) + "\\n")))
tracing.instrument(provider)
tracer = provider.get_tracer("application")


@app.listener("orders")
def ship(message, database):
    with tracer.start_as_current_span("ship"):
        store(database, message)


@app.listener("letters")
async def write(message, context, database):
    with tracer.start_as_current_span("write"):
        await asyncio.sleep(0)
        await context.create_producer().send(jmsql.Queue("sent letters"), "sent")
        await database.execute(insertion(message))


@app.listener("events", chunk=2, chunk_wait=60)
def store_all(messages: list[jmsql.Message], database: sqlalchemy.Connection):
    for message in messages:
        store(database, message)
"""


def spans(directory: Path) -> dict[str, dict[str, Any]]:
    return {span["name"]: span for span in map(json.loads, (directory / "spans").read_text().splitlines())}


def test_handlers_have_spans(
    start_worker: StartWorker, jmsql_factory: jmsql.ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(TRACING)
    worker.wait_until_ready()
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with jmsql_factory.create_context() as context:
        producer = context.create_producer(properties={"traceparent": given})
        producer.send(jmsql.Queue("orders"), "a book")
        producer.send(jmsql.Queue("letters"), "a letter")
    wait_for(lambda: len(database.handled()) == 2, PATIENCE)
    assert worker.stop() == 0
    found = spans(worker.directory)
    assert found.keys() == {"process orders", "ship", "process letters", "write", "send sent letters", "commit"}
    for name, parent in [
        ("ship", "process orders"),
        ("write", "process letters"),
        ("send sent letters", "write"),
    ]:
        assert found[name]["parent_id"] == found[parent]["context"]["span_id"]
    for span in found.values():
        assert span["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"
    for name in ("process orders", "process letters"):
        assert found[name]["parent_id"] == "0xb7ad6b7169203331"
        assert [link["context"]["span_id"] for link in found[name]["links"]] == ["0xb7ad6b7169203331"]


def test_the_span_of_a_chunk_has_a_link_with_each_send(
    start_worker: StartWorker, jmsql_factory: jmsql.ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(TRACING)
    worker.wait_until_ready()
    parents = ["b7ad6b7169203331", "c7ad6b7169203331"]
    with jmsql_factory.create_context() as context:
        for parent in parents:
            given = f"00-0af7651916cd43dd8448eb211c80319c-{parent}-01"
            context.create_producer(properties={"traceparent": given}).send(jmsql.Queue("events"), parent)
    wait_for(lambda: len(database.handled()) == 2, PATIENCE)
    assert worker.stop() == 0
    span = spans(worker.directory)["process events"]
    assert span["parent_id"] is None
    assert [link["context"]["span_id"] for link in span["links"]] == [f"0x{parent}" for parent in parents]
    assert span["attributes"]["messaging.batch.message_count"] == 2
