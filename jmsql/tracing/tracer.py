"""Spans for messages, after OpenTelemetry's semantic conventions for messaging."""

from __future__ import annotations

import importlib.metadata
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.instrumentation import SessionFacts
from jmsql.messages import Message
from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.tracing.propagation import creation_context, current_context, has_context, with_context
from jmsql.values.destinations import Destination, TemporaryQueue, TemporaryTopic, Topic

_SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
_MOST_LINKS = 128
"""The SDK's default limit of a span's links."""


class MessageTracer:
    """Makes spans."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._tracer = trace.get_tracer("jmsql", importlib.metadata.version("jmsql"), provider, _SCHEMA_URL)
        self._unsettled: weakref.WeakKeyDictionary[SessionFacts, deque[Context]] = weakref.WeakKeyDictionary()

    @contextmanager
    def sending(
        self, session: SessionFacts, destination: Destination, message: OutgoingMessage
    ) -> Iterator[OutgoingMessage]:
        """Make the span of a send, in whose context consumers find the message."""
        name = "publish" if isinstance(destination, Topic) else "send"
        attributes = _attributes("send", name, destination) | _server(session)
        if message.jms_message_id is not None:
            attributes["messaging.message.id"] = f"ID:{message.jms_message_id}"
        if message.jms_correlation_id is not None:
            attributes["messaging.message.conversation_id"] = message.jms_correlation_id
        given = has_context(message)
        with self._span(
            _span_name(name, destination),
            SpanKind.PRODUCER if given is None else SpanKind.CLIENT,
            attributes,
            links=[] if given is None else [Link(given)],
        ):
            yield with_context(message) if given is None else message

    @contextmanager
    def receiving(
        self, session: SessionFacts, destination: Destination, subscription: str | None
    ) -> Iterator[Callable[[Message | None], None]]:
        """Make the span of a `receive` that brings a message, or fails."""
        attributes = _attributes("receive", "receive", destination) | _server(session)
        if subscription is not None:
            attributes["messaging.destination.subscription.name"] = subscription
        started = time.time_ns()
        received: list[Message] = []
        error: Exception | None = None

        def note(message: Message | None) -> None:
            if message is not None:
                received.append(message)

        try:
            yield note
        except Exception as failure:
            error = failure
            raise
        finally:
            message = received[0] if received else None
            if message is not None or error is not None:
                span = self._tracer.start_span(
                    _span_name("receive", destination),
                    kind=SpanKind.CLIENT,
                    attributes=attributes | ({} if message is None else _of_message(message)),
                    links=[] if message is None else self._links_with(session, message, received=True),
                    start_time=started,
                )
                if error is not None:
                    _fail(span, error)
                span.end()

    @contextmanager
    def processing(self, session: SessionFacts, *messages: Message) -> Iterator[None]:
        """Make the span of a listener's call: a child of the send's, which it is linked with, too.

        The span of a chunk has a link with each send, and a parent only if it has one message.
        """
        first = messages[0]
        destination = first.jms_destination
        attributes = _attributes("process", "process", destination) | _server(session)
        if len(messages) == 1:
            attributes |= _of_message(first)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
        links = [link for each in messages for link in self._links_with(session, each, received=False)]
        # The listener's context has the baggage of the message, and none of the thread's or task's earlier context.
        token = context.attach(current_context(first) if len(messages) == 1 else Context())
        try:
            with self._span(_span_name("process", destination), SpanKind.CONSUMER, attributes, links):
                yield
        finally:
            context.detach(token)

    @contextmanager
    def settling(self, session: SessionFacts, operation: str) -> Iterator[None]:
        """Make the span of an acknowledgement, a commit or the like, of the messages that wait for it."""
        contexts = list(self._unsettled.pop(session, ()))
        if not contexts:
            yield
            return
        attributes = _attributes("settle", operation, None) | _server(session)
        attributes["messaging.batch.message_count"] = len(contexts)
        links = _links(contexts)
        # Of a single message, it goes on with its trace where nothing else is under way.
        follows = len(contexts) == 1 and not trace.get_current_span().get_span_context().is_valid
        with self._span(operation, SpanKind.CLIENT, attributes, links, contexts[0] if follows else None):
            yield

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, attributes: dict[str, Any], links: list[Link], parent: Context | None = None
    ) -> Iterator[None]:
        with self._tracer.start_as_current_span(
            name, parent, kind, attributes, links, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BaseException as error:
                _fail(span, error)
                raise

    def _links_with(self, session: SessionFacts, message: Message, *, received: bool) -> list[Link]:
        """Keep the context of a message until it is settled, if that is still to come; return the link with it."""
        context = creation_context(message)
        mode = session.acknowledge_mode
        if mode not in {None, AcknowledgeMode.DUPS_OK} and not (received and mode is AcknowledgeMode.AUTO):
            self._unsettled.setdefault(session, deque(maxlen=_MOST_LINKS)).append(context)
        return _links([context])


def _attributes(kind: str, name: str, destination: Destination | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": "jmsql",
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
    }
    if destination is not None:
        attributes["messaging.destination.name"] = destination.name
        if isinstance(destination, TemporaryQueue | TemporaryTopic):
            attributes["messaging.destination.temporary"] = True
    return attributes


def _span_name(operation: str, destination: Destination | None) -> str:
    if destination is None or isinstance(destination, TemporaryQueue | TemporaryTopic):
        return operation
    return f"{operation} {destination.name}"


def _server(session: SessionFacts) -> dict[str, Any]:
    """Return attributes of the server and the client; none for a caller's own transaction."""
    known = {
        "server.address": session.host,
        "server.port": session.port,
        "messaging.client.id": session.client_id(),
    }
    return {name: value for name, value in known.items() if value is not None}


def _of_message(message: Message) -> dict[str, Any]:
    known = {
        "messaging.message.id": message.jms_message_id,
        "messaging.message.conversation_id": message.jms_correlation_id,
        "messaging.jmsql.message.delivery_count": message.delivery_count,
    }
    return {name: value for name, value in known.items() if value is not None}


def _links(contexts: list[Context]) -> list[Link]:
    found = (trace.get_current_span(context).get_span_context() for context in contexts)
    return [Link(context) for context in found if context.is_valid]


def _fail(span: Span, error: BaseException) -> None:
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    span.record_exception(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
