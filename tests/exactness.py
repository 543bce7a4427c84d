"""What a message holds, in a form that is equal only where every type and every bit is."""

from __future__ import annotations

import math
import struct

from jmsql import Message
from tests.compliance.contents import body_of


def exact(value: object) -> object:
    """A stand-in that tells -0.0 from 0.0, 1 from True and from 1.0, and a Byte from an int, and equals itself for NaN.

    The order of a dict's members does not count.
    """
    kind = type(value).__name__
    if isinstance(value, float):
        return kind, "NaN" if math.isnan(value) else struct.pack(">d", value)
    if isinstance(value, dict):
        return kind, frozenset((exact(key), exact(member)) for key, member in value.items())
    if isinstance(value, list | tuple):
        return kind, tuple(map(exact, value))
    return kind, value


def contents(message: Message) -> dict[str, object]:
    """All that the sender of a message determined but for the options of the send."""
    properties = {name: value for name, value in message.properties.items() if name != "JMSXDeliveryCount"}
    return {
        "class": type(message),
        "correlation id": exact(message.jms_correlation_id),
        "reply to": message.jms_reply_to,
        "type": exact(message.jms_type),
        "properties": exact(properties),
        "body": exact(body_of(message)),
    }
