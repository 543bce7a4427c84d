"""AUTO_ACKNOWLEDGE: JMS 1.1 chapter 4.4.11."""

from __future__ import annotations

import pytest

from jmsql import Connection, Message, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.compliance.places import Place
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = ["a", "b", "c"]


@pytest.mark.requirement("session.AUTO_ACKNOWLEDGE")
@pytest.mark.case("session-auto-acknowledge-01")
def test_messages_that_receive_returned_do_not_come_again(connection: Connection, place: Place) -> None:
    session = connection.create_session()
    send_texts(session, place.destination, *TEXTS)
    with place.consumer(session) as consumer:
        assert receive_texts(consumer, len(TEXTS)) == TEXTS
    assert receive_all(place.consumer(session)) == []
    session.recover()
    assert receive_all(place.consumer(session)) == []
    assert receive_all(place.consumer(connection.create_session())) == []


@pytest.mark.requirement("session.AUTO_ACKNOWLEDGE")
@pytest.mark.case("session-auto-acknowledge-01")
def test_messages_not_received_are_left_to_others(session: Session, place: Place) -> None:
    send_texts(session, place.destination, *TEXTS)
    with place.consumer(session) as consumer:
        assert receive_texts(consumer, 1) == TEXTS[:1]
    others = receive_all(place.consumer(session))
    assert texts_of(others) == TEXTS[1:]
    assert not any(message.jms_redelivered for message in others)


@pytest.mark.own_connection
@pytest.mark.requirement("session.AUTO_ACKNOWLEDGE")
@pytest.mark.case("session-auto-acknowledge-01")
def test_messages_whose_listener_returned_do_not_come_again(
    shared_connection: Connection, connection: Connection, session: Session, queue: Queue
) -> None:
    heard: list[Message] = []
    consumer = connection.create_session().create_consumer(queue)
    consumer.message_listener = heard.append
    send_texts(session, queue, *TEXTS)
    wait_for(lambda: len(heard) == len(TEXTS))
    consumer.close()
    connection.close()
    assert texts_of(heard) == TEXTS
    with shared_connection.create_session() as others:
        assert receive_all(others.create_consumer(queue)) == []


@pytest.mark.requirement("session.AUTO_ACKNOWLEDGE", "message.redelivered.receive")
def test_message_whose_listener_failed_comes_again(
    connection: Connection, session: Session, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[str | None, bool]] = []

    def fail_once(message: Message) -> None:
        heard.append((message.get_body(str), message.jms_redelivered))
        if len(heard) == 1:
            raise ValueError("the listener's own mistake")

    place.consumer(connection.create_session()).message_listener = fail_once
    send_texts(session, place.destination, "a")
    wait_for(lambda: len(heard) == 2)
    assert heard == [("a", False), ("a", True)]
    assert "the listener's own mistake" in caplog.text


@pytest.mark.requirement("session.AUTO_ACKNOWLEDGE")
def test_acknowledging_by_hand_changes_nothing(session: Session, place: Place) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer = place.consumer(session)
    messages = receive_all(consumer)
    messages[0].acknowledge()
    messages[-1].acknowledge()
    assert texts_of(messages) == TEXTS
    assert receive_all(consumer) == []
