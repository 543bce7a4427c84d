"""QueueBrowser: looking without taking (JMS 1.1 chapter 5.9)."""

from __future__ import annotations

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    Queue,
    Session,
    Topic,
)
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_of

OPEN_TRANSACTIONS = """
    select from pg_stat_activity where state = 'idle in transaction' and datname = current_database()
    """

pytestmark = pytest.mark.usefixtures("shared_connection")

TEXTS = ["a", "b", "c"]
MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


@MODES
def test_it_shows_messages_in_the_order_of_delivery_and_leaves_them(mode_session: Session, queue: Queue) -> None:
    send_texts(mode_session, queue, *TEXTS)
    send_texts(mode_session, queue, "urgent", priority=9)
    browser = mode_session.create_browser(queue)
    for _ in range(2):
        assert texts_of(browser) == ["urgent", *TEXTS]
    received = receive_all(mode_session.create_consumer(queue))
    assert texts_of(received) == ["urgent", *TEXTS]
    assert not any(message.jms_redelivered for message in received)


def test_it_shows_all_of_a_message(session: Session, queue: Queue) -> None:
    message = session.create_map_message()
    message["answer"] = 42
    message.set_short_property("small", 7)
    message.jms_correlation_id, message.jms_type, message.jms_reply_to = "correlated", "type", Queue("answers")
    session.create_producer(queue).send(message, priority=3, time_to_live=60)
    (shown,) = session.create_browser(queue)
    assert shown.get_body(dict) == {"answer": 42}
    assert shown.get_short_property("small") == 7
    for header in ("message_id", "timestamp", "expiration", "priority", "destination", "correlation_id", "reply_to"):
        assert getattr(shown, f"jms_{header}") == getattr(message, f"jms_{header}"), header


def test_it_shows_selected_messages_alone(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    for number in range(10):
        message = session.create_text_message(str(number))
        message.set_int_property("number", number)
        producer.send(message)
    browser = session.create_browser(queue, "number between 3 and 5")
    assert browser.message_selector == "number between 3 and 5"
    assert texts_of(browser) == ["3", "4", "5"]
    assert session.create_browser(queue, "").message_selector is None
    with pytest.raises(InvalidSelectorException):
        session.create_browser(queue, "number between 3")


def test_it_reads_long_queues_page_by_page(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(transacted=True)
    texts = [str(number) for number in range(250)]
    send_texts(session, queue, *texts)
    assert texts_of(session.create_browser(queue)) == texts
    assert texts_of(session.create_browser(queue, "JMSPriority = 4")) == texts


def test_each_iteration_begins_again_and_goes_its_own_way(session: Session, queue: Queue) -> None:
    send_texts(session, queue, *TEXTS)
    browser = session.create_browser(queue)
    first, second = browser.enumeration, browser.enumeration
    assert next(first).get_body(str) == "a"
    assert next(first).get_body(str) == "b"
    assert next(second).get_body(str) == "a"
    send_texts(session, queue, "d")
    assert texts_of(browser) == [*TEXTS, "d"]


def test_it_does_not_show_uncommitted_messages(
    connection: Connection, session: Session, others: Session, queue: Queue
) -> None:
    send_texts(session, queue, *TEXTS)
    transacted = connection.create_session(transacted=True)
    transacted.create_producer(queue).send(transacted.create_text_message("d"))
    assert texts_of(transacted.create_browser(queue)) == TEXTS
    assert texts_of(others.create_browser(queue)) == TEXTS
    transacted.commit()
    assert texts_of(transacted.create_browser(queue)) == [*TEXTS, "d"]
    assert texts_of(others.create_browser(queue)) == [*TEXTS, "d"]


def test_it_shows_its_own_transaction_as_it_stands(connection: Connection, others: Session, queue: Queue) -> None:
    transacted = connection.create_session(transacted=True)
    send_texts(transacted, queue, *TEXTS)
    assert receive_texts(transacted.create_consumer(queue), 1) == ["a"]
    assert texts_of(transacted.create_browser(queue)) == ["b", "c"]
    assert texts_of(others.create_browser(queue)) == TEXTS, "nothing is committed yet"
    transacted.rollback()
    assert texts_of(transacted.create_browser(queue)) == TEXTS
    assert receive_texts(transacted.create_consumer(queue), 1) == ["a"]
    transacted.commit()
    assert texts_of(others.create_browser(queue)) == ["b", "c"]


def test_it_does_not_show_claimed_messages(connection: Connection, others: Session, queue: Queue) -> None:
    claiming = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(claiming, queue, *TEXTS)
    assert receive_texts(claiming.create_consumer(queue), 1) == ["a"]
    browser = others.create_browser(queue)
    assert texts_of(browser) == ["b", "c"]
    claiming.recover()
    again = list(browser)
    assert texts_of(again) == TEXTS
    assert [message.jms_redelivered for message in again] == [True, False, False]


def test_message_it_shows_acknowledges_nothing(connection: Connection, queue: Queue) -> None:
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(session, queue, *TEXTS)
    consumer = session.create_consumer(queue)
    assert receive_texts(consumer, 1) == ["a"]
    next(session.create_browser(queue).enumeration).acknowledge()
    session.recover()
    assert texts_of(receive_all(consumer)) == TEXTS


def test_it_works_on_a_stopped_connection(connection: Connection, session: Session, queue: Queue) -> None:
    send_texts(session, queue, *TEXTS)
    connection.stop()
    assert texts_of(session.create_browser(queue)) == TEXTS


def test_closed_browser_refuses_every_use(session: Session, queue: Queue) -> None:
    send_texts(session, queue, *[str(number) for number in range(101)])
    with session.create_browser(queue) as browser:
        assert browser.queue == queue
        under_way = iter(browser)
        next(under_way)
    browser.close()
    for call in (lambda: browser.queue, lambda: browser.message_selector, lambda: next(iter(browser))):
        with pytest.raises(IllegalStateException, match="browser is closed"):
            call()
    with pytest.raises(IllegalStateException, match="browser is closed"):
        list(under_way)


def test_only_queues_are_browsed(session: Session) -> None:
    with pytest.raises(InvalidDestinationException):
        session.create_browser(Topic("news"))  # type: ignore[arg-type]
    assert list(session.create_browser(Queue("never used"))) == []


def test_a_browser_leaves_no_transaction_open(connection: Connection, queue: Queue, server: Server) -> None:
    session = connection.create_session(transacted=True)
    with session.create_browser(queue) as browser:
        assert list(browser) == []
    wait_for(lambda: server.rows(OPEN_TRANSACTIONS) == [])  # another client may be between two statements


def test_a_browser_leaves_the_sessions_work_to_its_commit(
    connection: Connection, others: Session, queue: Queue
) -> None:
    send_texts(others, queue, "a", "b")
    session = connection.create_session(transacted=True)
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]
    session.create_producer(Queue("replies")).send(session.create_text_message("reply"))
    list(session.create_browser(queue))
    session.rollback()
    assert sorted(texts_of(receive_all(others.create_consumer(queue)))) == ["a", "b"]
    assert receive_all(others.create_consumer(Queue("replies"))) == []
