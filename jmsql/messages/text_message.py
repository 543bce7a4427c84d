"""Messages with text. Source: JMS 1.1 chapter 11.2.31."""

from __future__ import annotations

from jmsql.messages.encoded_message import BodyColumns
from jmsql.messages.message import Message
from jmsql.messages.types.values import string
from jmsql.public_names import set_module
from jmsql.values.postgresql_text import from_postgresql, to_postgresql


@set_module("jmsql")
class TextMessage(Message):
    """A message whose body is a string.

    Args:
        text: The body; None is no text, which is not the empty text.

    Raises:
        MessageFormatException: The text is neither a `str` nor None.
    """

    __slots__ = ("_text",)

    _MESSAGE_TYPE = "TextMessage"

    def __init__(self, text: str | None = None) -> None:
        super().__init__()
        self._text = string(text)

    @property
    def text(self) -> str | None:
        """The body; None if there is no text.

        Raises:
            MessageNotWriteableException: On setting, the message was received and `clear_body` was not called.
            MessageFormatException: On setting, the value is neither a `str` nor None.
        """
        return self._text

    @text.setter
    def text(self, text: str | None) -> None:
        self._check_body_writable()
        self._text = string(text)

    def clear_body(self) -> None:
        super().clear_body()
        self._text = None

    def _body(self) -> str | None:
        return self._text

    def _body_summary(self) -> str:
        return "no text" if self._text is None else f"{len(self._text)} characters"

    def _encode_body(self) -> BodyColumns:
        text = self._text
        return to_postgresql(text) if text is not None else None, None, None, None

    def _restore_body(self, columns: BodyColumns) -> None:
        text = columns[0]
        self._text = from_postgresql(text) if text is not None else None
