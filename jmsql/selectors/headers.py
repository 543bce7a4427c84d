"""The names that a selector may use: JMS headers, and properties.

Source: JMS 1.1 chapter 3.8.1.1 (requirements selector.identifier.header, selector.properties.JMSprefixed).
"""

from __future__ import annotations

from enum import Enum


class Type(Enum):
    """An expression's static type, as far as it is known."""

    BOOLEAN = "a condition"
    NUMBER = "a number"
    STRING = "a string"
    PROPERTY = "a property"
    """A property may hold a value of any type."""


HEADER_TYPES = {
    "JMSDeliveryMode": Type.STRING,
    "JMSPriority": Type.NUMBER,
    "JMSMessageID": Type.STRING,
    "JMSTimestamp": Type.NUMBER,
    "JMSCorrelationID": Type.STRING,
    "JMSType": Type.STRING,
}
"""The headers that a selector may use. No other has a value before the message is delivered, or one that compares."""

DELIVERY_MODES = {1: "NON_PERSISTENT", 2: "PERSISTENT"}
"""How JMSDeliveryMode reads in a selector."""

UNKNOWN_UNTIL_DELIVERY = frozenset(("JMSXDeliveryCount",))
"""Properties that the provider sets when it delivers: while messages are selected they are unknown."""


def is_refused_header(name: str) -> bool:
    """Tell whether a name is reserved for JMS headers, and none that selectors may use."""
    return name.startswith("JMS") and not name.startswith(("JMSX", "JMS_")) and name not in HEADER_TYPES
