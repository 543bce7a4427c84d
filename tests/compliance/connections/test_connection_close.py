"""Closing a connection: JMS 1.1 chapter 4.3.5."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, IllegalStateException, Queue, Session
from jmsql.testing import receive_all
from tests.compliance.closed_objects import BROWSER_CALLS, CONSUMER_CALLS, PRODUCER_CALLS, SESSION_CALLS


@pytest.mark.requirement("connection.close.closed")
@pytest.mark.case("connection-close-01")
def test_connection_may_be_closed_twice(connection: Connection) -> None:
    connection.close()
    connection.close()


CONNECTION_CALLS: list[Callable[[Connection], object]] = [
    lambda connection: connection.client_id,
    lambda connection: setattr(connection, "client_id", "client"),
    lambda connection: connection.metadata,
    lambda connection: connection.exception_listener,
    lambda connection: setattr(connection, "exception_listener", None),
    lambda connection: connection.create_session(),
    lambda connection: connection.create_session(transacted=True),
    lambda connection: connection.start(),
    lambda connection: connection.stop(),
]


@pytest.mark.requirement("connection.close")
@pytest.mark.case("connection-close-02")
def test_closed_connection_refuses_every_use(connection: Connection) -> None:
    connection.close()
    for call in CONNECTION_CALLS:
        with pytest.raises(IllegalStateException, match="closed"):
            call(connection)


@pytest.mark.requirement("connection.close", "connection.close.resources")
@pytest.mark.case("connection-close-02")
@pytest.mark.parametrize("transacted", [False, True])
def test_objects_of_a_closed_connection_refuse_every_use(
    connection: Connection, queue: Queue, transacted: bool
) -> None:
    session = connection.create_session(transacted)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    browser = session.create_browser(queue)
    message = session.create_message()
    connection.close()
    calls: list[Callable[[], object]] = [
        *(lambda call=call: call(session) for call in SESSION_CALLS),
        *(lambda call=call: call(producer, message) for call in PRODUCER_CALLS),
        *(lambda call=call: call(consumer) for call in CONSUMER_CALLS),
        *(lambda call=call: call(browser) for call in BROWSER_CALLS),
    ]
    for call in calls:
        with pytest.raises(IllegalStateException, match="closed"):
            call()
    for closable in (session, producer, consumer, browser):
        closable.close()


def receive_two_of_three(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    for text in "abc":
        producer.send(session.create_text_message(text))
    if session.transacted:
        session.commit()
    consumer = session.create_consumer(queue)
    assert [message.get_body(str) for _ in range(2) if (message := consumer.receive(timeout=60))] == ["a", "b"]


@pytest.mark.requirement("connection.close.resources")
@pytest.mark.parametrize(
    ("mode", "left"),
    [
        (AcknowledgeMode.TRANSACTED, ["a", "b", "c"]),
        (AcknowledgeMode.CLIENT, ["a", "b", "c"]),
        (AcknowledgeMode.AUTO, ["c"]),
        (AcknowledgeMode.DUPS_OK, ["c"]),
    ],
)
def test_close_releases_the_messages_of_its_sessions(
    jmsql_factory: ConnectionFactory, connection: Connection, queue: Queue, mode: AcknowledgeMode, left: list[str]
) -> None:
    session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    receive_two_of_three(session, queue)
    connection.close()
    with jmsql_factory.create_connection() as second:
        second.start()
        consumer = second.create_session().create_consumer(queue)
        assert [message.get_body(str) for message in receive_all(consumer)] == left
