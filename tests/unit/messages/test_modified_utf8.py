from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.exceptions import MessageFormatException
from jmsql.messages.types.modified_utf8 import decode_modified_utf8, encode_modified_utf8


@given(st.text())
def test_text_survives(text: str) -> None:
    encoded = encode_modified_utf8(text)
    assert int.from_bytes(encoded[:2], "big") == len(encoded) - 2
    assert decode_modified_utf8(encoded[2:]) == text


def test_nul_and_characters_beyond_16_bits_are_written_as_java_does() -> None:
    assert encode_modified_utf8("\0é😀") == b"\0\x0a\xc0\x80\xc3\xa9\xed\xa0\xbd\xed\xb8\x80"


def test_half_a_surrogate_pair_survives() -> None:
    assert decode_modified_utf8(encode_modified_utf8("a\ud800b")[2:]) == "a\ud800b"


def test_longest_string_takes_65535_bytes() -> None:
    assert len(encode_modified_utf8("x" * 65535)) == 65537
    with pytest.raises(MessageFormatException, match="65536 bytes"):
        encode_modified_utf8("x" * 65536)
    with pytest.raises(MessageFormatException, match="write it as bytes"):
        encode_modified_utf8("\0" * 32768)
