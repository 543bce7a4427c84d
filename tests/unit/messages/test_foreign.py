from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jmsql.exceptions import MessageEOFException, MessageFormatException
from jmsql.messages import (
    Byte,
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    as_jms_message,
)
from jmsql.values.destinations import Queue


class Foreign:
    """The least that another provider's message has."""

    def __init__(self, **properties: Any) -> None:
        self.jms_correlation_id = "ID:other"
        self.jms_type = "kind"
        self.jms_reply_to: object = None
        self._properties = properties

    @property
    def property_names(self) -> Iterable[str]:
        return iter(self._properties)

    def get_object_property(self, name: str) -> Any:
        return self._properties[name]


class ForeignText(Foreign):
    text = "text"


class ForeignObject(Foreign):
    object = (1, {"a": 2})


class ForeignMap(Foreign):
    map_names = ("a", "b")

    def get_object(self, name: str) -> Any:
        return {"a": Byte(1), "b": b"x"}[name]


class ForeignStream(Foreign):
    def reset(self) -> None:
        self._fields = iter([Byte(1), None, b"x", "y"])

    def read_object(self) -> Any:
        try:
            return next(self._fields)
        except StopIteration:
            raise MessageEOFException from None


class ForeignBytes(Foreign):
    _body = bytes(range(256)) * 1000
    body_length = len(_body)

    def reset(self) -> None:
        self._rest = self._body

    def read_bytes(self, buffer: bytearray) -> int:
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count or -1


def test_message_of_jmsql_stays_itself() -> None:
    message = TextMessage("text")
    assert as_jms_message(message) is message


@pytest.mark.requirement("message.foreign")
def test_headers_and_properties_are_copied() -> None:
    foreign = Foreign(color="blue", weight=Byte(5), JMSXGroupID="g", JMS_Other_Vendor=True)
    foreign.jms_reply_to = Queue("answers")
    message = as_jms_message(foreign)
    assert type(message) is Message
    assert (message.jms_correlation_id, message.jms_type) == ("ID:other", "kind")
    assert message.jms_reply_to == Queue("answers")
    assert dict(message.properties) == {"color": "blue", "weight": 5, "JMSXGroupID": "g", "JMS_Other_Vendor": True}
    assert type(message.properties["weight"]) is Byte


@pytest.mark.requirement("message.foreign")
def test_the_other_providers_properties_are_left_out() -> None:
    foreign = Foreign(JMSXDeliveryCount=2, JMSXUserID="them", own=1)
    foreign.jms_reply_to = object()
    message = as_jms_message(foreign)
    assert message.jms_reply_to is None
    assert dict(message.properties) == {"own": 1}


@pytest.mark.requirement("message.foreign")
def test_property_that_cannot_be_kept_is_not_lost_silently() -> None:
    with pytest.raises(MessageFormatException, match="cannot name a property"):
        as_jms_message(Foreign(**{"a.b": 1}))


@pytest.mark.requirement("message.foreign")
def test_text_is_copied() -> None:
    message = as_jms_message(ForeignText())
    assert isinstance(message, TextMessage)
    assert message.text == "text"


@pytest.mark.requirement("message.foreign")
def test_object_is_copied() -> None:
    message = as_jms_message(ForeignObject())
    assert isinstance(message, ObjectMessage)
    assert message.object == (1, {"a": 2})


@pytest.mark.requirement("message.foreign")
def test_map_is_copied() -> None:
    message = as_jms_message(ForeignMap())
    assert isinstance(message, MapMessage)
    assert dict(message) == {"a": 1, "b": b"x"}


@pytest.mark.requirement("message.foreign")
def test_stream_is_copied() -> None:
    message = as_jms_message(ForeignStream())
    assert isinstance(message, StreamMessage)
    message.reset()
    assert [message.read_object() for _ in range(4)] == [1, None, b"x", "y"]
    with pytest.raises(MessageEOFException):
        message.read_object()


@pytest.mark.requirement("message.foreign")
def test_bytes_are_copied() -> None:
    message = as_jms_message(ForeignBytes())
    assert isinstance(message, BytesMessage)
    assert message.get_body(bytes) == ForeignBytes._body


@pytest.mark.parametrize("thing", ["text", None, object(), {"a": 1}])
def test_anything_else_is_no_message(thing: Any) -> None:
    with pytest.raises(MessageFormatException, match="is not a message"):
        as_jms_message(thing)


class ForeignCorrelated(Foreign):
    """A message of a provider whose correlation identifiers are bytes."""

    jms_correlation_id_as_bytes: bytes | None = b"\x01\x04\xff"


def test_a_correlation_identifier_that_is_bytes_is_copied() -> None:
    foreign = ForeignCorrelated()
    assert as_jms_message(foreign).jms_correlation_id == "ID:other"
    foreign.jms_correlation_id = None  # type: ignore[assignment]
    assert as_jms_message(foreign).jms_correlation_id_as_bytes == b"\x01\x04\xff"
    foreign.jms_correlation_id_as_bytes = None
    assert as_jms_message(foreign).jms_correlation_id is None
