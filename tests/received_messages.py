"""Messages as they are received, without a server."""

from __future__ import annotations

from jmsql.messages import EncodedMessage, Message, decode_message


def decoded(encoded: EncodedMessage, delivery_count: int = 1) -> Message:
    """The message that is received where this is in the database, whatever wrote it."""
    return decode_message(
        encoded,
        message_id=None,
        timestamp=0,
        expiration=0,
        priority=4,
        delivery_mode=2,
        destination=None,
        redelivered=delivery_count > 1,
        delivery_count=delivery_count,
        acknowledger=None,
    )
