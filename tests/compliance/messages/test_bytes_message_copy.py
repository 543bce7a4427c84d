"""A BytesMessage keeps copies of arrays: JMS 1.1 chapter 3.12."""

from __future__ import annotations

import pytest

from jmsql.messages import BytesMessage

pytestmark = pytest.mark.requirement("message.copy")


@pytest.mark.case("bytes-message-copy-01")
def test_write_bytes_copies_the_part_of_the_array() -> None:
    array = bytearray(b"before")
    message = BytesMessage()
    message.write_bytes(array, 2, 3)
    array[:] = b"after!"
    assert message.get_body(bytes) == b"for"


@pytest.mark.case("bytes-message-copy-02")
def test_write_bytes_copies_the_array() -> None:
    array = bytearray(b"before")
    message = BytesMessage()
    message.write_bytes(array)
    array[:] = b"after!"
    assert message.get_body(bytes) == b"before"
