from __future__ import annotations

import pytest

from jmsql.exceptions import MessageFormatException
from jmsql.messages import (
    BytesMessage,
    EncodedMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from tests.received_messages import decoded
from tests.unit.messages.rows import received

NOTHING = EncodedMessage(
    message_type="Message",
    correlation_id=None,
    reply_to=None,
    type=None,
    properties=None,
    property_types=None,
    text_body=None,
    json_body=None,
    body_types=None,
    bytes_body=None,
)


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (Message(), NOTHING),
        (TextMessage(), NOTHING._replace(message_type="TextMessage")),
        (TextMessage(""), NOTHING._replace(message_type="TextMessage", text_body="")),
        (BytesMessage(), NOTHING._replace(message_type="BytesMessage", bytes_body=b"")),
        (MapMessage(), NOTHING._replace(message_type="MapMessage", json_body="{}")),
        (StreamMessage(), NOTHING._replace(message_type="StreamMessage", json_body="[]")),
        (ObjectMessage(), NOTHING._replace(message_type="ObjectMessage")),
    ],
)
def test_columns_that_are_not_used_are_null(message: Message, encoded: EncodedMessage) -> None:
    assert message.encode() == encoded


def test_application_s_subclass_travels_as_its_base() -> None:
    class OrderMessage(TextMessage):
        pass

    assert OrderMessage("x").encode().message_type == "TextMessage"


def test_encoded_message_is_a_snapshot() -> None:
    message = BytesMessage()
    message.write_byte(1)
    message.set_int_property("a", 1)
    encoded = message.encode()
    message.write_byte(2)
    message.set_int_property("a", 2)
    assert (encoded.bytes_body, encoded.properties) == (b"\1", '{"a": 1}')
    assert message.encode().bytes_body == b"\1\2"


def filled_map() -> MapMessage:
    message = MapMessage()
    message.set_byte("byte", 1)
    return message


def filled_stream() -> StreamMessage:
    message = StreamMessage()
    message.write_byte(1)
    return message


@pytest.mark.parametrize("message", [TextMessage("\0"), filled_map(), filled_stream(), ObjectMessage({"a": 1.5})])
def test_received_message_is_passed_on_as_it_came(message: Message) -> None:
    message.set_byte_property("byte", 1)
    once = received(message)
    assert once.get_byte_property("byte") == 1
    assert received(once).encode() == once.encode()


def test_delivery_count_is_not_passed_on() -> None:
    assert received(Message(), delivery_count=3).encode().properties is None


def test_content_that_makes_no_sense_shows_when_it_is_read() -> None:
    encoded = NOTHING._replace(message_type="MapMessage", properties="[1]", json_body="[2]")
    message = decoded(encoded)
    assert isinstance(message, MapMessage)
    assert repr(message) == "<MapMessage without id, a map>"
    with pytest.raises(MessageFormatException):
        message.get_object("a")
    with pytest.raises(MessageFormatException):
        message.get_object_property("a")
    message.clear_body()
    message.clear_properties()
    assert message.encode() == MapMessage().encode()
