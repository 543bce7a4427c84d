"""Names of properties: JMS 1.1 chapters 3.5.1, 3.5.9 and 3.8.1.1."""

from __future__ import annotations

import pytest

from jmsql.exceptions import JMSException, MessageFormatException
from jmsql.messages import Message

RESERVED = ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")


@pytest.mark.requirement("properties.identifier")
@pytest.mark.case("property-name-05")
@pytest.mark.parametrize(
    "name", ["A", "_A", "$A", "a1", "_a1", "$a1", "a_a", "a$a", "Aa\u0391\u0430\u0301", "日本", "€", "a" * 100_000]
)
def test_identifier_names_a_property(name: str) -> None:
    message = Message()
    message.set_int_property(name, 1)
    message.set_object_property(name, 2)
    assert message.property_names == (name,)
    assert message.get_int_property(name) == 2


@pytest.mark.requirement("properties.identifier")
@pytest.mark.case("property-name-02")
@pytest.mark.parametrize("name", ["1", "+1", "-1", "'1'", "a.b", "a b", "a-b", "\u0301a", " a", "a\n", "a\ud800"])
def test_anything_else_does_not(name: str) -> None:
    message = Message()
    with pytest.raises(MessageFormatException, match="cannot name a property"):
        message.set_int_property(name, 1)
    with pytest.raises(MessageFormatException, match="cannot name a property"):
        message.set_object_property(name, 1)


@pytest.mark.requirement("properties.identifier")
@pytest.mark.case("property-name-02")
@pytest.mark.parametrize("name", ["", None])
def test_property_needs_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="needs a name"):
        Message().set_string_property(name, "value")


@pytest.mark.requirement("properties.identifier.reserved")
@pytest.mark.case("property-name-04")
@pytest.mark.parametrize("word", [*RESERVED, *map(str.lower, RESERVED), *map(str.title, RESERVED)])
def test_words_of_the_selector_name_no_property(word: str) -> None:
    with pytest.raises(MessageFormatException, match="cannot name a property"):
        Message().set_boolean_property(word, True)


@pytest.mark.requirement("properties.identifier.case")
@pytest.mark.case("property-name-01")
def test_names_that_differ_in_case_are_different_properties() -> None:
    message = Message()
    message.set_int_property("ABC", 1)
    assert message.get_object_property("abc") is None
    message.set_int_property("abc", 2)
    assert dict(message.properties) == {"ABC": 1, "abc": 2}


@pytest.mark.requirement("properties.provider")
@pytest.mark.case("property-name-03")
@pytest.mark.parametrize(
    "name",
    [
        "JMSXUserID",
        "JMSXAppID",
        "JMSXDeliveryCount",
        "JMSXProducerTXID",
        "JMSXConsumerTXID",
        "JMSXRcvTimestamp",
        "JMSXState",
        "JMSXAnythingElse",
        "JMSPriority",
        "JMS_jmsql_anything",
    ],
)
def test_client_cannot_set_the_providers_properties(name: str) -> None:
    message = Message()
    with pytest.raises(JMSException, match="the provider's to set"):
        message.set_string_property(name, "value")
    with pytest.raises(JMSException, match="the provider's to set"):
        message.set_object_property(name, 1)


@pytest.mark.requirement("properties.provider")
def test_properties_of_other_providers_pass_through() -> None:
    message = Message()
    message.set_string_property("JMS_IBM_Format", "MQSTR")
    assert message.get_string_property("JMS_IBM_Format") == "MQSTR"
