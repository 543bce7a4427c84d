"""OpenTelemetry spans for messages (the extra ``tracing``)."""

from __future__ import annotations

try:
    from opentelemetry.trace import TracerProvider
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "jmsql[tracing]".', name=error.name) from error

from jmsql.client import instrumentation
from jmsql.tracing.tracer import MessageTracer

__all__ = ["instrument", "uninstrument"]


def instrument(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans for messages that are sent, received, processed and settled by this process, from now on.

    The context of a send travels in properties of the message, as the global propagator writes it: W3C Trace Context
    makes them `traceparent` and `tracestate`. A message that has such properties already keeps them.

    Args:
        tracer_provider: Where the spans go; None: the global one.
    """
    instrumentation.install(MessageTracer(tracer_provider))


def uninstrument() -> None:
    """Make no more spans."""
    instrumentation.install(None)
