"""The listener of a session itself, for what connection consumers load into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql import Connection, IllegalStateException, Message, Queue, Session
from jmsql.testing import wait_for
from tests.integration.client.connections.server_session_pools import MODES, listening
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")


def test_session_without_a_load_runs_and_does_nothing(session: Session) -> None:
    heard: list[Message] = []
    assert session.message_listener is None
    session.message_listener = heard.append
    assert session.message_listener == heard.append
    session.run()
    assert heard == []
    with pytest.raises(TypeError, match="message listener"):
        session.message_listener = 5  # type: ignore[assignment]
    session.close()
    with pytest.raises(IllegalStateException):
        session.run()


@MODES
def test_no_consumer_of_its_session_receives(mode_session: Session, others: Session, queue: Queue) -> None:
    consumer = mode_session.create_consumer(queue)
    send_texts(others, queue, "a")
    mode_session.message_listener = lambda message: None
    receives: list[Callable[[], object]] = [
        lambda: consumer.receive(timeout=0),
        consumer.receive_no_wait,
        lambda: next(iter(consumer)),
    ]
    for receives_in_another_way in receives:
        with pytest.raises(IllegalStateException, match="receives in no other way"):
            receives_in_another_way()
    with pytest.raises(IllegalStateException, match="receives in no other way"):
        consumer.message_listener = lambda message: None
    consumer.message_listener = None
    assert texts_of(list(mode_session.create_browser(queue))) == ["a"], "to browse is not to receive"
    mode_session.message_listener = None
    assert receive_texts(consumer, 1) == ["a"]


def test_a_session_whose_consumers_have_listeners_has_none(session: Session, others: Session, queue: Queue) -> None:
    heard: list[Message] = []
    consumer = session.create_consumer(queue)
    consumer.message_listener = heard.append
    with pytest.raises(IllegalStateException, match="has a listener; remove that one first"):
        session.message_listener = lambda message: None
    assert session.message_listener is None
    session.message_listener = None
    send_texts(others, queue, "a")
    wait_for(lambda: texts_of(heard) == ["a"])
    consumer.close()
    session.message_listener = heard.append


def test_its_session_sends(connection: Connection, others: Session, queue: Queue) -> None:
    replies = Queue("replies")

    def create_listener(session: Session) -> Callable[[Message], None]:
        return lambda message: session.create_producer(replies).send(message)

    with listening(connection, queue, create_listener):
        send_texts(others, queue, "a")
        assert receive_texts(others.create_consumer(replies), 1) == ["a"]
