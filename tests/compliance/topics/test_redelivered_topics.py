"""JMSRedelivered where several subscribers have copies of a message: JMS 1.1 chapter 3.4.7."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Session, Topic
from jmsql.testing import receive_all
from tests.texts import send_texts

pytestmark = pytest.mark.usefixtures("shared_connection")

NEWS = Topic("news")
TEXTS = ["a", "b", "c"]


def marks(messages: list[Message]) -> list[tuple[str | None, bool, int]]:
    return [
        (message.get_body(str), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount"))
        for message in messages
    ]


@pytest.mark.requirement("message.redelivered.receive")
@pytest.mark.case("session-redelivered-topics-01")
def test_recover_marks_the_messages_of_its_own_session_alone(connection: Connection, session: Session) -> None:
    first = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    second = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    recovering, durable = first.create_consumer(NEWS), first.create_durable_subscriber(NEWS, "reader")
    other, late = second.create_consumer(NEWS), second.create_consumer(NEWS)
    send_texts(session, NEWS, *TEXTS)
    fresh = [(text, False, 1) for text in TEXTS]
    assert marks(receive_all(recovering)) == marks(receive_all(durable)) == marks(receive_all(other)) == fresh

    first.recover()
    assert marks(receive_all(late)) == fresh
    again = [(text, True, 2) for text in TEXTS]
    assert marks(receive_all(recovering)) == marks(receive_all(durable)) == again

    second.recover()
    assert marks(receive_all(other)) == marks(receive_all(late)) == again


@pytest.mark.requirement("message.redelivered.receive", "session.rollback")
@pytest.mark.case("session-redelivered-topics-01")
def test_rollback_marks_the_messages_of_its_own_session_alone(connection: Connection, session: Session) -> None:
    transacted = connection.create_session(transacted=True)
    rolled_back, other = transacted.create_consumer(NEWS), session.create_consumer(NEWS)
    send_texts(session, NEWS, *TEXTS)
    assert len(receive_all(rolled_back)) == len(TEXTS)
    transacted.rollback()
    assert marks(receive_all(other)) == [(text, False, 1) for text in TEXTS]
    assert marks(receive_all(rolled_back)) == [(text, True, 2) for text in TEXTS]
