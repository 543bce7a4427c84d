"""What properties hold: JMS 1.1 chapters 3.5.2 and 3.5.5."""

from __future__ import annotations

from decimal import Decimal

import pytest

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Byte, Char, Float, Long, Message, Short
from tests.compliance.conversion_tables import PROPERTY_TYPES, VALUES


@pytest.mark.requirement("properties.types")
@pytest.mark.case("property-type-02")
@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind in PROPERTY_TYPES for value in VALUES[kind]])
def test_property_reads_as_it_was_set(kind: str, value: object) -> None:
    message = Message()
    getattr(message, f"set_{kind}_property")("name", value)
    assert getattr(message, f"get_{kind}_property")("name") == value


@pytest.mark.requirement("properties.objects")
@pytest.mark.case("property-type-01")
@pytest.mark.parametrize(
    "value",
    [True, Byte(1), Short(2), 3, Long(4), Float(0.5), 0.1, "text", None],
    ids=lambda value: type(value).__name__,
)
def test_object_property_keeps_value_and_type(value: bool | float | str | None) -> None:
    message = Message()
    message.set_object_property("name", value)
    result = message.get_object_property("name")
    assert result == value
    assert type(result) is type(value)


@pytest.mark.requirement("properties.objects")
@pytest.mark.case("property-type-01")
@pytest.mark.parametrize("value", [b"bytes", bytearray(b"bytes"), Char("c"), Decimal(1), 1j, object(), [], {}, 2**63])
def test_object_property_refuses_all_else(value: object) -> None:
    message = Message()
    with pytest.raises(MessageFormatException):
        message.set_object_property("name", value)  # type: ignore[arg-type]
    assert not message.property_exists("name")
