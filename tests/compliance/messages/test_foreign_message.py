"""Messages that another provider implements: JMS 1.1 chapter 3.12."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jmsql import (
    BytesMessage,
    Connection,
    DeliveryMode,
    MapMessage,
    Message,
    MessageEOFException,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
)
from jmsql.testing import receive_all
from jmsql.types import Byte, Char, Float, ForeignMessage, Short
from tests.compliance.contents import body_of, properties_of

pytestmark = [
    pytest.mark.requirement("message.foreign"),
    pytest.mark.case("message-foreign-01"),
    pytest.mark.usefixtures("shared_connection"),
]

PROPERTIES = {"color": "blue", "weight": Short(5), "JMSXGroupID": "group", "JMS_other_vendor": True}


class Foreign:
    """What a message of another provider has at least."""

    def __init__(self) -> None:
        self.jms_correlation_id: str | None = "ID:theirs"
        self.jms_type: str | None = "kind"
        self.jms_reply_to: object = "their://answers"
        self.jms_message_id: str | None = "ID:theirs"
        self.jms_priority = 0

    @property
    def property_names(self) -> Iterable[str]:
        return iter((*PROPERTIES, "JMSXDeliveryCount"))

    def get_object_property(self, name: str) -> Any:
        return 3 if name == "JMSXDeliveryCount" else PROPERTIES[name]


class ForeignText(Foreign):
    text = "text"


class ForeignObject(Foreign):
    object = [1, {"a": None}]  # noqa: RUF012 - as plain as may be


class ForeignBytes(Foreign):
    body_length = 100_000

    def reset(self) -> None:
        self._left = self.body_length

    def read_bytes(self, buffer: bytearray) -> int:
        count = min(len(buffer), self._left)
        buffer[:count] = b"x" * count
        self._left -= count
        return count or -1


class ForeignMap(Foreign):
    map_names = ("byte", "bytes", "null")

    def get_object(self, name: str) -> Any:
        return {"byte": Byte(1), "bytes": b"x", "null": None}[name]


class ForeignStream(Foreign):
    def reset(self) -> None:
        self._fields = iter([Char("c"), None, b"x", Float(0.5)])

    def read_object(self) -> Any:
        try:
            return next(self._fields)
        except StopIteration:
            raise MessageEOFException from None


FOREIGN: list[tuple[type[Foreign], type[Message], object]] = [
    (Foreign, Message, None),
    (ForeignText, TextMessage, "text"),
    (ForeignObject, ObjectMessage, [1, {"a": None}]),
    (ForeignBytes, BytesMessage, b"x" * 100_000),
    (ForeignMap, MapMessage, {"byte": 1, "bytes": b"x", "null": None}),
    (ForeignStream, StreamMessage, ["c", None, b"x", 0.5]),
]


@pytest.mark.parametrize(("foreign", "kind", "body"), FOREIGN, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("transacted", [False, True])
def test_foreign_message_is_sent_and_received(
    connection: Connection, queue: Queue, foreign: type[Foreign], kind: type[Message], body: object, transacted: bool
) -> None:
    session = connection.create_session(transacted)
    message: ForeignMessage = foreign()
    session.create_producer(queue).send(message)
    if transacted:
        session.commit()
    (received,) = receive_all(session.create_consumer(queue))
    assert type(received) is kind
    assert body_of(received) == body
    assert properties_of(received) | {"JMSXGroupID": received.get_string_property("JMSXGroupID")} == PROPERTIES
    assert type(received.get_object_property("weight")) is Short
    assert (received.jms_correlation_id, received.jms_type, received.jms_reply_to) == ("ID:theirs", "kind", None)
    assert received.get_int_property("JMSXDeliveryCount") == 1


def test_send_sets_the_headers_of_the_foreign_message(session: Session, queue: Queue) -> None:
    message = Foreign()
    session.create_producer(queue).send(message, priority=7, delivery_mode=DeliveryMode.NON_PERSISTENT)
    (received,) = receive_all(session.create_consumer(queue))
    assert message.jms_message_id == received.jms_message_id != "ID:theirs"
    assert message.jms_priority == received.jms_priority == 7


def test_reply_to_of_jmsql_s_own_is_kept(session: Session, queue: Queue) -> None:
    message = Foreign()
    message.jms_reply_to = Queue("answers")
    session.create_producer(queue).send(message)
    (received,) = receive_all(session.create_consumer(queue))
    assert received.jms_reply_to == Queue("answers")
