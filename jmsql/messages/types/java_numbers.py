"""Numbers as Java writes and reads them, which the conversions between numbers and strings follow.

Source: JMS 1.1 chapters 3.5.4 and 3.11.3, which refer to `toString` and `valueOf` of Java's number classes. Numbers
are written as Java 19 and later do: with the fewest digits that read back as the same number.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal

from jmsql.exceptions import NumberFormatException

_integer = re.compile(r"[+-]?\d+").fullmatch
_decimal = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?").fullmatch
_hexadecimal = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?").fullmatch
_named = re.compile(r"[+-]?(?:NaN|Infinity)").fullmatch
_WHITE_SPACE = "".join(map(chr, range(0x21)))
_LONGEST_INTEGER = 40
_FIRST_BEYOND_32_BITS = 2.0**128


def parse_integer(text: str, bits: int) -> int:
    """Read a signed integer of `bits` bits as `Byte.valueOf`, `Short.valueOf` and so on do.

    Raises:
        NumberFormatException: The text is not an integer of that size.
    """
    if _integer(text) is not None:
        sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
        significant = digits.lstrip("0") or "0"
        if len(significant) <= _LONGEST_INTEGER:
            value = int(sign + significant)
            if -(1 << bits - 1) <= value < 1 << bits - 1:
                return value
    raise NumberFormatException(f"{_shown(text)} is not an integer of {bits} bits.")


def parse_double(text: str) -> float:
    """Read a number as `Double.valueOf` does.

    Raises:
        NumberFormatException: The text is not a number.
    """
    return _parse(text)[0]


def parse_float(text: str) -> float:
    """Read a number as `Float.valueOf` does: the nearest number of 32 bits.

    Raises:
        NumberFormatException: The text is not a number.
    """
    value, decimal_text = _parse(text)
    nearest = _round_to_32_bits(value)
    if decimal_text and nearest != value:
        # Rounding twice, to 64 and then to 32 bits, goes wrong only where the first result lies halfway.
        bound = math.copysign(_FIRST_BEYOND_32_BITS, value)
        one_side = bound if math.isinf(nearest) else nearest
        other_side = one_side + 2 * (value - one_side)
        if _round_to_32_bits(other_side) == other_side and (exact := Decimal(decimal_text)) != (half := Decimal(value)):
            return _round_to_32_bits(max(one_side, other_side) if exact > half else min(one_side, other_side))
    return nearest


def _parse(text: str) -> tuple[float, str]:
    """Read a number; return it with its text if it is decimal, else with an empty one."""
    trimmed = text.strip(_WHITE_SPACE)
    if match := _decimal(trimmed):
        return float(match[1]), match[1]
    if match := _hexadecimal(trimmed):
        try:
            return float.fromhex(match[1]), ""
        except OverflowError:
            return float("-inf" if trimmed[0] == "-" else "inf"), ""
    if _named(trimmed):
        return float(trimmed), ""
    raise NumberFormatException(f"{_shown(text)} is not a number.")


def _round_to_32_bits(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "…")


def format_double(value: float) -> str:
    """Write a number as `Double.toString` does."""
    text = float.__repr__(value)
    if text in _NAMES:
        return _NAMES[text]
    exponential = f"{value:.1e}"
    return _layout(exponential if float(exponential) == value else text)


def format_float(value: float) -> str:
    """Write a number of 32 bits as `Float.toString` does."""
    text = float.__repr__(float(value))
    if text in _NAMES:
        return _NAMES[text]
    for fraction_digits in range(1, 9):
        text = f"{value:.{fraction_digits}e}"
        if parse_float(text) == value:
            break
    return _layout(text)


_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0.0": "0.0", "-0.0": "-0.0"}


def _layout(text: str) -> str:
    """Lay out the digits of a finite number other than zero in Java's manner."""
    sign, digit_tuple, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)  # finite
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    point = len(digit_tuple) + exponent  # where the decimal point stands, counted from the first digit
    if -3 < point <= 7:
        digits = digits.rjust(len(digits) - point + 1, "0") if point <= 0 else digits.ljust(point, "0")
        point = max(point, 1)
        return f"{'-' * sign}{digits[:point]}.{digits[point:] or '0'}"
    return f"{'-' * sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
