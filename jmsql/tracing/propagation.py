"""How the context of a trace travels: in properties of the message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping

from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Message
from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.values.postgresql_text import to_postgresql

_NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9_$]")


def _property_name(field: str) -> str:
    """Return the name of a property for a propagator's field: JMS allows identifiers alone, so no ``X-B3-TraceId``."""
    return _NO_IDENTIFIER.sub("_", field)


class _PropertySetter(Setter[MutableMapping[str, str]]):
    def set(self, carrier: MutableMapping[str, str], key: str, value: str) -> None:
        carrier[_property_name(key)] = value


class _PropertyGetter(Getter[Message]):
    def get(self, carrier: Message, key: str) -> list[str] | None:
        value = carrier.properties.get(_property_name(key))
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Message) -> list[str]:
        return list(carrier.property_names)


class _WrittenGetter(Getter[Mapping[str, object]]):
    def get(self, carrier: Mapping[str, object], key: str) -> list[str] | None:
        value = carrier.get(_property_name(key))
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, object]) -> list[str]:
        return list(carrier)


_SETTER = _PropertySetter()
_GETTER = _PropertyGetter()
_WRITTEN_GETTER = _WrittenGetter()


def _fields() -> set[str]:
    return {_property_name(field) for field in propagate.get_global_textmap().fields}


def has_context(message: OutgoingMessage) -> trace.SpanContext | None:
    """Return the context that the application has put into a message before sending it, if there is one."""
    text = message.properties
    if text is None or not any(f'"{field}"' in text for field in _fields()):
        return None
    context = propagate.extract(json.loads(text), Context(), _WRITTEN_GETTER)
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def with_context(message: OutgoingMessage) -> OutgoingMessage:
    """Return a message with the current context among its properties."""
    fields: dict[str, str] = {}
    propagate.inject(fields, setter=_SETTER)
    if not fields:
        return message
    added = json.dumps({name: to_postgresql(value) for name, value in fields.items()}, ensure_ascii=False)
    written = message.properties
    # Where a name stands twice, jsonb keeps the last.
    return message._replace(properties=added if written is None else f"{written[:-1]}, {added[1:]}")


def creation_context(message: Message, base: Context | None = None) -> Context:
    """Return the context in which a received message was sent; `base` if it does not say, or cannot be read."""
    base = Context() if base is None else base
    try:
        return propagate.extract(message, base, _GETTER)
    except MessageFormatException:
        return base


def current_context(message: Message) -> Context:
    """Return the current context, with the span and the baggage of a received message in place of its own."""
    return creation_context(message, trace.set_span_in_context(trace.INVALID_SPAN, baggage.clear()))
