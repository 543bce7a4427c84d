"""The body of any message as a whole: `getBody` and `isBodyAssignableTo` of Jakarta Messaging 3.1, clause by clause."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from jmsql import Queue, Session
from jmsql.exceptions import MessageEOFException, MessageFormatException, MessageNotWriteableException
from jmsql.messages import (
    BytesMessage,
    EncodedMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from tests.compliance.filled_messages import CLASSES, filled
from tests.received_messages import decoded

ANY_TYPES = (str, bytes, dict, int, date, Message, object)


@dataclass
class Unregistered:
    """A class whose objects no message may hold."""

    number: int


def received(message_type: str, json_body: str | None) -> Message:
    """A received message with this body, whatever wrote it."""
    return decoded(EncodedMessage(message_type, None, None, None, None, None, None, json_body, None, None))


def bytes_message(body: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(body)
    return message


def map_message(**values: Any) -> MapMessage:
    message = MapMessage()
    message.update(values)
    return message


# What the body may be assigned to: its class, and what that descends from.

ASSIGNABLE = [
    (TextMessage("text"), "text", (str, Sequence, Hashable, object), (bytes, dict, list, int, Message)),
    (TextMessage(""), "", (str, object), (bytes, int)),
    (bytes_message(b"\0a"), b"\0a", (bytes, Sequence, object), (str, bytearray, list, dict)),
    (map_message(name=1), {"name": 1}, (dict, Mapping, Sized, object), (str, bytes, list, MapMessage)),
    (ObjectMessage([1, "a"]), [1, "a"], (list, Sequence, object), (dict, tuple, str)),
    (ObjectMessage({}), {}, (dict, Mapping, object), (list, str)),
    (ObjectMessage(date(2026, 1, 5)), date(2026, 1, 5), (date, Hashable, object), (str, int)),
]


@pytest.mark.parametrize(("message", "body", "types", "_others"), ASSIGNABLE)
def test_body_is_given_as_its_class_or_a_base_of_it(
    message: Message, body: object, types: tuple[type, ...], _others: tuple[type, ...]
) -> None:
    for body_type in types:
        assert message.is_body_assignable_to(body_type)
        assert message.get_body(body_type) == body


@pytest.mark.parametrize(("message", "body", "_types", "others"), ASSIGNABLE)
def test_body_of_another_class_is_refused_and_stays(
    message: Message, body: object, _types: tuple[type, ...], others: tuple[type, ...]
) -> None:
    for body_type in others:
        assert not message.is_body_assignable_to(body_type)
        with pytest.raises(MessageFormatException, match=body_type.__name__):
            message.get_body(body_type)
    assert message.get_body(object) == body


def test_body_of_a_map_is_a_copy() -> None:
    message = map_message(name=1)
    body = message.get_body(dict)
    assert body is not None
    body["name"] = 2
    assert message.get_int("name") == 1


# No body

BODILESS = [
    Message(),
    TextMessage(),
    TextMessage(None),
    BytesMessage(),
    bytes_message(b""),
    MapMessage(),
    ObjectMessage(),
    ObjectMessage(None),
]


@pytest.mark.parametrize("body_type", ANY_TYPES)
@pytest.mark.parametrize("message", BODILESS, ids=repr)
def test_message_without_a_body_gives_none_for_any_type(message: Message, body_type: type[object]) -> None:
    assert message.is_body_assignable_to(body_type)
    assert message.get_body(body_type) is None


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not StreamMessage])
def test_cleared_message_has_no_body(kind: type[Message]) -> None:
    message = filled(kind)
    message.clear_body()
    assert message.is_body_assignable_to(date)
    assert message.get_body(date) is None


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind is not StreamMessage])
def test_received_message_without_a_body_gives_none_for_any_type(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    session.create_producer(queue).send(kind())
    message = session.create_consumer(queue).receive(timeout=60)
    assert type(message) is kind
    for body_type in ANY_TYPES:
        assert message.is_body_assignable_to(body_type)
        assert message.get_body(body_type) is None


# StreamMessage


@pytest.mark.parametrize("body_type", ANY_TYPES)
@pytest.mark.parametrize("fields", [(), ("text",)], ids=["empty", "filled"])
def test_stream_has_no_body_as_a_whole(fields: tuple[str, ...], body_type: type[object]) -> None:
    message = StreamMessage()
    for field in fields:
        message.write_string(field)
    assert not message.is_body_assignable_to(body_type)
    with pytest.raises(MessageFormatException, match="StreamMessage"):
        message.get_body(body_type)


# BytesMessage


def test_get_body_turns_a_message_that_is_being_written_to_reading() -> None:
    message = bytes_message(b"ab")
    assert message.get_body(bytes) == b"ab"
    with pytest.raises(MessageNotWriteableException):
        message.write_byte(1)
    assert message.read_byte() == ord("a")


def test_get_body_gives_all_bytes_wherever_the_message_was_read_and_starts_again() -> None:
    message = bytes_message(b"ab")
    message.reset()
    message.read_byte()
    assert message.get_body(bytes) == b"ab"
    assert message.read_short() == int.from_bytes(b"ab")
    with pytest.raises(MessageEOFException):
        message.read_byte()
    assert message.get_body(object) == b"ab"
    assert message.read_byte() == ord("a")


def test_get_body_resets_an_empty_message_too() -> None:
    message = BytesMessage()
    assert message.get_body(bytes) is None
    assert message.body_length == 0


def test_neither_a_question_nor_a_refusal_moves_the_place_in_the_bytes() -> None:
    written = bytes_message(b"ab")
    assert written.is_body_assignable_to(bytes)
    with pytest.raises(MessageFormatException):
        written.get_body(str)
    written.write_byte(ord("c"))
    written.reset()
    written.read_byte()
    assert not written.is_body_assignable_to(str)
    with pytest.raises(MessageFormatException):
        written.get_body(str)
    assert written.read_byte() == ord("b")


# What cannot be decoded

UNDECODABLE = [
    pytest.param("ObjectMessage", '{"type": "tests.Unknown", "version": 1, "data": {}}', id="class not registered"),
    pytest.param("ObjectMessage", '{"type": "uuid", "version": 1, "data": "no uuid"}', id="object refused"),
    pytest.param("ObjectMessage", '{"type": "uuid", "version": 2, "data": ""}', id="later version"),
    pytest.param("ObjectMessage", "[1]", id="no envelope"),
    pytest.param("MapMessage", "[1]", id="no map"),
    pytest.param("MapMessage", '{"name": {}}', id="no simple value"),
]


@pytest.mark.parametrize("body_type", ANY_TYPES)
@pytest.mark.parametrize(("message_type", "json_body"), UNDECODABLE)
def test_body_that_cannot_be_decoded_is_assignable_to_no_type(
    message_type: str, json_body: str, body_type: type[object]
) -> None:
    message = received(message_type, json_body)
    assert not message.is_body_assignable_to(body_type)
    with pytest.raises(MessageFormatException):
        message.get_body(body_type)


def test_object_of_a_class_that_is_not_registered_does_not_become_a_body() -> None:
    with pytest.raises(MessageFormatException, match="registered"):
        ObjectMessage(Unregistered(1))
