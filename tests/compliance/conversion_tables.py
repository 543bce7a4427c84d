"""The conversion tables of JMS, stated for tests: which type may be read as which, and what comes out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql.exceptions import NullValueError, NumberFormatException

PRIMITIVES = ("boolean", "byte", "short", "char", "int", "long", "float", "double")
NUMBERS = ("byte", "short", "int", "long", "float", "double")

READABLE_AS: dict[str, tuple[str, ...]] = {
    "boolean": ("boolean", "string"),
    "byte": ("byte", "short", "int", "long", "string"),
    "short": ("short", "int", "long", "string"),
    "char": ("char", "string"),
    "int": ("int", "long", "string"),
    "long": ("long", "string"),
    "float": ("float", "double", "string"),
    "double": ("double", "string"),
    "string": ("boolean", "byte", "short", "int", "long", "float", "double", "string"),
    "bytes": ("bytes",),
}
"""Table 3-7: written as the key, readable as those. Table 3-2 is the same without char and bytes."""

PROPERTY_TYPES = tuple(kind for kind in READABLE_AS if kind not in ("char", "bytes"))

VALUES: dict[str, list[object]] = {
    "boolean": [True, False],
    "byte": [-(2**7), -1, 0, 2**7 - 1],
    "short": [-(2**15), 0, 2**15 - 1],
    "char": ["a", "\0", "\ud800", "\uffff"],
    "int": [-(2**31), 0, 2**31 - 1],
    "long": [-(2**63), 0, 2**63 - 1],
    "float": [0.0, -0.0, 0.5, 2.0**-149, (2 - 2.0**-23) * 2.0**127, float("inf"), float("-inf")],
    "double": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf")],
    "string": ["", "text", "\0 and \ud800"],
    "bytes": [b"", b"\x00\xff"],
}

TEXTS: list[tuple[str, object, str]] = [
    ("boolean", True, "true"),
    ("boolean", False, "false"),
    ("byte", -128, "-128"),
    ("short", 32767, "32767"),
    ("int", -2147483648, "-2147483648"),
    ("long", 9223372036854775807, "9223372036854775807"),
    ("float", 0.10000000149011612, "0.1"),
    ("float", 1e10, "1.0E10"),
    ("float", 1.401298464324817e-45, "1.4E-45"),
    ("float", 3.4028234663852886e38, "3.4028235E38"),
    ("double", 100.0, "100.0"),
    ("double", 1e7, "1.0E7"),
    ("double", 0.001, "0.001"),
    ("double", 0.00012, "1.2E-4"),
    ("double", 5e-324, "4.9E-324"),
    ("double", 1.7976931348623157e308, "1.7976931348623157E308"),
    ("double", float("inf"), "Infinity"),
    ("double", float("-inf"), "-Infinity"),
    ("double", -0.0, "-0.0"),
]
"""Values with the text that Java writes for them, and reads as them."""

NULL_READ_AS: dict[str, type[Exception] | bool | None] = {
    "boolean": False,
    "byte": NumberFormatException,
    "short": NumberFormatException,
    "int": NumberFormatException,
    "long": NumberFormatException,
    "float": NullValueError,
    "double": NullValueError,
    "char": NullValueError,
    "string": None,
    "bytes": None,
    "object": None,
}
"""What comes of a null, or of a name that was never set: the outcome of Java's `valueOf((String) null)`."""

NOT_NUMBERS = ("", "a", "--1", "0x1", "1_000", "1L", "one", "1 2")
"""Strings that Java reads as no number of any type."""

OUT_OF_RANGE = {"byte": "128", "short": "-32769", "int": "2147483648", "long": "9223372036854775808"}

FORBIDDEN = [
    (written, read)
    for written, allowed in READABLE_AS.items()
    for read in READABLE_AS
    if read not in allowed and written != "string"
] + [("string", "char"), ("string", "bytes")]
"""All pairs that neither table has."""

CONVERSIONS = [
    (written, value, read)
    for written, allowed in READABLE_AS.items()
    if written != "string"
    for read in allowed
    if read != "string"
    for value in VALUES[written]
]
"""All permitted conversions but those from and to String; the value stays the same."""


def check_null(read: Callable[[str], object], kind: str) -> None:
    """Check what reading a null as `kind` comes to; `read` does it."""
    expected = NULL_READ_AS[kind]
    if isinstance(expected, type):
        with pytest.raises(expected, match="null or was never set"):
            read(kind)
    else:
        assert read(kind) is expected
