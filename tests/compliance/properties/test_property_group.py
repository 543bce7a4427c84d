"""The properties that group messages: JMS 1.1 chapter 3.5.9."""

from __future__ import annotations

import pytest

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Byte, Char, Float, Long, Message, Short

pytestmark = pytest.mark.requirement("properties.group")


@pytest.mark.case("property-group-01")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", True),
        ("byte", 1),
        ("short", 1),
        ("long", 1),
        ("float", 1.0),
        ("double", 1.0),
        ("string", "1"),
        ("object", Byte(1)),
        ("object", Short(1)),
        ("object", Long(1)),
        ("object", Float(1)),
        ("object", Char("1")),
        ("object", "1"),
        ("object", 2**31),
    ],
)
def test_sequence_is_no_other_type_than_int(kind: str, value: object) -> None:
    message = Message()
    with pytest.raises(MessageFormatException):
        getattr(message, f"set_{kind}_property")("JMSXGroupSeq", value)
    assert not message.property_exists("JMSXGroupSeq")


@pytest.mark.case("property-group-01", "property-group-02")
@pytest.mark.parametrize("value", [1, 2**31 - 1])
def test_sequence_is_an_int_from_one(value: int) -> None:
    message = Message()
    message.set_int_property("JMSXGroupSeq", value)
    assert message.get_int_property("JMSXGroupSeq") == value
    message.set_object_property("JMSXGroupSeq", value)
    assert message.get_object_property("JMSXGroupSeq") == value


@pytest.mark.case("property-group-02")
@pytest.mark.parametrize("value", [0, -1, -(2**31)])
def test_sequence_is_not_below_one(value: int) -> None:
    message = Message()
    with pytest.raises(MessageFormatException, match="from 1"):
        message.set_int_property("JMSXGroupSeq", value)
    with pytest.raises(MessageFormatException, match="from 1"):
        message.set_object_property("JMSXGroupSeq", value)


@pytest.mark.case("property-group-03")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", True),
        ("byte", 1),
        ("short", 1),
        ("int", 1),
        ("long", 1),
        ("float", 1.0),
        ("double", 1.0),
        ("object", 1),
        ("object", Char("g")),
    ],
)
def test_group_is_no_other_type_than_string(kind: str, value: object) -> None:
    with pytest.raises(MessageFormatException):
        getattr(Message(), f"set_{kind}_property")("JMSXGroupID", value)


@pytest.mark.case("property-group-03")
def test_group_is_a_string() -> None:
    message = Message()
    message.set_string_property("JMSXGroupID", "customer 7")
    assert message.get_string_property("JMSXGroupID") == "customer 7"
