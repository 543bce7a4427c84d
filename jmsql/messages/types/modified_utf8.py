"""Strings as Java's `DataOutput.writeUTF` writes them: a length in two bytes, then modified UTF-8.

Modified UTF-8 writes NUL in two bytes, and a character beyond U+FFFF as its two surrogates in three bytes each. Two
surrogates that stand side by side in a string are therefore read back as the one character that they form.
"""

from __future__ import annotations

import re

from jmsql.exceptions import MessageFormatException

_LIMIT = 0xFFFF
_beyond_16_bits = re.compile("[\U00010000-\U0010ffff]")
_four_bytes = re.compile(b"[\xf0-\xff]")


def encode_modified_utf8(text: str) -> bytes:
    """Write a string, its length first.

    Raises:
        MessageFormatException: The string takes more than 65535 bytes.
    """
    code_units = _beyond_16_bits.sub(_as_surrogates, text)
    encoded = code_units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(encoded) > _LIMIT:
        raise MessageFormatException(
            f"The string takes {len(encoded)} bytes, and write_utf takes at most {_LIMIT}; "
            "write it as bytes with its length in front."
        )
    return len(encoded).to_bytes(2, "big") + encoded


def decode_modified_utf8(encoded: bytes) -> str:
    """Read a string from its bytes, which stand behind the length.

    Raises:
        MessageFormatException: The bytes are no modified UTF-8.
    """
    if _four_bytes.search(encoded):
        raise MessageFormatException("The bytes read are not a string in modified UTF-8: four bytes for one character.")
    try:
        code_units = encoded.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except ValueError as error:
        raise MessageFormatException(f"The bytes read are not a string in modified UTF-8: {error}.") from error
    return code_units.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _as_surrogates(match: re.Match[str]) -> str:
    offset = ord(match.group()) - 0x10000
    return chr(0xD800 + (offset >> 10)) + chr(0xDC00 + (offset & 0x3FF))
