"""The pause before a message comes again, where no policy says how long: it grows with the errors alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.texts import receive, send_texts

PAUSE = "select next_attempt, delivery_count from jmsql_internal.delivery"


def release(session: Session, error: str | None) -> None:
    if session.transacted:
        session.rollback(error)
    else:
        session.recover(error)


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT])
@pytest.mark.parametrize("plain", [0, 1, 3])
def test_there_is_none_after_the_first_error_however_often_the_message_came_back_before(
    mode_session: Session, queue: Queue, others: Session, server: Server, plain: int
) -> None:
    send_texts(others, queue, "text")
    consumer = mode_session.create_consumer(queue)
    for _ in range(plain):
        receive(consumer)
        release(mode_session, None)
    receive(consumer)
    release(mode_session, "first")
    assert server.rows(PAUSE) == [(None, plain + 1)]
    receive(consumer)
    release(mode_session, None)
    assert server.rows(PAUSE) == [(None, plain + 2)]
    for expected in (0.1, 0.5, 2.0):
        receive(consumer)
        before = server.rows("select clock_timestamp()")[0][0]
        release(mode_session, "again")
        [(next_attempt, after)] = server.rows("select next_attempt, clock_timestamp() from jmsql_internal.delivery")
        pause = timedelta(seconds=expected)
        assert before + pause <= next_attempt <= after + pause
        server.rows("update jmsql_internal.delivery set next_attempt = null returning 1")  # nobody is to wait for it
        consumer.close()
        consumer = mode_session.create_consumer(queue)


def test_a_listener_gets_a_message_again_at_once_after_its_first_error(
    connection: Connection, queue: Queue, others: Session, server: Server
) -> None:
    send_texts(others, queue, "text")
    with connection.create_session(transacted=True) as transacted, transacted.create_consumer(queue) as consumer:
        for _ in range(5):
            receive(consumer)
            transacted.rollback()
    counts: list[int] = []
    pauses: list[object] = []

    def fail_once(message: Message) -> None:
        counts.append(message.get_int_property("JMSXDeliveryCount"))
        if len(counts) == 1:
            raise RuntimeError("first")
        pauses.extend(server.rows("select error_count from jmsql_internal.delivery"))

    session = connection.create_session()
    session.create_consumer(queue).message_listener = fail_once
    wait_for(lambda: len(counts) == 2, timeout=9)  # after a fifth delivery it would be 10 s
    session.close()
    assert counts == [6, 7]
    assert pauses == [(1,)]


def test_each_message_of_a_transaction_has_its_own_errors(
    mode_session: Session, queue: Queue, others: Session, server: Server
) -> None:
    send_texts(others, queue, "a")
    consumer = mode_session.create_consumer(queue)
    receive(consumer)
    release(mode_session, "of a")
    send_texts(others, queue, "b")
    receive(consumer)
    receive(consumer)
    release(mode_session, "of both")
    assert server.rows("select error_count, next_attempt is null from jmsql_internal.delivery order by sequence") == [
        (2, False),
        (1, True),
    ]


@pytest.fixture
def mode() -> AcknowledgeMode:
    return AcknowledgeMode.TRANSACTED
