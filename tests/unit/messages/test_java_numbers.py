"""The samples were printed by Java; those of shortest digits are specified since Java 19."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.exceptions import NumberFormatException
from jmsql.messages.types.java_numbers import format_double, format_float, parse_double, parse_float, parse_integer

doubles = st.floats()
floats = st.floats(width=32)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (1e23, "1.0E23"),
        (2e-323, "2.0E-323"),
        (5e-324, "4.9E-324"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_double_is_written_as_java_does(value: float, text: str) -> None:
    assert format_double(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (16777216.0, "1.6777216E7"), (3.4028235e38, "3.4028235E38"), (1.4e-45, "1.4E-45"), (100.0, "100.0")],
)
def test_float_is_written_with_the_digits_of_32_bits(value: float, text: str) -> None:
    assert format_float(to_32_bits(value)) == text


def to_32_bits(value: float) -> float:
    (result,) = struct.unpack("f", struct.pack("f", value))
    assert isinstance(result, float)
    return result


def same(one: float, other: float) -> bool:
    return struct.pack("d", one) == struct.pack("d", other) or (math.isnan(one) and math.isnan(other))


@given(doubles)
def test_double_survives_being_written_and_read(value: float) -> None:
    assert same(parse_double(format_double(value)), value)


@given(floats)
def test_float_survives_being_written_and_read(value: float) -> None:
    assert same(parse_float(format_float(value)), value)


@given(doubles)
def test_double_is_written_with_no_more_digits_than_needed(value: float) -> None:
    def digits(text: str) -> int:
        mantissa = text.upper().partition("E")[0]
        return len(mantissa.lstrip("-0.").replace(".", "").rstrip("0"))

    if math.isfinite(value) and value:
        assert digits(format_double(value)) <= max(digits(repr(value)), 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("+1", 1.0),
        (" 1\t\n", 1.0),
        ("\x051\x1f", 1.0),
        ("1f", 1.0),
        ("1D", 1.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.5e-3f", 0.0015),
        ("0x1p3", 8.0),
        ("0X.8P1d", 1.0),
        ("-Infinity", -math.inf),
        ("+NaN", math.nan),
        ("1e999", math.inf),
        ("-0x1p99999", -math.inf),
        ("1e-999", 0.0),
    ],
)
def test_double_is_read_as_java_does(text: str, value: float) -> None:
    assert same(parse_double(text), value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-",
        "1e",
        "e5",
        "0x1",
        "0xp1",
        "1_0",
        "inf",
        "nan",
        "Infinityf",
        "1ff",
        "--1",
        "\xa01",
        "\u0661",
        "1L",
        "1 2",
    ],
)
def test_text_that_java_refuses_is_no_number(text: str) -> None:
    with pytest.raises(NumberFormatException, match="is not a number"):
        parse_double(text)
    with pytest.raises(NumberFormatException, match="is not a number"):
        parse_float(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.00000017881393432617187499", 1.0000001192092896),
        ("1.00000017881393432617187500", 1.000000238418579),
        ("1.00000017881393432617187501", 1.000000238418579),
        ("7.006492321624085E-46", 0.0),
        ("7.006492321624086E-46", 1.401298464324817e-45),
        ("3.4028235677973365e38", 3.4028234663852886e38),
        ("3.4028235677973367e38", math.inf),
        ("-1e39", -math.inf),
    ],
)
def test_float_is_rounded_once(text: str, value: float) -> None:
    assert parse_float(text) == value


@pytest.mark.parametrize(
    ("text", "bits", "value"),
    [
        ("127", 8, 127),
        ("-128", 8, -128),
        ("+5", 8, 5),
        ("-0", 8, 0),
        ("\u0661\u0662", 8, 12),
        ("0" * 5000 + "7", 16, 7),
        ("-9223372036854775808", 64, -(2**63)),
    ],
)
def test_integer_is_read_as_java_does(text: str, bits: int, value: int) -> None:
    assert parse_integer(text, bits) == value


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("128", 8),
        ("-129", 8),
        ("9223372036854775808", 64),
        ("9" * 10_000, 64),
        ("", 8),
        (" 5", 8),
        ("5 ", 8),
        ("+", 8),
        ("1_0", 8),
        ("1.0", 8),
        ("0x1", 8),
        ("5\n", 8),
    ],
)
def test_integer_out_of_range_or_ill_formed_is_refused(text: str, bits: int) -> None:
    with pytest.raises(NumberFormatException, match="is not an integer"):
        parse_integer(text, bits)
