"""JMSDestination: JMS 1.1 chapters 3.4.1 and 3.4.11."""

from __future__ import annotations

import pytest

from jmsql import Connection, Message, Queue, Session
from tests.compliance.filled_messages import CLASSES, filled
from tests.compliance.places import Place
from tests.exchange import exchange
from tests.texts import receive

pytestmark = [pytest.mark.requirement("message.destination"), pytest.mark.usefixtures("shared_connection")]


@pytest.mark.case("header-destination-01")
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("transacted", [False, True])
def test_send_sets_it_and_the_receiver_sees_an_equal_one(
    connection: Connection, queue: Queue, kind: type[Message], transacted: bool
) -> None:
    message = filled(kind)
    message.jms_destination = Queue("elsewhere")
    received = exchange(connection.create_session(transacted), queue, message)
    assert message.jms_destination == queue
    assert received.jms_destination == queue


@pytest.mark.case("header-destination-01")
def test_it_is_of_the_kind_that_the_message_was_sent_to(session: Session, place: Place) -> None:
    message = Message()
    session.create_producer(place.destination).send(message)
    received = receive(place.consumer(session)).jms_destination
    assert message.jms_destination == received == place.destination
    assert type(received) is type(place.destination)


@pytest.mark.case("header-destination-01")
@pytest.mark.parametrize("name", ["with space", "Größe/名前", "queue://x", "'; --", "\\", "x" * 255])
def test_it_is_equal_whatever_the_name(session: Session, name: str) -> None:
    queue = session.create_queue(name)
    assert exchange(session, queue, Message()).jms_destination == Queue(name)


@pytest.mark.case("header-destination-02")
@pytest.mark.parametrize("kind", CLASSES)
def test_sending_to_another_destination_updates_it(session: Session, queue: Queue, kind: type[Message]) -> None:
    second, third = Queue("second"), Queue("third")
    message = filled(kind)
    received = exchange(session, queue, message)
    producer = session.create_producer()
    producer.send(message, second)
    producer.send(received, third)
    assert message.jms_destination == receive(session.create_consumer(second)).jms_destination == second
    assert received.jms_destination == receive(session.create_consumer(third)).jms_destination == third
