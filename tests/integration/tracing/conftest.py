"""Spans as the SDK of OpenTelemetry keeps them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from jmsql import Connection, ConnectionFactory, Queue, tracing


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.all]

    def one(self, name: str) -> ReadableSpan:
        [found] = self.named(name)
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def clear(self) -> None:
        self._exporter.clear()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Messages are traced meanwhile."""
    spans = Spans()
    tracing.instrument(spans.provider)
    yield spans
    tracing.uninstrument()


@pytest.fixture
def tracer(spans: Spans) -> Tracer:
    """The application's own."""
    return spans.provider.get_tracer("application")


@pytest.fixture
def queue() -> Queue:
    return Queue("orders")


@pytest.fixture
def connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection
