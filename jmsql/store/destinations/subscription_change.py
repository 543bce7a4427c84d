"""What becomes of a durable subscription that a consumer wants otherwise."""

from __future__ import annotations

from enum import StrEnum

from jmsql.public_names import set_module

__all__ = ["SubscriptionChange"]


@set_module("jmsql.admin")
class SubscriptionChange(StrEnum):
    """What happens to a durable subscription that a consumer wants with another topic, selector or `no_local`."""

    DROP = "drop"
    """It is made again, and the messages that it has collected are deleted: what JMS asks for (4.2.3)."""

    KEEP = "keep"
    """The new selector decides about what is published from now on; what is collected stays, and is delivered."""

    REFUSE = "refuse"
    """It stays as it is, and the consumer gets an IllegalStateException."""
