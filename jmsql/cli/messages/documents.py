"""Messages as text and as JSON documents."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from jmsql.cli.output import json_text
from jmsql.exceptions import InvalidDestinationException, MessageEOFException, MessageFormatException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from jmsql.messages.properties import DELIVERY_COUNT
from jmsql.messages.types.typed_json import parse_json
from jmsql.messages.types.values import type_name
from jmsql.store.administration.inspection import DeliveryState
from jmsql.store.history.past_messages import PastMessage

T = TypeVar("T")

_DEEPEST = 100
"""How deep a body is nested that is shown as JSON; others are shown as they are stored."""


class Unreadable(NamedTuple):
    """Why a part of a message cannot be read, and how it is stored."""

    reason: str
    stored: str | bytes | None


def _read_parts(message: Message, unreadable: dict[str, Unreadable]) -> tuple[str | None, dict[str, Any], Any]:
    """Return where to answer, the properties, and the body in JSON's terms, and note those that cannot be read."""

    def read(name: str, part: Callable[[], T], otherwise: T) -> T:
        try:
            return part()
        except (MessageFormatException, InvalidDestinationException) as error:
            unreadable[name] = Unreadable(str(error), message.stored_parts()[name])
            return otherwise

    reply_to = read("reply_to", lambda: message.jms_reply_to, None)
    properties: dict[str, Any] = read("properties", lambda: dict(message.properties), {})
    properties.pop(DELIVERY_COUNT, None)
    return (
        None if reply_to is None else reply_to.uri,
        properties,
        read("body", lambda: _json_value(_body(message)), None),
    )


def message_document(message: Message) -> dict[str, Any]:
    """Describe a message in JSON's terms; bytes stand in base64, and NaN and infinities as strings.

    An unreadable value of another program is null, and stands under ``unreadable`` as it is stored.
    """
    unreadable: dict[str, Unreadable] = {}
    reply_to, properties, body = _read_parts(message, unreadable)
    document = {
        "message_id": message.jms_message_id,
        "type": type(message).__name__,
        "priority": message.jms_priority,
        "delivery_mode": message.jms_delivery_mode.name,
        "timestamp": message.jms_timestamp or None,
        "delivery_time": message.jms_delivery_time or None,
        "expiration": message.jms_expiration or None,
        "correlation_id": message.jms_correlation_id,
        "reply_to": reply_to,
        "jms_type": message.jms_type,
        "redelivered": message.jms_redelivered,
        "delivery_count": message.delivery_count,
        "properties": {name: _json_value(value) for name, value in sorted(properties.items())},
        "property_types": {name: _type_name(value) for name, value in sorted(properties.items())},
        "body": body,
    }
    if unreadable:
        document["unreadable"] = {
            name: {"reason": part.reason, "stored": _json_value(part.stored)} for name, part in unreadable.items()
        }
    return document


def delivery_document(delivery: DeliveryState) -> dict[str, Any]:
    """Return where the delivery of a message stands, for JSON."""
    return delivery._asdict() | {"place": str(delivery.place)}


def past_document(past: PastMessage) -> dict[str, Any]:
    """Describe a message that has left its destination, and how it did."""
    document = message_document(past.message)
    del document["redelivered"]
    entry = past.entry._asdict()
    seconds = past.entry.time_in_queue
    return document | entry | {"time_in_queue": None if seconds is None else seconds.total_seconds()}


def past_message_as_text(past: PastMessage) -> bytes:
    """Return a message that has left its destination, and how it did, for people."""
    facts = [f"{name}: {value}" for name, value in past.entry._asdict().items() if value is not None]
    return "\n".join(facts).encode() + b"\n" + message_as_text(past.message)


def body_as_output(message: Message) -> bytes:
    """Return the body as it is written for other programs: bytes raw, text and JSON with an end of line.

    Raises:
        MessageFormatException: It cannot be read.
    """
    body = _body(message)
    return _as_output(body if isinstance(body, str | bytes | None) else json_text(_json_value(body)))


def stored_body_as_output(message: Message) -> bytes:
    """Return a body that cannot be read as it is stored."""
    return _as_output(message.stored_parts()["body"])


def _as_output(body: str | bytes | None) -> bytes:
    return body if isinstance(body, bytes) else (body or "").encode(errors="surrogatepass") + b"\n"


def body_preview(message: Message) -> str:
    """Return the body's beginning on one line."""
    try:
        body = _body(message)
        if isinstance(body, bytes):
            return f"{len(body):,} bytes: {body[:24].hex(' ')}"
        text = body[:200] if isinstance(body, str) else "" if body is None else json_text(_json_value(body))[:200]
    except MessageFormatException as error:
        text = f"(unreadable) {error}"
    return " ".join(text.split())


_PREVIEW = 80
"""How many characters of a property a table shows."""


def properties_preview(message: Message) -> str:
    """Return the properties on one line, each with the beginning of its value."""
    try:
        names = sorted(name for name in message.property_names if name != DELIVERY_COUNT)
        return " ".join(_property_preview(message, name) for name in names)
    except MessageFormatException as error:
        return f"(unreadable) {error}"


def _property_preview(message: Message, name: str) -> str:
    value = " ".join((message.get_string_property(name) or "").split())
    return f"{name}={value[:_PREVIEW]}{'…' if len(value) > _PREVIEW else ''}"


def message_as_text(message: Message, facts: Mapping[str, object] | None = None) -> bytes:
    """Return a message with its headers and properties, for people."""
    document = {**(facts or {}), **message_document(message), **(facts or {})}
    _, properties, types = (document.pop(name) for name in ("body", "properties", "property_types"))
    unreadable: dict[str, dict[str, object]] = document.pop("unreadable", {})
    lines = [f"{name}: {value}" for name, value in document.items() if value is not None]
    lines += [
        f"unreadable {name}: {part['reason']}" + ("" if name == "body" else f" {part['stored']}")
        for name, part in unreadable.items()
    ]
    lines += [f"property {name} ({types[name]}): {value}" for name, value in properties.items()]
    head = "\n".join(lines).encode(errors="surrogatepass")
    body = stored_body_as_output(message) if "body" in unreadable else body_as_output(message)
    return head + b"\n\n" + body.removesuffix(b"\n") + b"\n\n"


def _type_name(value: object) -> str:
    return type_name(value).split()[-1]  # without the article


def _body(message: Message) -> Any:
    """Return the body as a Python value, and an object of any class as the stored JSON."""
    match message:
        case TextMessage():
            return message.text
        case BytesMessage():
            return message.get_body(bytes) or b""
        case MapMessage():
            return dict(message)
        case StreamMessage():
            return _fields(message)
        case ObjectMessage():
            text = message.stored_parts()["body"]
            return parse_json(text) if isinstance(text, str) else None
        case _:
            return None


def _fields(message: StreamMessage) -> list[object]:
    message.reset()
    fields: list[object] = []
    while True:
        try:
            fields.append(message.read_object())
        except MessageEOFException:
            return fields


def _json_value(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        raise MessageFormatException(f"The body is nested deeper than {_DEEPEST} levels.")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _json_value(member, depth + 1) for name, member in value.items()}
    if isinstance(value, list):
        return [_json_value(member, depth + 1) for member in value]
    return value
