"""Properties read as another type than they were set with: JMS 1.1 chapter 3.5.4, table 3-2."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql.exceptions import MessageFormatException, NumberFormatException
from jmsql.messages import Message
from tests.compliance.conversion_tables import (
    CONVERSIONS,
    FORBIDDEN,
    NOT_NUMBERS,
    NULL_READ_AS,
    NUMBERS,
    OUT_OF_RANGE,
    PROPERTY_TYPES,
    TEXTS,
    VALUES,
    check_null,
)

pytestmark = pytest.mark.requirement("properties.conversion")

CASES = {
    "boolean": "property-conversion-01",
    "byte": "property-conversion-02",
    "double": "property-conversion-03",
    "float": "property-conversion-04",
    "int": "property-conversion-05",
    "long": "property-conversion-06",
    "short": "property-conversion-08",
}
STRING_CASES = {
    "boolean": "property-conversion-09",
    "byte": "property-conversion-10",
    "double": "property-conversion-11",
    "float": "property-conversion-12",
    "int": "property-conversion-13",
    "long": "property-conversion-14",
    "short": "property-conversion-16",
}


def message_with(kind: str, value: object) -> Message:
    message = Message()
    getattr(message, f"set_{kind}_property")("name", value)
    return message


def read(message: Message, kind: str) -> Any:
    return getattr(message, f"get_{kind}_property")("name")


@pytest.mark.parametrize(
    ("written", "value", "as_type"),
    [
        pytest.param(written, value, as_type, marks=pytest.mark.case(CASES[written]))
        for written, value, as_type in CONVERSIONS
        if written in CASES
    ],
)
def test_property_reads_as_each_type_that_holds_its_values(written: str, value: object, as_type: str) -> None:
    result = read(message_with(written, value), as_type)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("written", "as_type"),
    [
        pytest.param(written, as_type, marks=pytest.mark.case(CASES[written]))
        for written, as_type in FORBIDDEN
        if written in CASES and as_type in PROPERTY_TYPES
    ],
)
def test_property_refuses_to_be_read_as_other_types(written: str, as_type: str) -> None:
    message = message_with(written, VALUES[written][0])
    with pytest.raises(MessageFormatException, match="'name' is a"):
        read(message, as_type)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [pytest.param(*sample, marks=pytest.mark.case(CASES[sample[0]], STRING_CASES[sample[0]])) for sample in TEXTS],
)
def test_property_becomes_a_string_as_in_java_and_back(kind: str, value: object, text: str) -> None:
    assert read(message_with(kind, value), "string") == text
    assert read(message_with("string", text), kind) == value


@pytest.mark.case("property-conversion-09")
@pytest.mark.parametrize(
    ("text", "value"), [("TRUE", True), ("tRuE", True), ("true ", False), ("1", False), ("yes", False), ("", False)]
)
def test_only_true_in_any_case_is_a_true_string(text: str, value: bool) -> None:
    assert read(message_with("string", text), "boolean") is value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param(kind, text, marks=pytest.mark.case(STRING_CASES[kind]))
        for kind in NUMBERS
        for text in (*NOT_NUMBERS, *([OUT_OF_RANGE[kind]] if kind in OUT_OF_RANGE else []))
    ],
)
def test_string_that_is_no_such_number_is_refused(kind: str, text: str) -> None:
    message = message_with("string", text)
    with pytest.raises(NumberFormatException):
        read(message, kind)
    assert read(message, "string") == text


@pytest.mark.requirement("properties.conversion.null")
@pytest.mark.case("property-conversion-07")
@pytest.mark.parametrize("message", [Message(), message_with("object", None)], ids=["missing", "null"])
@pytest.mark.parametrize("kind", [kind for kind in NULL_READ_AS if kind not in ("char", "bytes")])
def test_missing_or_null_property_is_read_as_in_java(message: Message, kind: str) -> None:
    check_null(lambda as_type: read(message, as_type), kind)


@pytest.mark.case("property-conversion-15")
@pytest.mark.parametrize(("kind", "value", "text"), TEXTS)
def test_property_set_as_an_object_reads_as_a_string(kind: str, value: object, text: str) -> None:
    message = Message()
    message.set_object_property("name", read(message_with(kind, value), "object"))
    assert message.get_string_property("name") == text
    message.set_string_property("name", text)
    assert message.get_object_property("name") == text
