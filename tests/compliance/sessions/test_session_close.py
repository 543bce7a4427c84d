"""Closing a session: JMS 1.1 chapter 4.4.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    IllegalStateException,
    MessageConsumer,
    MessageProducer,
    Queue,
    QueueBrowser,
    Session,
)
from jmsql.testing import receive_all
from tests.compliance.closed_objects import BROWSER_CALLS, CONSUMER_CALLS, PRODUCER_CALLS, SESSION_CALLS
from tests.texts import receive_texts, send_texts, texts_of

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@pytest.fixture
def session_to_close(connection: Connection, mode: AcknowledgeMode) -> Session:
    return connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)


@pytest.mark.requirement("session.close.closed")
@pytest.mark.case("session-close-01")
@MODES
def test_session_may_be_closed_twice(session_to_close: Session) -> None:
    session_to_close.close()
    session_to_close.close()


@pytest.mark.requirement("session.close.closed", "session.close")
@pytest.mark.case("session-close-01")
@MODES
def test_session_and_all_that_it_made_may_be_closed_after_its_connection(
    connection: Connection, session_to_close: Session, queue: Queue
) -> None:
    made: list[Session | MessageProducer | MessageConsumer | QueueBrowser] = [
        session_to_close.create_producer(queue),
        session_to_close.create_consumer(queue),
        session_to_close.create_browser(queue),
        session_to_close,
    ]
    connection.close()
    for closable in [*made, *made]:
        closable.close()


@pytest.mark.requirement("session.close")
@pytest.mark.case("session-close-02")
@MODES
def test_closed_session_and_its_objects_refuse_every_use(session_to_close: Session, queue: Queue) -> None:
    session = session_to_close
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    browser = session.create_browser(queue)
    message = session.create_message()
    session.close()
    calls: list[Callable[[], object]] = [
        *(lambda call=call: call(session) for call in SESSION_CALLS),
        *(lambda call=call: call(producer, message) for call in PRODUCER_CALLS),
        *(lambda call=call: call(consumer) for call in CONSUMER_CALLS),
        *(lambda call=call: call(browser) for call in BROWSER_CALLS),
    ]
    for call in calls:
        with pytest.raises(IllegalStateException, match="closed"):
            call()
    for closable in (producer, consumer, browser):
        closable.close()


@pytest.mark.requirement("session.close")
@MODES
def test_other_sessions_of_the_connection_go_on(
    connection: Connection, session: Session, session_to_close: Session, queue: Queue
) -> None:
    send_texts(session, queue, "a", "b")
    consumer = session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["a"]
    session_to_close.close()
    assert texts_of(receive_all(consumer)) == ["b"]
    assert connection.metadata.jms_provider_name == "jmsql"


@pytest.mark.requirement("session.close", "session.close.closed")
@MODES
def test_session_closes_at_the_end_of_its_block(session_to_close: Session) -> None:
    with session_to_close as session:
        assert session.create_message().jms_message_id is None
    with pytest.raises(IllegalStateException, match="closed"):
        session.create_message()
