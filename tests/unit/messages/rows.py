"""What becomes of a message between send and receive, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

from jmsql.messages import Message, decode_message
from jmsql.values.destinations import Queue

M = TypeVar("M", bound=Message)


def as_jsonb_prints(text: str) -> str:
    """Print JSON as PostgreSQL prints a jsonb: exact decimals, members in an order of its own, the last of a name."""
    assert "\0" not in text
    text.encode("utf-8")  # PostgreSQL would refuse half a surrogate pair
    assert "\\u0000" not in text.replace("\\\\", "")
    return _print(json.loads(text, parse_float=Decimal, parse_int=Decimal))


def _print(value: Any) -> str:
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
        return "{" + ", ".join(f"{_print(name)}: {_print(member)}" for name, member in members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_print, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value, ensure_ascii=False)


def _printed(text: str | None) -> str | None:
    return None if text is None else as_jsonb_prints(text)


def received(message: M, acknowledger: Callable[[], None] | None = None, delivery_count: int = 1) -> M:
    """The message as a consumer would receive it."""
    encoded = message.encode()
    as_printed = encoded._replace(
        properties=_printed(encoded.properties),
        property_types=_printed(encoded.property_types),
        json_body=_printed(encoded.json_body),
        body_types=_printed(encoded.body_types),
    )
    result = decode_message(
        as_printed,
        message_id="ID:0193",
        timestamp=1_700_000_000_000,
        expiration=0,
        priority=7,
        delivery_mode=1,
        destination=Queue("orders"),
        redelivered=delivery_count > 1,
        delivery_count=delivery_count,
        acknowledger=acknowledger,
    )
    assert type(result) is type(message)
    return result
