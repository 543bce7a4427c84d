"""The application's properties on their way: JMS 1.1 chapters 3.5.2 to 3.5.6 and 3.12."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session
from jmsql.messages import PropertyValue
from jmsql.types import Byte, Float, Long, Short
from tests.compliance.contents import properties_of
from tests.compliance.filled_messages import CLASSES, filled
from tests.exchange import exchange

pytestmark = pytest.mark.usefixtures("shared_connection")

PROPERTIES: dict[str, PropertyValue] = {
    "boolean": True,
    "byte": Byte(-128),
    "short": Short(2**15 - 1),
    "int": -(2**31),
    "long": Long(2**63 - 1),
    "small_long": Long(1),
    "float": Float(0.1),
    "double": 0.1,
    "whole_double": 5.0,
    "string": "a 'b' \"c\" \\ %s 名前",
    "empty": "",
    "nothing": None,
    "JMSXGroupID": "group",
    "JMSXGroupSeq": 7,
    "JMS_acme_flag": False,
    "größe": 1,
    "$_": 2,
    "Name": "upper",
    "name": "lower",
}

HEADERS = (
    *("JMSDestination", "JMSDeliveryMode", "JMSExpiration", "JMSPriority", "JMSMessageID", "JMSTimestamp"),
    *("JMSCorrelationID", "JMSReplyTo", "JMSType", "JMSRedelivered", "JMSDeliveryTime"),
)


def typed(properties: dict[str, PropertyValue]) -> dict[str, tuple[type, PropertyValue]]:
    return {name: (type(value), value) for name, value in properties.items()}


@pytest.mark.requirement("properties.integrity", "properties.method.getPropertyNames")
@pytest.mark.case("property-integrity-01")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
@pytest.mark.parametrize("kind", CLASSES)
def test_properties_arrive_as_they_were_sent(
    connection: Connection, queue: Queue, kind: type[Message], mode: AcknowledgeMode
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    message = filled(kind)
    message.clear_properties()
    message.properties.update(PROPERTIES)
    received = exchange(session, queue, message)
    assert typed(dict(message.properties)) == typed(PROPERTIES)
    assert {name for name in received.property_names if name != "JMSXDeliveryCount"} == PROPERTIES.keys()
    arrived = {name: received.get_object_property(name) for name in PROPERTIES}
    assert typed(arrived) == typed(PROPERTIES)
    assert all(received.property_exists(name) for name in PROPERTIES)


@pytest.mark.requirement("properties.integrity")
@pytest.mark.case("property-integrity-01")
def test_message_sent_on_keeps_them_through_any_number_of_hops(session: Session, queue: Queue) -> None:
    message = Message()
    message.properties.update(PROPERTIES)
    for _ in range(3):
        message = exchange(session, queue, message)
    arrived = {name: message.get_object_property(name) for name in PROPERTIES}
    assert typed(arrived) == typed(PROPERTIES)


@pytest.mark.requirement("properties.method.getPropertyNames")
@pytest.mark.case("property-integrity-02")
@pytest.mark.parametrize("kind", CLASSES)
def test_headers_are_never_among_the_names(session: Session, queue: Queue, kind: type[Message]) -> None:
    message = filled(kind)
    message.jms_correlation_id = message.jms_type = "set"
    message.jms_reply_to = Queue("answers")
    received = exchange(session, queue, message)
    for holder in (message, received):
        assert not set(HEADERS) & set(holder.property_names)
        assert not set(HEADERS) & set(holder.properties)
        assert not any(holder.property_exists(name) for name in HEADERS)
    assert properties_of(received) == {"name": "value"}


@pytest.mark.requirement("properties.copy")
def test_value_that_was_read_is_the_reader_s_own(session: Session, queue: Queue) -> None:
    message = Message()
    message.properties.update(PROPERTIES)
    received = exchange(session, queue, message)
    for holder in (message, received):
        values = dict(holder.properties)
        names = holder.property_names
        holder.clear_properties()
        holder.set_string_property("string", "changed")
        assert {name: values[name] for name in PROPERTIES} == PROPERTIES
        assert set(names) >= PROPERTIES.keys()


class Label(str):
    """A class of strings of the application's own."""

    __slots__ = ()


@pytest.mark.requirement("properties.copy")
def test_value_that_was_set_is_not_shared_with_its_giver() -> None:
    label = Label("text")
    message = Message()
    message.set_string_property("label", label)
    message.set_object_property("other", label)
    for name in ("label", "other"):
        value = message.get_object_property(name)
        assert value == "text"
        assert type(value) is str
