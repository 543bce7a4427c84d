from __future__ import annotations

import math
from enum import IntEnum, StrEnum

import pytest

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Byte, Char, Float, Long, MapMessage, Message, Short
from jmsql.messages.types.values import array_part


@pytest.mark.parametrize(
    ("kind", "minimum", "maximum"),
    [
        ("byte", -(2**7), 2**7 - 1),
        ("short", -(2**15), 2**15 - 1),
        ("int", -(2**31), 2**31 - 1),
        ("long", -(2**63), 2**63 - 1),
    ],
)
def test_integers_keep_to_the_range_of_their_type(kind: str, minimum: int, maximum: int) -> None:
    message = Message()
    set_property = getattr(message, f"set_{kind}_property")
    for value in (minimum, maximum):
        set_property("name", value)
        assert getattr(message, f"get_{kind}_property")("name") == value
    for value in (minimum - 1, maximum + 1, 10**5000):
        with pytest.raises(MessageFormatException, match=f"does not fit the JMS type {kind}"):
            set_property("name", value)


@pytest.mark.parametrize("kind", ["byte", "short", "int", "long", "float", "double"])
@pytest.mark.parametrize("value", [True, "1", None, 1j])
def test_numbers_are_set_from_numbers_only(kind: str, value: object) -> None:
    with pytest.raises(MessageFormatException, match="is written from"):
        getattr(Message(), f"set_{kind}_property")("name", value)


@pytest.mark.parametrize("value", [1, 0, "true", None])
def test_booleans_are_set_from_bool_only(value: bool) -> None:
    with pytest.raises(MessageFormatException, match="is written from a bool"):
        Message().set_boolean_property("name", value)


@pytest.mark.parametrize("value", [1, b"text", Byte(1)])
def test_strings_are_set_from_str_only(value: str) -> None:
    with pytest.raises(MessageFormatException, match="is written from a str"):
        Message().set_string_property("name", value)


def test_float_is_rounded_to_32_bits_when_set() -> None:
    message = Message()
    message.set_float_property("name", 0.1)
    assert message.get_double_property("name") == 0.10000000149011612


def test_float_beyond_32_bits_is_refused() -> None:
    message = Message()
    with pytest.raises(MessageFormatException, match="use a double"):
        message.set_float_property("name", 1e39)
    message.set_float_property("name", math.inf)
    assert message.get_float_property("name") == math.inf


def test_integer_is_widened_to_a_double() -> None:
    message = Message()
    message.set_double_property("name", 5)
    assert type(message.get_object_property("name")) is float
    with pytest.raises(MessageFormatException, match="too large"):
        message.set_double_property("name", 10**400)


@pytest.mark.parametrize("value", ["", "ab", "😀", 1, None])
def test_char_is_one_character_of_16_bits(value: str) -> None:
    with pytest.raises(MessageFormatException, match="one character"):
        MapMessage().set_char("name", value)


def test_plain_integer_becomes_a_long_when_it_needs_64_bits() -> None:
    message = Message()
    message.properties["int"] = 2**31 - 1
    message.properties["long"] = 2**31
    assert type(message.properties["int"]) is int
    assert type(message.properties["long"]) is Long
    with pytest.raises(MessageFormatException, match="long"):
        message.properties["more"] = 2**63


class Color(StrEnum):
    BLUE = "blue"


class Size(IntEnum):
    LARGE = 3


def test_members_of_enumerations_become_plain_values() -> None:
    message = Message()
    message.properties.update(color=Color.BLUE, size=Size.LARGE)
    message.set_byte_property("small", Size.LARGE)
    assert [type(value) for value in message.properties.values()] == [str, int, Byte]


def test_typed_getters_give_plain_numbers() -> None:
    message = MapMessage()
    message["byte"], message["short"], message["long"] = Byte(1), Short(2), Long(3)
    message["float"], message["char"] = Float(0.5), Char("c")
    assert type(message.get_byte("byte")) is int
    assert type(message.get_short("short")) is int
    assert type(message.get_long("long")) is int
    assert type(message.get_float("float")) is float
    assert type(message.get_char("char")) is str


def test_a_byte_array_is_written_from_any_memoryview() -> None:
    assert array_part(memoryview(b"abcdef")[::2], 0, None) == b"ace"
    assert array_part(memoryview(b"abcdef")[::-1], 1, 2) == b"ed"
