"""Spans follow a message from its sender to the client that acknowledges it, as OpenTelemetry's conventions say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from opentelemetry import baggage, context, propagate
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Message,
    Queue,
    Topic,
    enlist,
    tracing,
)
from jmsql.testing import receive_all, wait_for
from jmsql.worker import Application
from tests.integration.tracing.conftest import Spans, attributes, links, number, trace_of
from tests.texts import receive


def test_a_send_and_a_receive(connection: Connection, queue: Queue, spans: Spans, tracer: Tracer) -> None:
    session = connection.create_session()
    message = session.create_text_message("hello")
    message.jms_correlation_id = "c1"
    with tracer.start_as_current_span("request") as request:
        session.create_producer(queue).send(message)
    received = session.create_consumer(queue).receive(0)

    assert received is not None
    send = spans.one("send orders")
    assert send.kind is SpanKind.PRODUCER
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    expected = {
        "messaging.system": "jmsql",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": message.jms_message_id,
        "messaging.message.conversation_id": "c1",
    }
    assert expected.items() <= attributes(send).items()
    receive = spans.one("receive orders")
    assert receive.kind is SpanKind.CLIENT
    assert attributes(receive)["messaging.operation.type"] == "receive"
    assert attributes(receive)["messaging.message.id"] == message.jms_message_id
    assert attributes(receive)["messaging.jmsql.message.delivery_count"] == 1
    assert links(receive) == [number(send)]


def test_the_context_travels_in_properties_that_selectors_and_other_programs_can_read(
    connection: Connection, queue: Queue, spans: Spans
) -> None:
    session = connection.create_session()
    message = session.create_text_message("hello")
    message.properties["color"] = "blue"
    producer = session.create_producer(queue)
    producer.send(message)
    assert list(message.properties) == ["color"], "the sender's own message stays as it is"

    consumer = session.create_consumer(queue, selector="traceparent IS NOT NULL AND color = 'blue'")
    received = consumer.receive(0)
    assert received is not None
    version, trace_id, _, _ = received.get_string_property("traceparent").split("-")  # type: ignore[union-attr]
    assert (version, trace_id) == ("00", format_trace_id(trace_of(spans.one("send orders"))))


def test_a_context_that_the_message_has_already_is_kept(connection: Connection, queue: Queue, spans: Spans) -> None:
    session = connection.create_session()
    message = session.create_message()
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message.set_string_property("traceparent", given)
    session.create_producer(queue).send(message)
    received = session.create_consumer(queue).receive(0)
    assert received is not None
    assert received.get_string_property("traceparent") == given
    send = spans.one("send orders")
    assert send.kind is SpanKind.CLIENT
    assert links(send) == links(spans.one("receive orders")) == [0xB7AD6B7169203331]


def test_nothing_received_makes_no_span(connection: Connection, queue: Queue, spans: Spans) -> None:
    assert connection.create_session().create_consumer(queue).receive_no_wait() is None
    assert spans.all == []


def test_a_send_that_fails(connection: Connection, spans: Spans) -> None:
    session = connection.create_session()
    temporary = session.create_temporary_queue()
    producer = session.create_producer(temporary)
    temporary.delete()
    with pytest.raises(InvalidDestinationException):
        producer.send(session.create_message())
    send = spans.one("send")
    assert send.status.status_code is StatusCode.ERROR
    assert attributes(send)["error.type"] == "jmsql.InvalidDestinationException"
    assert attributes(send)["messaging.destination.temporary"] is True
    assert [event.name for event in send.events] == ["exception"]


def test_a_commit_settles_received_messages(connection: Connection, queue: Queue, spans: Spans) -> None:
    session = connection.create_session(transacted=True)
    producer = session.create_producer(queue)
    for _ in range(2):
        producer.send(session.create_message())
    session.commit()
    assert "commit" not in spans.names, "there was nothing to settle"
    receive_all(session.create_consumer(queue))
    session.commit()

    commit = spans.one("commit")
    assert commit.kind is SpanKind.CLIENT
    assert attributes(commit)["messaging.operation.type"] == "settle"
    assert attributes(commit)["messaging.batch.message_count"] == 2
    assert links(commit) == [number(send) for send in spans.named("send orders")]


def test_a_rollback_settles_the_other_way(connection: Connection, queue: Queue, spans: Spans) -> None:
    session = connection.create_session(transacted=True)
    session.create_producer(queue).send(session.create_message())
    session.commit()
    consumer = session.create_consumer(queue)
    receive_all(consumer)
    session.rollback()
    receive_all(consumer)
    session.commit()
    assert [span.name for span in spans.all if attributes(span)["messaging.operation.type"] == "settle"] == [
        "rollback",
        "commit",
    ]
    assert [attributes(span)["messaging.jmsql.message.delivery_count"] for span in spans.named("receive orders")] == [
        1,
        2,
    ]


def test_an_acknowledgement_settles(connection: Connection, queue: Queue, spans: Spans) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    session.create_producer(queue).send(session.create_message())
    consumer = session.create_consumer(queue)
    receive_all(consumer)
    session.recover()
    [message] = receive_all(consumer)
    message.acknowledge()
    assert links(spans.one("recover")) == links(spans.one("acknowledge")) == [number(spans.one("send orders"))]


def test_a_listener_goes_on_with_the_trace(connection: Connection, queue: Queue, spans: Spans, tracer: Tracer) -> None:
    session = connection.create_session()
    producer = connection.create_session().create_producer(queue)

    def listener(message: Message) -> None:
        with tracer.start_as_current_span("work"):
            pass

    session.create_consumer(queue).message_listener = listener
    producer.send(session.create_message())
    wait_for(lambda: "acknowledge" in spans.names)

    send, process, work, acknowledge = map(spans.one, ("send orders", "process orders", "work", "acknowledge"))
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert process.parent.span_id == number(send)
    assert links(process) == links(acknowledge) == [number(send)]
    assert work.parent is not None
    assert work.parent.span_id == number(process)
    assert trace_of(send) == trace_of(process) == trace_of(work) == trace_of(acknowledge)


def test_a_listener_that_fails(connection: Connection, queue: Queue, spans: Spans) -> None:
    session = connection.create_session()
    failed = threading.Event()

    def listener(message: Message) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("out of stock")

    session.create_consumer(queue).message_listener = listener
    connection.create_session().create_producer(queue).send(session.create_message())
    wait_for(lambda: "acknowledge" in spans.names)
    first, second = spans.named("process orders")
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "ValueError: out of stock"
    assert second.status.status_code is StatusCode.UNSET
    assert "release" in spans.names


def test_a_topic_is_published_to(jmsql_factory: ConnectionFactory, spans: Spans) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "warehouse"
        connection.start()
        session = connection.create_session()
        consumer = session.create_durable_consumer(Topic("prices"), "audit")
        session.create_producer(Topic("prices")).send(session.create_message())
        assert consumer.receive(0) is not None
    assert spans.one("publish prices").kind is SpanKind.PRODUCER
    receive = attributes(spans.one("receive prices"))
    assert receive["messaging.destination.subscription.name"] == "audit"
    assert receive["messaging.client.id"] == "warehouse"


def test_asynchronous_sends_have_spans(connection: Connection, queue: Queue, spans: Spans) -> None:
    session = connection.create_session()
    producer = session.create_producer(queue)
    outcomes: list[JMSException | None] = []
    producer.send(session.create_message(), completion_listener=lambda message, error: outcomes.append(error))
    producer.close()
    assert outcomes == [None]
    assert receive_all(session.create_consumer(queue))[0].property_exists("traceparent")
    assert links(spans.one("receive orders")) == [number(spans.one("send orders"))]


def test_an_enlisted_session(jmsql_clean_url: str, connection: Connection, queue: Queue, spans: Spans) -> None:
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url) as database:
        enlist(database).create_producer().send(queue, "hello")
        database.commit()
        received = enlist(database).create_consumer(queue).receive(timeout=0)
        assert received is not None
    assert links(spans.one("receive orders")) == [number(spans.one("send orders"))]


class Dashed(TextMapPropagator):
    """One whose header has dashes, as that of Jaeger does."""

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        [text] = getter.get(carrier, "uber-trace-id") or ["0:0"]
        trace_id, span_id = (int(part, 16) for part in text.split(":"))
        span = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1)))
        return set_span_in_context(span, context or Context())

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = None) -> None:
        span = get_current_span(context).get_span_context()
        setter.set(carrier, "uber-trace-id", f"{span.trace_id:x}:{span.span_id:x}")

    @property
    def fields(self) -> set[str]:
        return {"uber-trace-id"}


@pytest.fixture
def dashed() -> Iterator[None]:
    former = propagate.get_global_textmap()
    propagate.set_global_textmap(CompositePropagator([Dashed(), W3CBaggagePropagator()]))
    yield
    propagate.set_global_textmap(former)


def test_another_propagators_fields_become_valid_property_names(
    connection: Connection, queue: Queue, spans: Spans, dashed: None
) -> None:
    session = connection.create_session()
    token = context.attach(baggage.set_baggage("customer", "7"))
    try:
        session.create_producer(queue).send(session.create_message())
    finally:
        context.detach(token)
    received = session.create_consumer(queue).receive(0)
    assert received is not None
    assert {"uber_trace_id", "baggage"} <= set(received.property_names)
    assert links(spans.one("receive orders")) == [number(spans.one("send orders"))]


def test_no_span_is_made_once_the_instrumentation_is_removed(
    connection: Connection, queue: Queue, spans: Spans
) -> None:
    tracing.uninstrument()
    session = connection.create_session()
    session.create_producer(queue).send(session.create_message())
    received = session.create_consumer(queue).receive(0)
    assert received is not None
    assert not received.property_exists("traceparent")
    assert spans.all == []


def test_a_listener_and_the_next_hop_have_the_baggage_of_the_message(
    connection: Connection, queue: Queue, spans: Spans, tracer: Tracer
) -> None:
    seen: list[tuple[dict[str, object], int]] = []
    session, sender = connection.create_session(), connection.create_session()
    onward = session.create_producer(Queue("onward"))

    def listen(message: Message) -> None:
        seen.append((dict(baggage.get_all()), get_current_span().get_span_context().trace_id))
        onward.send(session.create_text_message(message.get_body(str)))

    session.create_consumer(queue).message_listener = listen
    connection.start()
    for tenant in ("acme", None):
        token = context.attach(Context() if tenant is None else baggage.set_baggage("tenant", tenant))
        sender.create_producer(queue).send(sender.create_text_message(tenant))
        context.detach(token)
    wait_for(lambda: len(seen) == 2)
    assert [found for found, _ in seen] == [{"tenant": "acme"}, {}]
    assert [number for _, number in seen] == [trace_of(span) for span in spans.named("send orders")]
    consumer = sender.create_consumer(Queue("onward"))
    hops = [receive(consumer) for _ in seen]
    assert [message.properties.get("baggage") for message in hops] == ["tenant=acme", None]


async def test_handlers_have_the_baggage_of_the_message_alone(factory: ConnectionFactory, spans: Spans) -> None:
    app = Application(factory)
    seen: dict[str, list[dict[str, object]]] = {"plain": [], "coroutine": []}

    @app.listener("plain")
    def handle(body: str) -> None:
        seen["plain"].append(dict(baggage.get_all()))

    @app.listener("coroutine")
    async def handle_awaited(body: str) -> None:
        seen["coroutine"].append(dict(baggage.get_all()))

    with factory.create_context() as sender:
        for name in seen:
            token = context.attach(baggage.set_baggage("tenant", name))
            sender.create_producer().send(Queue(name), "a")
            context.detach(token)
            sender.create_producer().send(Queue(name), "b")
    token = context.attach(baggage.set_baggage("tenant", "of the program"))
    async with app.running():
        await asyncio.to_thread(wait_for, lambda: all(len(each) == 2 for each in seen.values()), 60.0)
    context.detach(token)
    assert seen == {name: [{"tenant": name}, {}] for name in seen}
