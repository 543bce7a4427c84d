"""Session.rollback: JMS 1.1 chapter 4.4.7."""

from __future__ import annotations

import pytest

from jmsql import Connection, IllegalStateException, Message, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.compliance.places import Place
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = ["a", "b", "c"]


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(transacted=True)


@pytest.mark.requirement("session.close")
@pytest.mark.case("session-rollback-01")
def test_closed_session_is_not_rolled_back(transacted: Session) -> None:
    transacted.close()
    with pytest.raises(IllegalStateException, match="closed"):
        transacted.rollback()


@pytest.mark.requirement("session.rollback")
@pytest.mark.case("session-rollback-02")
def test_messages_sent_are_destroyed(transacted: Session, session: Session, place: Place) -> None:
    producer = transacted.create_producer(place.destination)
    for text in TEXTS:
        producer.send(transacted.create_text_message(text))
    transacted.rollback()
    transacted.commit()
    assert receive_all(place.consumer(session)) == []
    producer.send(transacted.create_text_message("afterwards"))
    transacted.commit()
    assert texts_of(receive_all(place.consumer(session))) == ["afterwards"]


@pytest.mark.requirement("session.rollback", "message.redelivered.receive")
@pytest.mark.case("session-rollback-02")
def test_messages_received_come_again(transacted: Session, session: Session, place: Place) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer = place.consumer(transacted)
    assert receive_texts(consumer, 2) == ["a", "b"]
    for deliveries in (2, 3):
        transacted.rollback()
        first, second, third = receive_all(consumer)
        assert texts_of([first, second, third]) == TEXTS
        assert first.jms_redelivered
        assert second.jms_redelivered
        assert first.get_int_property("JMSXDeliveryCount") == deliveries
        assert third.get_int_property("JMSXDeliveryCount") == deliveries - 1
    transacted.commit()
    assert receive_all(consumer) == []


@pytest.mark.requirement("session.rollback", "message.redelivered.receive")
@pytest.mark.case("session-rollback-02")
def test_another_consumer_sees_that_they_were_delivered_before(
    transacted: Session, session: Session, place: Place
) -> None:
    send_texts(session, place.destination, *TEXTS)
    assert receive_texts(place.consumer(transacted), 2) == ["a", "b"]
    others = place.consumer(session)
    transacted.rollback()
    messages = receive_all(others)
    assert [(message.get_body(str), message.jms_redelivered) for message in messages] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]


@pytest.mark.requirement("session.rollback")
@pytest.mark.case("session-rollback-02")
def test_it_covers_producers_and_consumers_that_are_closed(transacted: Session, session: Session, place: Place) -> None:
    answers = Queue("answers")
    send_texts(session, place.destination, *TEXTS)
    with place.consumer(transacted) as consumer, transacted.create_producer(answers) as producer:
        for text in receive_texts(consumer, 2):
            producer.send(transacted.create_text_message(text))
    transacted.rollback()
    assert receive_all(session.create_consumer(answers)) == []
    assert texts_of(receive_all(place.consumer(session))) == TEXTS


@pytest.mark.requirement("session.rollback")
def test_listener_rolls_back(transacted: Session, session: Session, place: Place) -> None:
    heard: list[tuple[str | None, bool]] = []

    def listen(message: Message) -> None:
        heard.append((message.get_body(str), message.jms_redelivered))
        if message.get_body(str) == "b" and not message.jms_redelivered:
            transacted.rollback()
        elif message.get_body(str) == "c":
            transacted.commit()

    send_texts(session, place.destination, *TEXTS)
    place.consumer(transacted).message_listener = listen
    wait_for(lambda: heard and heard[-1][0] == "c")
    assert heard == [("a", False), ("b", False), ("a", True), ("b", True), ("c", False)]
    transacted.close()
    assert receive_all(place.consumer(session)) == []
