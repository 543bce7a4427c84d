r"""Any Python string as PostgreSQL text, and back.

PostgreSQL's ``text`` and ``jsonb`` hold every character but NUL and lone surrogates. These few are written as two
characters: U+FFFE (which Unicode reserves, so that no ordinary text holds it) and a stand-in. All other text stays as
it is, so that it reads well in psql, and two strings are equal in PostgreSQL exactly when they are equal in Python.

| character          | written as                    |
| ------------------ | ----------------------------- |
| NUL                | U+FFFE ``0``                  |
| U+FFFE             | U+FFFE U+FFFE                 |
| U+D800 ... U+DFFF  | U+FFFE U+10F800 ... U+10FFFF  |
"""

from __future__ import annotations

import re

ESCAPE = "\ufffe"
"""The character that announces a stand-in."""

_SURROGATE_OFFSET = 0x10F800 - 0xD800
_special = re.compile("[\0\ud800-\udfff\ufffe]")
_escaped = re.compile("\ufffe(.)", re.DOTALL)
needs_escape = _special.search
"""Tells (by a match object or None) whether a string holds a character that is written in two."""


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\0":
        return ESCAPE + "0"
    if character == ESCAPE:
        return ESCAPE + ESCAPE
    return ESCAPE + chr(ord(character) + _SURROGATE_OFFSET)


def _unescape(match: re.Match[str]) -> str:
    stand_in = match.group(1)
    if stand_in == "0":
        return "\0"
    if stand_in == ESCAPE:
        return ESCAPE
    if "\U0010f800" <= stand_in <= "\U0010ffff":
        return chr(ord(stand_in) - _SURROGATE_OFFSET)
    return match.group()  # jmsql has not written it


def to_postgresql(text: str) -> str:
    """Write `text` so that PostgreSQL can store it."""
    # Measured: for ASCII text, which most is, this is much faster than the search.
    if text.isascii() and "\0" not in text:
        return text
    return text if needs_escape(text) is None else _special.sub(_escape, text)


def optional_to_postgresql(text: str | None) -> str | None:
    """Write `text` so that PostgreSQL can store it; None becomes null."""
    return None if text is None else to_postgresql(text)


def from_postgresql(text: str) -> str:
    """Return the text that [`to_postgresql`][jmsql.values.postgresql_text.to_postgresql] has converted."""
    return _escaped.sub(_unescape, text) if ESCAPE in text else text


def escape_like(text: str) -> str:
    """Return the pattern of SQL's LIKE that only a text itself matches."""
    return re.sub(r"([\\%_])", r"\\\1", text)
