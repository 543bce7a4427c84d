"""DUPS_OK_ACKNOWLEDGE: JMS 1.1 chapter 4.4.11."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session
from jmsql.testing import receive_all, wait_for
from tests.compliance.places import Place
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = [str(number) for number in range(10)]


@pytest.fixture
def lazy_session(connection: Connection) -> Session:
    return connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)


@pytest.mark.requirement("session.DUPS_OK_ACKNOWLEDGE")
@pytest.mark.case("session-dups-ok-acknowledge-01")
@pytest.mark.parametrize("received", [4, len(TEXTS)])
def test_second_consumer_may_get_messages_twice_and_misses_none(
    lazy_session: Session, session: Session, place: Place, received: int
) -> None:
    send_texts(session, place.destination, *TEXTS)
    with place.consumer(lazy_session) as consumer:
        assert receive_texts(consumer, received) == TEXTS[:received]
    again = texts_of(receive_all(place.consumer(session)))
    assert set(TEXTS[received:]) <= set(again) <= set(TEXTS)
    assert len(again) == len(set(again))


@pytest.mark.requirement("session.DUPS_OK_ACKNOWLEDGE")
@pytest.mark.case("session-dups-ok-acknowledge-01")
def test_received_messages_are_acknowledged_at_the_latest_when_the_session_closes(
    lazy_session: Session, session: Session, place: Place
) -> None:
    send_texts(session, place.destination, *TEXTS)
    assert receive_texts(place.consumer(lazy_session), 4) == TEXTS[:4]
    lazy_session.close()
    assert texts_of(receive_all(place.consumer(session))) == TEXTS[4:]


@pytest.mark.requirement("session.DUPS_OK_ACKNOWLEDGE")
def test_acknowledgement_needs_no_call(
    other_shared_connection: Connection, lazy_session: Session, queue: Queue
) -> None:
    send_texts(lazy_session, queue, *TEXTS)
    assert texts_of(receive_all(lazy_session.create_consumer(queue))) == TEXTS
    with other_shared_connection.create_session() as others:
        assert receive_all(others.create_consumer(queue)) == []
    lazy_session.recover()
    assert receive_all(lazy_session.create_consumer(queue)) == []


@pytest.mark.requirement("session.DUPS_OK_ACKNOWLEDGE")
def test_listener_gets_every_message(lazy_session: Session, session: Session, place: Place) -> None:
    heard: list[Message] = []
    place.consumer(lazy_session).message_listener = heard.append
    send_texts(session, place.destination, *TEXTS)
    wait_for(lambda: set(TEXTS) <= set(texts_of(heard)))
    lazy_session.close()
    assert receive_all(place.consumer(session)) == []


@pytest.mark.requirement("session.DUPS_OK_ACKNOWLEDGE", "message.redelivered.receive")
def test_recover_may_bring_messages_again_and_marks_them(lazy_session: Session, session: Session, place: Place) -> None:
    send_texts(session, place.destination, *TEXTS)
    consumer = place.consumer(lazy_session)
    assert receive_texts(consumer, 4) == TEXTS[:4]
    lazy_session.recover()
    messages = receive_all(consumer)
    assert set(TEXTS[4:]) <= set(texts_of(messages)) <= set(TEXTS)
    assert all(message.jms_redelivered == (message.get_body(str) in TEXTS[:4]) for message in messages)
