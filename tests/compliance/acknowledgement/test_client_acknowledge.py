"""CLIENT_ACKNOWLEDGE and Session.recover: JMS 1.1 chapters 3.4.7 and 4.4.11."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Message, MessageConsumer, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.compliance.places import Place
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = ["a", "b", "c", "d", "e"]


@pytest.fixture
def client_session(connection: Connection) -> Session:
    """A session whose messages the client acknowledges; the queue holds the texts."""
    return connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)


@pytest.fixture
def consumer(client_session: Session, session: Session, place: Place) -> MessageConsumer:
    send_texts(session, place.destination, *TEXTS)
    return place.consumer(client_session)


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE", "session.recover")
@pytest.mark.case("session-client-acknowledge-01")
def test_acknowledging_the_last_message_covers_all(
    session: Session, client_session: Session, consumer: MessageConsumer, place: Place
) -> None:
    messages = receive_all(consumer)
    assert texts_of(messages) == TEXTS
    messages[-1].acknowledge()
    client_session.recover()
    assert receive_all(consumer) == []
    client_session.close()
    assert receive_all(place.consumer(session)) == []


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE", "session.recover")
@pytest.mark.case("session-client-acknowledge-01")
def test_acknowledging_any_message_covers_all_delivered_so_far(
    client_session: Session, consumer: MessageConsumer
) -> None:
    messages = receive_all(consumer)
    messages[0].acknowledge()
    client_session.recover()
    assert receive_all(consumer) == []


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE", "session.recover", "message.redelivered.receive")
@pytest.mark.case("session-client-acknowledge-02")
def test_recover_brings_back_messages_received_after_the_acknowledged_one(
    client_session: Session, consumer: MessageConsumer
) -> None:
    assert receive_texts(consumer, 2) == TEXTS[:2]
    receive(consumer).acknowledge()
    assert texts_of(receive_all(consumer)) == TEXTS[3:]
    client_session.recover()
    again = receive_all(consumer)
    assert texts_of(again) == TEXTS[3:]
    assert all(message.jms_redelivered for message in again)


@pytest.mark.requirement("session.recover", "message.redelivered.receive")
@pytest.mark.case("session-client-acknowledge-03")
def test_recover_with_nothing_acknowledged_brings_all_again(client_session: Session, consumer: MessageConsumer) -> None:
    first = receive_all(consumer)
    assert texts_of(first) == TEXTS
    assert not any(message.jms_redelivered for message in first)
    for deliveries in (2, 3):
        client_session.recover()
        again = receive_all(consumer)
        assert texts_of(again) == TEXTS
        assert all(message.jms_redelivered for message in again)
        assert {message.get_int_property("JMSXDeliveryCount") for message in again} == {deliveries}


@pytest.mark.requirement("session.recover")
@pytest.mark.case("session-client-acknowledge-03")
def test_recover_goes_back_to_the_first_message_in_the_middle_of_the_queue(
    client_session: Session, consumer: MessageConsumer
) -> None:
    assert receive_texts(consumer, 3) == TEXTS[:3]
    client_session.recover()
    again = receive_all(consumer)
    assert texts_of(again) == TEXTS
    assert [message.jms_redelivered for message in again] == [True] * 3 + [False] * 2


@pytest.mark.requirement("session.recover")
def test_recover_lets_more_urgent_messages_come_first(
    client_session: Session, session: Session, place: Place, consumer: MessageConsumer
) -> None:
    assert texts_of(receive_all(consumer)) == TEXTS
    send_texts(session, place.destination, "urgent", priority=9)
    client_session.recover()
    assert texts_of(receive_all(consumer)) == ["urgent", *TEXTS]


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE")
def test_acknowledging_covers_the_messages_of_all_the_sessions_consumers(
    client_session: Session, session: Session, consumer: MessageConsumer, queue: Queue
) -> None:
    other = Queue(f"{queue.name} other")
    send_texts(session, other, "x", "y")
    other_consumer = client_session.create_consumer(other)
    assert texts_of(receive_all(consumer)) == TEXTS
    receive(other_consumer).acknowledge()
    assert receive_texts(other_consumer, 1) == ["y"]
    client_session.recover()
    assert receive_all(consumer) == []
    assert texts_of(receive_all(other_consumer)) == ["y"]


@pytest.mark.requirement("session.ack.closedconsumer", "session.CLIENT_ACKNOWLEDGE")
@pytest.mark.case("session-client-acknowledge-01")
def test_message_can_be_acknowledged_after_its_consumer_is_closed(
    session: Session, client_session: Session, consumer: MessageConsumer, place: Place
) -> None:
    message = receive(consumer)
    consumer.close()
    message.acknowledge()
    client_session.close()
    assert texts_of(receive_all(place.consumer(session))) == TEXTS[1:]


@pytest.mark.requirement("session.recover", "session.ack.closedconsumer")
def test_recover_returns_messages_of_a_closed_consumer(
    client_session: Session, consumer: MessageConsumer, place: Place
) -> None:
    assert receive_texts(consumer, 2) == TEXTS[:2]
    consumer.close()
    client_session.recover()
    assert texts_of(receive_all(place.consumer(client_session))) == TEXTS


@pytest.mark.requirement("session.CLIENT_ACKNOWLEDGE", "session.recover", "message.redelivered.receive")
@pytest.mark.case("session-client-acknowledge-02", "session-client-acknowledge-03")
def test_listener_acknowledges_and_recovers(client_session: Session, session: Session, place: Place) -> None:
    heard: list[tuple[str | None, bool]] = []

    def listen(message: Message) -> None:
        heard.append((message.get_body(str), message.jms_redelivered))
        if message.get_body(str) == "b":
            message.acknowledge()
        elif message.get_body(str) == "d" and not message.jms_redelivered:
            client_session.recover()

    place.consumer(client_session).message_listener = listen
    send_texts(session, place.destination, *TEXTS)
    wait_for(lambda: heard and heard[-1][0] == "e")
    first = [(text, False) for text in "abcd"]
    assert heard == [*first, ("c", True), ("d", True), ("e", False)]
