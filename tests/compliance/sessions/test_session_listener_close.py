"""Closing a session while its listener runs: JMS 1.1 chapter 4.4.1."""

from __future__ import annotations

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue, Session
from jmsql.testing import wait_for
from tests.compliance.held_listener import HeldListener
from tests.texts import receive_texts, send_texts, texts_left

ANSWERS = Queue("answers")


@pytest.mark.requirement("session.close.listeners")
@pytest.mark.case("session-listener-close-01")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_it_waits_for_the_listener_which_keeps_the_use_of_the_session(
    jmsql_factory: ConnectionFactory, connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    listening = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    producer = listening.create_producer(ANSWERS)
    store = Queue("store")
    supplies = listening.create_consumer(store)
    consumer = listening.create_consumer(queue)
    send_texts(session, store, "supply")

    def use_the_session(message: Message) -> None:
        assert receive_texts(supplies, 1) == ["supply"]
        assert consumer.destination == queue
        producer.send(listening.create_text_message(f"answer to {message.get_body(str)}"))
        with listening.create_browser(store) as browser:
            assert list(browser) == []
        with listening.create_producer() as another:
            another.send(listening.create_text_message("through a new producer"), ANSWERS)
        if listening.transacted:
            listening.commit()
        else:
            message.acknowledge()

    listener = HeldListener(use_the_session)
    consumer.message_listener = listener
    send_texts(session, queue, "question", "next question")
    listener.wait_until_called()
    listener.must_return_before(listening.close)
    assert listener.errors == []
    assert len(listener.messages) == 1, "a closing session calls no more listeners"
    connection.close()
    assert texts_left(jmsql_factory, ANSWERS) == ["answer to question", "through a new producer"]
    assert texts_left(jmsql_factory, store) == []
    assert texts_left(jmsql_factory, queue) == ["next question"]


@pytest.mark.requirement("session.close.listeners")
@pytest.mark.case("session-listener-close-01")
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_listener_may_close_its_own_session(
    jmsql_factory: ConnectionFactory, connection: Connection, session: Session, queue: Queue, mode: AcknowledgeMode
) -> None:
    listening = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    heard: list[Message] = []

    def close(message: Message) -> None:
        if listening.transacted:
            listening.commit()
        else:
            message.acknowledge()
        listening.close()
        heard.append(message)

    listening.create_consumer(queue).message_listener = close
    send_texts(session, queue, "first", "second")
    wait_for(lambda: heard)
    connection.close()
    assert len(heard) == 1
    assert texts_left(jmsql_factory, queue) == ["second"]
