"""An ObjectMessage and its users never share an object: JMS 1.1 chapter 3.12."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from jmsql.messages import ObjectMessage, register_type

pytestmark = pytest.mark.requirement("message.copy", "message.object.method.setObject")


@register_type(name="copied order")
@dataclass
class Order:
    number: int
    lines: list[str] = field(default_factory=list)


@pytest.mark.case("object-message-copy-01")
def test_array_is_copied_when_it_is_set() -> None:
    array = bytearray(b"before")
    message = ObjectMessage()
    message.object = array
    array[:] = b"after"
    assert message.object == bytearray(b"before")


@pytest.mark.case("object-message-copy-02")
def test_object_read_is_not_the_object_given_to_the_constructor() -> None:
    given = ["a"]
    message = ObjectMessage(given)
    read = message.object
    assert read == given
    assert read is not given
    read.append("b")
    assert message.object == ["a"]


@pytest.mark.case("object-message-copy-03")
def test_object_of_the_user_s_class_is_copied() -> None:
    order = Order(7, ["bolts"])
    message = ObjectMessage()
    message.set_object(order)
    order.lines.append("nuts")
    assert message.get_object() == Order(7, ["bolts"])
