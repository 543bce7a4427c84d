"""The identifiers of JMS: property names, and names in message selectors.

An identifier is a Java identifier of any length that is none of the selector's own words. Source: JMS 1.1 chapters
3.5.1 and 3.8.1.1; `Character.isJavaIdentifierStart` and `isJavaIdentifierPart` of Java.
"""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import category

RESERVED_WORDS = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"),
)
"""The selector's words, which in any mixture of case are no identifiers."""

IDENTIFIER_CANDIDATE = r"[A-Za-z_$\x80-\U0010ffff][A-Za-z0-9_$\x00-\x08\x0e-\x1b\x7f-\U0010ffff]*"
"""A regular expression for a scanner: the longest text that may be an identifier; `is_identifier` then decides.

It takes every character beyond ASCII, because Python's regular expressions know no Unicode categories.
"""

_ascii_identifier = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*").fullmatch
_START_CATEGORIES = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PART_CATEGORIES = _START_CATEGORIES | {"Nd", "Mc", "Mn", "Cf"}
_IGNORED_CONTROLS = frozenset(map(chr, (*range(0x09), *range(0x0E, 0x1C), *range(0x7F, 0xA0))))


@lru_cache(maxsize=4096)
def is_identifier(name: str) -> bool:
    """Tell whether `name` can name a property, and be named by a selector."""
    if _ascii_identifier(name) is None and not _is_unicode_identifier(name):
        return False
    return len(name) > 7 or name.upper() not in RESERVED_WORDS


def _is_unicode_identifier(name: str) -> bool:
    return (
        name != ""
        and category(name[0]) in _START_CATEGORIES
        and all(character in _IGNORED_CONTROLS or category(character) in _PART_CATEGORIES for character in name)
    )
