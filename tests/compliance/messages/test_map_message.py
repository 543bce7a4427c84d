"""MapMessage: JMS 1.1 chapter 3.11, table 3-7."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from jmsql.exceptions import MessageFormatException, NumberFormatException
from jmsql.messages import Byte, Char, Float, Long, MapMessage, Short
from tests.compliance.conversion_tables import (
    CONVERSIONS,
    FORBIDDEN,
    NOT_NUMBERS,
    NULL_READ_AS,
    NUMBERS,
    OUT_OF_RANGE,
    READABLE_AS,
    TEXTS,
    VALUES,
    check_null,
)


def message_with(kind: str, value: object) -> MapMessage:
    message = MapMessage()
    getattr(message, f"set_{kind}")("name", value)
    return message


def read(message: MapMessage, kind: str) -> Any:
    return getattr(message, f"get_{kind}")("name")


@pytest.mark.requirement("message.map")
@pytest.mark.case("map-message-08")
@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind in READABLE_AS for value in VALUES[kind]])
def test_value_reads_as_it_was_set(kind: str, value: object) -> None:
    assert read(message_with(kind, value), kind) == value


@pytest.mark.requirement("message.map.case")
@pytest.mark.case("map-message-01")
def test_names_that_differ_in_case_are_different_entries() -> None:
    message = MapMessage()
    message.set_int("abc", 1)
    message.set_int("ABC", 2)
    assert (message.get_int("abc"), message.get_int("ABC"), message.item_exists("Abc")) == (1, 2, False)


@pytest.mark.requirement("message.map.conversion")
@pytest.mark.case("map-message-02")
@pytest.mark.parametrize(("written", "value", "as_type"), CONVERSIONS)
def test_value_reads_as_each_type_that_holds_it(written: str, value: object, as_type: str) -> None:
    result = read(message_with(written, value), as_type)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.requirement("message.map.conversion")
@pytest.mark.case("map-message-02", "map-message-10")
@pytest.mark.parametrize(("kind", "value", "text"), [*TEXTS])
def test_value_becomes_a_string_as_in_java_and_back(kind: str, value: object, text: str) -> None:
    assert read(message_with(kind, value), "string") == text
    assert read(message_with("string", text), kind) == value


@pytest.mark.requirement("message.map.conversion")
@pytest.mark.case("map-message-02")
def test_char_reads_as_a_string() -> None:
    assert read(message_with("char", "\ud800"), "string") == "\ud800"


@pytest.mark.requirement("message.map.conversion")
@pytest.mark.case("map-message-10")
@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("true", True), ("yes", False), ("", False)])
def test_only_true_in_any_case_is_a_true_string(text: str, value: bool) -> None:
    assert read(message_with("string", text), "boolean") is value


@pytest.mark.requirement("message.map.method.getMapNames")
@pytest.mark.case("map-message-03")
def test_map_names_are_all_names_set() -> None:
    message = MapMessage()
    for kind, values in VALUES.items():
        getattr(message, f"set_{kind}")(kind, values[0])
    message.set_object("nothing", None)
    assert sorted(message.map_names) == sorted([*VALUES, "nothing"])


@pytest.mark.requirement("message.map.conversion")
@pytest.mark.case("map-message-04")
@pytest.mark.parametrize(("written", "as_type"), FORBIDDEN)
def test_value_refuses_to_be_read_as_other_types(written: str, as_type: str) -> None:
    with pytest.raises(MessageFormatException):
        read(message_with(written, VALUES[written][0]), as_type)


@pytest.mark.requirement("message.map.conversion")
@pytest.mark.case("map-message-05")
@pytest.mark.parametrize("kind", NUMBERS)
def test_string_that_is_no_such_number_is_refused(kind: str) -> None:
    for text in (*NOT_NUMBERS, OUT_OF_RANGE.get(kind, "")):
        with pytest.raises(NumberFormatException):
            read(message_with("string", text), kind)


@pytest.mark.requirement("message.map.method.setObject")
@pytest.mark.case("map-message-06")
@pytest.mark.parametrize("value", [Decimal(1), object(), [], {}, 1j, 2**63])
def test_set_object_refuses_other_classes(value: object) -> None:
    message = MapMessage()
    with pytest.raises(MessageFormatException):
        message.set_object("name", value)  # type: ignore[arg-type]
    assert not message.item_exists("name")


@pytest.mark.requirement("message.map.method.setObject")
@pytest.mark.case("map-message-12")
@pytest.mark.parametrize(
    "value",
    [True, Byte(1), Short(2), Char("c"), 3, Long(4), Float(0.5), 0.1, "text", b"bytes", None],
    ids=lambda value: type(value).__name__,
)
def test_set_object_keeps_value_and_type(value: bool | float | str | bytes | None) -> None:
    message = MapMessage()
    message.set_object("name", value)
    result = message.get_object("name")
    assert result == value
    assert type(result) is type(value)


@pytest.mark.requirement("message.map.method.itemExists")
@pytest.mark.case("map-message-07")
def test_item_exists_once_it_is_set_even_to_null() -> None:
    message = MapMessage()
    assert not message.item_exists("name")
    message.set_string("name", None)
    assert message.item_exists("name")


def null_message() -> MapMessage:
    message = MapMessage()
    message.set_object("name", None)
    return message


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            null_message(),
            id="null",
            marks=[pytest.mark.requirement("message.map.null"), pytest.mark.case("map-message-09")],
        ),
        pytest.param(
            MapMessage(),
            id="never set",
            marks=[pytest.mark.requirement("message.map.unset"), pytest.mark.case("map-message-11")],
        ),
    ],
)
@pytest.mark.parametrize("kind", NULL_READ_AS)
def test_null_is_read_as_in_java(message: MapMessage, kind: str) -> None:
    check_null(lambda as_type: read(message, as_type), kind)
