"""JMSRedelivered: JMS 1.1 chapters 3.4.7 and 3.4.11."""

from __future__ import annotations

from operator import methodcaller

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session
from jmsql.testing import receive_all
from tests.compliance.places import Place
from tests.texts import receive

pytestmark = pytest.mark.usefixtures("shared_connection")

RELEASE = {AcknowledgeMode.TRANSACTED: methodcaller("rollback"), AcknowledgeMode.CLIENT: methodcaller("recover")}
MODES = pytest.mark.parametrize("mode", list(RELEASE))


@pytest.mark.requirement("message.redelivered.send")
@pytest.mark.parametrize("before", [False, True])
def test_send_leaves_it_as_it_is_and_the_receiver_is_not_misled(session: Session, place: Place, before: bool) -> None:
    message = session.create_text_message("a")
    message.jms_redelivered = before
    session.create_producer(place.destination).send(message)
    assert message.jms_redelivered is before
    assert receive(place.consumer(session)).jms_redelivered is False


@pytest.mark.requirement("message.redelivered.send", "message.redelivered.receive")
@MODES
def test_redelivered_message_that_is_sent_on_arrives_as_a_new_one(
    connection: Connection, session: Session, place: Place, mode: AcknowledgeMode
) -> None:
    onward = Queue("onward")
    receiving = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    session.create_producer(place.destination).send(session.create_text_message("a"))
    consumer = place.consumer(receiving)
    assert not receive(consumer).jms_redelivered
    RELEASE[mode](receiving)
    again = receive(consumer)
    assert again.jms_redelivered
    session.create_producer(onward).send(again)
    assert again.jms_redelivered
    copy = receive(session.create_consumer(onward))
    assert not copy.jms_redelivered
    assert copy.get_int_property("JMSXDeliveryCount") == 1


@pytest.mark.requirement("message.redelivered.receive")
@MODES
@pytest.mark.parametrize("delivered", [1, 2, 3])
def test_every_message_delivered_again_is_marked_and_no_other(
    connection: Connection, session: Session, place: Place, mode: AcknowledgeMode, delivered: int
) -> None:
    def mark(message: Message) -> tuple[str | None, bool, int]:
        return message.get_body(str), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount")

    producer = session.create_producer(place.destination)
    for text in "abc":
        producer.send(session.create_text_message(text))
    receiving = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    consumer = place.consumer(receiving)
    first = [mark(receive(consumer)) for _ in range(delivered)]
    assert first == [(text, False, 1) for text in "abc"[:delivered]]
    RELEASE[mode](receiving)
    consumer.close()
    others = receive_all(place.consumer(session))
    assert [mark(message) for message in others] == [
        (text, position < delivered, 2 if position < delivered else 1) for position, text in enumerate("abc")
    ]
