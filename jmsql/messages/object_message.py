"""Messages with an object. Source: JMS 1.1 chapters 3.11 and 11.2.21."""

from __future__ import annotations

from typing import Any

from jmsql.messages.codecs.object_json import decode_object, encode_object
from jmsql.messages.encoded_message import BodyColumns
from jmsql.messages.message import Message
from jmsql.public_names import set_module


@set_module("jmsql")
class ObjectMessage(Message):
    """A message whose body is a Python object.

    The object is encoded when it is set, and made again each time it is read; so the message and its users never
    share it. [`register_type`][jmsql.register_type] tells which classes' objects a message holds.

    Args:
        object: The body.

    Raises:
        MessageFormatException: The object cannot be encoded.
    """

    __slots__ = ("_object_json",)

    _MESSAGE_TYPE = "ObjectMessage"

    def __init__(self, object: object = None) -> None:  # noqa: A002 - JMS's name
        super().__init__()
        self._object_json = None if object is None else encode_object(object)

    def get_object(self) -> Any:
        """Make a copy of the object; None if there is none.

        Raises:
            MessageFormatException: The object is of a class that is not registered, or cannot be decoded.
        """
        return None if self._object_json is None else decode_object(self._object_json)

    def set_object(self, value: object) -> None:
        """Take a copy of the object.

        Raises:
            MessageNotWriteableException: The message was received and `clear_body` was not called.
            MessageFormatException: The object, or one within it, is of a class that is not registered; or it
                contains itself, or is nested too deeply.
        """
        self._check_body_writable()
        self._object_json = None if value is None else encode_object(value)

    @property
    def object(self) -> Any:
        """The object, as by `get_object` and `set_object`."""
        return self.get_object()

    @object.setter  # noqa: A003 - JMS's name
    def object(self, value: Any) -> None:
        self.set_object(value)

    def clear_body(self) -> None:
        super().clear_body()
        self._object_json = None

    def _body(self) -> Any:
        return self.get_object()

    def _body_summary(self) -> str:
        return "no object" if self._object_json is None else f"an object in {len(self._object_json)} characters"

    def _encode_body(self) -> BodyColumns:
        return None, self._object_json, None, None

    def _restore_body(self, columns: BodyColumns) -> None:
        self._object_json = columns[1]
