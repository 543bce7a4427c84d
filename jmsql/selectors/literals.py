"""The literals of a selector.

Numbers follow the Java Language Specification, chapters 3.10.1 and 3.10.2: decimal (57), hexadecimal (0x39), octal
(071) and binary (0b111001) integers, each with an L if one likes, and always 64 bits wide; decimal and hexadecimal
floating-point numbers (7., .5, 7E3, 93f, 92d, 0x1.8p1); underscores between digits. A number with an f is rounded to
32 bits.
"""

from __future__ import annotations

import math
import re
import struct

from jmsql.selectors.expressions import Pattern, Wildcard

LONG_LIMIT = 2**63
"""The first integer that is too large. It can be written under a minus sign alone."""

_DIGITS = "[0-9](?:_*[0-9])*"
_HEXADECIMAL = "[0-9a-fA-F](?:_*[0-9a-fA-F])*"
_decimal = re.compile("(0|[1-9](?:_*[0-9])*)[lL]?").fullmatch
_other_base = re.compile(f"(0[xX]{_HEXADECIMAL}|0[bB][01](?:_*[01])*|0(?:_*[0-7])+)[lL]?").fullmatch
_floating = re.compile(
    rf"((?:{_DIGITS}\.(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?|{_DIGITS}[eE][+-]?{_DIGITS}|{_DIGITS}(?=[fFdD]))([fFdD]?)"
).fullmatch
_hexadecimal_floating = re.compile(
    rf"(0[xX](?:{_HEXADECIMAL}\.?|(?:{_HEXADECIMAL})?\.{_HEXADECIMAL})[pP][+-]?{_DIGITS})([fFdD]?)"
).fullmatch


def parse_number(text: str) -> int | float:
    """Read a number without its sign.

    Returns:
        An int for an exact number, up to and including `LONG_LIMIT`; a float for an approximate one.

    Raises:
        ValueError: It is not a number, or out of range; the message says so.
    """
    digits = text.replace("_", "")
    if match := _decimal(text):
        digits = digits.rstrip("lL")
        if len(digits) > len(str(LONG_LIMIT)) or int(digits) > LONG_LIMIT:
            raise ValueError("the integer needs more than 64 bits")
        return int(digits)
    if match := _other_base(text):
        return _parse_bits(digits.rstrip("lL"))
    if match := _floating(text):
        significand = re.split("[eE]", match[1])[0]
        return _checked(float(match[1].replace("_", "")), match[2], is_zero=significand.strip("0_.") == "")
    if match := _hexadecimal_floating(text):
        significand = re.split("[pP]", match[1][2:])[0]
        try:
            value = float.fromhex(match[1].replace("_", ""))
        except OverflowError:
            value = math.inf
        return _checked(value, match[2], is_zero=significand.strip("0_.") == "")
    raise ValueError("this is no number")


def _parse_bits(digits: str) -> int:
    base = {"x": 16, "b": 2}.get(digits[1].lower(), 8)
    bits = int(digits[1:] if base == 8 else digits[2:], base)
    if bits >= 2 * LONG_LIMIT:
        raise ValueError("the integer needs more than 64 bits")
    return bits if bits < LONG_LIMIT else bits - 2 * LONG_LIMIT


def _checked(value: float, suffix: str, *, is_zero: bool) -> float:
    if suffix in ("f", "F"):
        try:
            value = float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            value = math.inf
    if math.isinf(value):
        raise ValueError("the number is too large")
    if value == 0 and not is_zero:
        raise ValueError("the number is too small")
    return value


def parse_string(text: str) -> str:
    """Read a string in its quotes."""
    return text[1:-1].replace("''", "'")


def parse_pattern(text: str, escape: str | None) -> Pattern:
    """Read the pattern of LIKE.

    Raises:
        ValueError: The escape character stands before anything else, as SQL92 forbids; the message says so.
    """
    pattern: list[str | Wildcard] = []
    plain: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("_", "%", escape):
                raise ValueError("in the pattern, the escape character may stand only before '_', '%' and itself")
            plain.append(following)
        elif character in "_%":
            if plain:
                pattern.append("".join(plain))
                plain.clear()
            wildcard = Wildcard(character)
            if wildcard is Wildcard.CHARACTER or pattern[-1:] != [wildcard]:
                pattern.append(wildcard)
        else:
            plain.append(character)
    if plain:
        pattern.append("".join(plain))
    return tuple(pattern)
