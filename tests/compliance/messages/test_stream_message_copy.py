"""A StreamMessage keeps copies of arrays: JMS 1.1 chapter 3.12."""

from __future__ import annotations

import pytest

from jmsql.messages import StreamMessage

pytestmark = pytest.mark.requirement("message.copy")


@pytest.mark.case("stream-message-copy-01")
def test_write_object_copies_the_array() -> None:
    array = bytearray(b"before")
    message = StreamMessage()
    message.write_object(array)
    array[:] = b"after!"
    message.reset()
    assert message.read_object() == b"before"


@pytest.mark.case("stream-message-copy-02")
def test_write_bytes_copies_the_part_of_the_array() -> None:
    array = bytearray(b"before")
    message = StreamMessage()
    message.write_bytes(array, 2, 3)
    array[:] = b"after!"
    message.reset()
    assert message.read_object() == b"for"


@pytest.mark.case("stream-message-copy-03")
def test_write_bytes_copies_the_array() -> None:
    array = bytearray(b"before")
    message = StreamMessage()
    message.write_bytes(array)
    array[:] = b"after!"
    message.reset()
    assert message.read_object() == b"before"
