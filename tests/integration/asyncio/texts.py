"""The texts of messages."""

from __future__ import annotations

from jmsql import Message


def text_of(message: Message | None) -> str:
    """Return the text of a message that has to be there."""
    assert message is not None
    text = message.get_body(str)
    assert text is not None
    return text
