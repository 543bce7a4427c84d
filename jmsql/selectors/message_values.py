"""The values that a selector sees in a message."""

from __future__ import annotations

from typing import Protocol

from jmsql.selectors.expressions import Value
from jmsql.selectors.headers import DELIVERY_MODES, UNKNOWN_UNTIL_DELIVERY

__all__ = ["SelectableMessage", "value_in"]


class SelectableMessage(Protocol):
    """What a selector reads of a message, jmsql's own or another provider's."""

    @property
    def jms_delivery_mode(self) -> int: ...
    @property
    def jms_priority(self) -> int: ...
    @property
    def jms_message_id(self) -> str | None: ...
    @property
    def jms_timestamp(self) -> int: ...
    @property
    def jms_correlation_id(self) -> str | None: ...
    @property
    def jms_type(self) -> str | None: ...
    def get_object_property(self, name: str, /) -> Value: ...


def value_in(message: SelectableMessage, name: str) -> Value:
    """Return what a name in a selector stands for, or None for null and missing.

    A timestamp that the producer disabled is the header's 0. Only message id, correlation id and type can be null.
    """
    match name:
        case "JMSDeliveryMode":
            return DELIVERY_MODES[message.jms_delivery_mode]
        case "JMSPriority":
            return message.jms_priority
        case "JMSMessageID":
            return message.jms_message_id
        case "JMSTimestamp":
            return message.jms_timestamp
        case "JMSCorrelationID":
            return message.jms_correlation_id
        case "JMSType":
            return message.jms_type
        case _ if name in UNKNOWN_UNTIL_DELIVERY:
            return None
        case _:
            return message.get_object_property(name)
