"""A MapMessage keeps copies of arrays: JMS 1.1 chapter 3.12."""

from __future__ import annotations

import pytest

from jmsql.messages import MapMessage

pytestmark = pytest.mark.requirement("message.copy")


@pytest.mark.case("map-message-copy-01")
def test_set_object_copies_the_array() -> None:
    array = bytearray(b"before")
    message = MapMessage()
    message.set_object("array", array)
    array[:] = b"after!"
    assert message.get_bytes("array") == b"before"


@pytest.mark.case("map-message-copy-02")
def test_set_bytes_copies_the_part_of_the_array() -> None:
    array = bytearray(b"before")
    message = MapMessage()
    message.set_bytes("array", array, 2, 3)
    array[:] = b"after!"
    assert message.get_bytes("array") == b"for"


@pytest.mark.case("map-message-copy-03")
def test_set_bytes_copies_the_array() -> None:
    array = bytearray(b"before")
    message = MapMessage()
    message.set_bytes("array", array)
    array[:] = b"after!"
    assert message.get_bytes("array") == b"before"
