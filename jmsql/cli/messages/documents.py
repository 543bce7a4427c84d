"""Messages as text and as JSON documents."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

from jmsql.cli.output import json_text
from jmsql.exceptions import MessageEOFException
from jmsql.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from jmsql.messages.properties import DELIVERY_COUNT
from jmsql.messages.types.values import type_name
from jmsql.store.history.past_messages import PastMessage


def message_document(message: Message) -> dict[str, Any]:
    """Describe a message in JSON's terms; bytes stand in base64, and NaN and infinities as strings."""
    properties = {name: value for name, value in message.properties.items() if name != DELIVERY_COUNT}
    return {
        "message_id": message.jms_message_id,
        "type": type(message).__name__,
        "priority": message.jms_priority,
        "delivery_mode": message.jms_delivery_mode.name,
        "timestamp": message.jms_timestamp or None,
        "delivery_time": message.jms_delivery_time or None,
        "expiration": message.jms_expiration or None,
        "correlation_id": message.jms_correlation_id,
        "reply_to": None if message.jms_reply_to is None else message.jms_reply_to.uri,
        "jms_type": message.jms_type,
        "redelivered": message.jms_redelivered,
        "delivery_count": message.get_int_property(DELIVERY_COUNT),
        "properties": {name: _json_value(value) for name, value in sorted(properties.items())},
        "property_types": {name: _type_name(value) for name, value in sorted(properties.items())},
        "body": _json_value(_body(message)),
    }


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
    """Return the body as it is written for other programs: bytes raw, text and JSON with an end of line."""
    body = _body(message)
    if isinstance(body, bytes):
        return body
    text = body if isinstance(body, str) else "" if body is None else json_text(_json_value(body))
    return text.encode(errors="surrogatepass") + b"\n"


def body_preview(message: Message) -> str:
    """Return the body's beginning on one line."""
    body = _body(message)
    if isinstance(body, bytes):
        return f"{len(body):,} bytes: {body[:24].hex(' ')}"
    text = body[:200] if isinstance(body, str) else "" if body is None else json_text(_json_value(body))[:200]
    return " ".join(text.split())


def message_as_text(message: Message, facts: Mapping[str, object] | None = None) -> bytes:
    """Return a message with its headers and properties, for people.

    Args:
        message: The message.
        facts: What is known of it beside, or better; what is None is left out.
    """
    document = {**(facts or {}), **message_document(message), **(facts or {})}
    _, properties, types = (document.pop(name) for name in ("body", "properties", "property_types"))
    lines = [f"{name}: {value}" for name, value in document.items() if value is not None]
    lines += [f"property {name} ({types[name]}): {value}" for name, value in properties.items()]
    head = "\n".join(lines).encode(errors="surrogatepass")
    return head + b"\n\n" + body_as_output(message).removesuffix(b"\n") + b"\n\n"


def _type_name(value: object) -> str:
    return type_name(value).split()[-1]  # without the article


def _body(message: Message) -> Any:
    """Return the body as a value of Python's, and an object as the JSON that is stored, whatever its class."""
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
            text = message.encode().json_body
            return None if text is None else _parsed(text)
        case _:
            return None


def _parsed(text: str) -> Any:
    """Return what JSON means, or the JSON itself if it has more levels of brackets than Python can handle."""
    try:
        return _json_value(json.loads(text))
    except RecursionError:
        return text


def _fields(message: StreamMessage) -> list[object]:
    message.reset()
    fields: list[object] = []
    while True:
        try:
            fields.append(message.read_object())
        except MessageEOFException:
            return fields


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _json_value(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_json_value(member) for member in value]
    return value
