"""Any value, written as any type and read as any other, in properties, maps and streams alike.

The table stands here as JMS prints it, and what comes out is worked out by other means than the product's.
"""

from __future__ import annotations

import math
import struct
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jmsql.exceptions import MessageFormatException, NullValueError, NumberFormatException
from jmsql.messages import MapMessage, Message, StreamMessage
from tests.unit.messages.rows import received

TABLE = """
          boolean byte short char int long float double string bytes
boolean      X     .     .    .    .    .    .     .      X      .
byte         .     X     X    .    X    X    .     .      X      .
short        .     .     X    .    X    X    .     .      X      .
char         .     .     .    X    .    .    .     .      X      .
int          .     .     .    .    X    X    .     .      X      .
long         .     .     .    .    .    X    .     .      X      .
float        .     .     .    .    .    .    X     X      X      .
double       .     .     .    .    .    .    .     X      X      .
string       X     X     X    .    X    X    X     X      X      .
bytes        .     .     .    .    .    .    .     .      .      X
"""
COLUMNS, *ROWS = (line.split() for line in TABLE.strip().splitlines())
PERMITTED = {(row[0], column) for row in ROWS for column, mark in zip(COLUMNS, row[1:], strict=True) if mark == "X"}
NULL = {"byte", "short", "int", "long"}, {"float", "double", "char"}
"""As which types a null is no number, and as which it is a null pointer."""

BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


NUMERALS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-130, 130).map("{:+d}".format),
    st.integers(0, 300).map("{:06d}".format),
    st.integers(0, 300).map(lambda number: str(number).translate({48 + digit: 0x0660 + digit for digit in range(10)})),
    st.floats(allow_nan=False).map(repr).map(lambda text: text.replace("inf", "Infinity")),
    st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from("fFdD")).map(
        lambda p: f" {p[0]!r}{p[1]}\n"
    ),
    st.sampled_from(
        ["NaN", "+NaN", "Infinity", "inf", "nan", "1_0", "0x10", "1e400", "-1e-400", ".5", "5.", ".", "1 2"]
    ),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    **{kind: integers(bits) for kind, bits in BITS.items()},
    "char": st.characters(max_codepoint=0xFFFF, categories=None),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.one_of(
        st.none(),
        st.text(st.characters(categories=None), max_size=20),
        NUMERALS,
        st.sampled_from(["true", "TRUE", "tRue", "False", "true "]),
    ),
    "bytes": st.one_of(st.none(), st.binary(max_size=20)),
}
WRITTEN = st.sampled_from(sorted(VALUES)).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind]))


def expected(written: str, value: Any, read: str) -> Any:
    """What Java makes of it: a value, or the class of the exception."""
    if value is None:
        no_number, null_pointer = NULL
        if read in no_number:
            return NumberFormatException
        return NullValueError if read in null_pointer else False if read == "boolean" else None
    if (written, read) not in PERMITTED:
        return MessageFormatException
    if written == "string" and read != "string":
        return from_string(value, read)
    if read == "string" and isinstance(value, bool):
        return "true" if value else "false"
    if read == "string" and written in BITS:
        return str(value)
    return value


def from_string(text: str, read: str) -> Any:
    if read == "boolean":
        return [character.upper() for character in text] == ["T", "R", "U", "E"]
    if read in BITS:
        sign, digits = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
        numbers = [unicodedata.decimal(digit, None) for digit in digits]
        if not numbers or None in numbers:
            return NumberFormatException
        number = int(sign + "".join(map(str, numbers)))
        return number if -(2 ** (BITS[read] - 1)) <= number < 2 ** (BITS[read] - 1) else NumberFormatException
    return from_floating_string(text.strip("".join(map(chr, range(33)))), read)


def from_floating_string(text: str, read: str) -> Any:
    if text.lstrip("+-") in ("NaN", "Infinity") and len(text) - len(text.lstrip("+-")) <= 1:
        return float(text)
    digits = text[:-1] if text[-1:] in tuple("fFdD") else text
    if not digits or set(digits) - set("0123456789+-.eE"):
        return NumberFormatException  # hexadecimal ones have tests of their own
    try:
        double = float(digits)
    except ValueError:
        return NumberFormatException
    if read == "double":
        return double
    try:
        return struct.unpack(">f", struct.pack(">f", double))[0]
    except OverflowError:
        return math.copysign(math.inf, double)


def check(outcome: Any, written: str, value: Any, read: str) -> None:
    """Compare what came out, or the exception's class, with what should."""
    wanted = expected(written, value, read)
    if written in ("float", "double") and read == "string":
        assert isinstance(outcome, str)
        text = outcome.replace("Infinity", "inf")
        assert "inf" in text or "NaN" in text or "." in text, "Java's numbers have a point"
        digits = (
            struct.unpack(">f", struct.pack(">f", float(text)))[0]
            if written == "float" and math.isfinite(value)
            else float(text)
        )
        outcome, wanted = digits, value
    if isinstance(wanted, float) and math.isnan(wanted):
        assert isinstance(outcome, float)
        assert math.isnan(outcome)
    elif isinstance(wanted, float):
        assert (outcome, math.copysign(1, outcome)) == (wanted, math.copysign(1, wanted))
    else:
        assert outcome == wanted
        assert type(outcome) is type(wanted)


def outcome_of(read: Any) -> Any:
    try:
        return read()
    except (MessageFormatException, NumberFormatException, NullValueError) as error:
        return type(error)


@given(WRITTEN, st.sampled_from(COLUMNS), st.booleans())
def test_map_and_stream_convert_as_the_table_says(written: tuple[str, Any], read: str, travels: bool) -> None:
    kind, value = written
    named, row = MapMessage(), StreamMessage()
    getattr(named, f"set_{kind}")("name", value)
    getattr(row, f"write_{kind}")(value)
    if travels:
        named, row = received(named), received(row)
    row.reset()
    check(outcome_of(lambda: getattr(named, f"get_{read}")("name")), kind, value, read)
    if read != "bytes":
        check(outcome_of(getattr(row, f"read_{read}")), kind, value, read)


@given(
    WRITTEN.filter(lambda written: written[0] not in ("char", "bytes")),
    st.sampled_from([column for column in COLUMNS if column not in ("char", "bytes")]),
    st.booleans(),
)
def test_property_converts_as_the_table_says(written: tuple[str, Any], read: str, travels: bool) -> None:
    kind, value = written
    message = Message()
    getattr(message, f"set_{kind}_property")("name", value)
    if travels:
        message = received(message)
    check(outcome_of(lambda: getattr(message, f"get_{read}_property")("name")), kind, value, read)


@given(WRITTEN, st.booleans())
def test_value_read_as_an_object_and_written_again_keeps_its_type(written: tuple[str, Any], travels: bool) -> None:
    kind, value = written
    first, second = MapMessage(), MapMessage()
    getattr(first, f"set_{kind}")("name", value)
    second.set_object("name", (received(first) if travels else first).get_object("name"))
    for read in COLUMNS:
        check(outcome_of(lambda read=read: getattr(second, f"get_{read}")("name")), kind, value, read)
