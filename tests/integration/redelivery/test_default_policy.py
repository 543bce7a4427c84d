"""What becomes of messages that go on failing where no policy says it."""

from __future__ import annotations

import logging

import pytest

from jmsql import AcknowledgeMode, Message, Queue, Session
from jmsql.admin import Administration
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.integration.redelivery.test_policies import FAILING, count, fail
from tests.texts import receive, receive_texts, send_texts

DLQ = Queue("DLQ")


@pytest.fixture(autouse=True)
def three_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third error is one too many, and pauses are short."""
    monkeypatch.setattr("jmsql.store.receiving.redelivery.MOST_ERRORS", 3)
    monkeypatch.setattr("jmsql.values.policies._DELAYS_AFTER_ERRORS", (0.0, 0.05))


def is_empty(server: Server, queue: Queue) -> bool:
    return server.rows("select ready + waiting from jmsql.queues where queue = %s", queue.name) == [(0,)]


@FAILING
def test_a_message_with_too_many_errors_moves_to_the_dead_letter_queue(
    mode_session: Session, others: Session, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    send_texts(others, queue, "poison")
    consumer = mode_session.create_consumer(queue)
    for number in (1, 2, 3):
        assert count(receive(consumer)) == number
        fail(mode_session, KeyError("goods"))

    dead = receive(others.create_consumer(DLQ))
    assert dead.get_body(str) == "poison"
    assert dead.get_string_property("JMS_jmsql_DeadLetterReason") == "maximum deliveries"
    assert dead.get_int_property("JMS_jmsql_Deliveries") == 3
    assert "KeyError" in str(dead.get_string_property("JMS_jmsql_LastError"))
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    end = "of queue://orders moves to the dead-letter queue, after 3 failed deliveries."
    assert record.getMessage() == f"The message {dead.jms_message_id} {end}"
    assert vars(record).items() >= {"message_id": dead.jms_message_id, "destination": "queue://orders"}.items()


@FAILING
def test_rollbacks_without_an_error_do_not_count(mode_session: Session, others: Session, queue: Queue) -> None:
    send_texts(others, queue, "patient")
    consumer = mode_session.create_consumer(queue)
    for number in range(1, 7):
        assert count(receive(consumer)) == number
        fail(mode_session)
    for number in (7, 8):
        assert count(receive(consumer)) == number
        fail(mode_session, "broken")
    assert count(receive(consumer)) == 9


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_listeners_that_fail_count(mode_session: Session, others: Session, queue: Queue, server: Server) -> None:
    seen = []

    def listener(message: Message) -> None:
        seen.append(count(message))
        raise ValueError("no")

    send_texts(others, queue, "poison")
    mode_session.create_consumer(queue).message_listener = listener

    assert receive_texts(others.create_consumer(DLQ), 1) == ["poison"]
    assert seen == [1, 2, 3]
    wait_for(lambda: is_empty(server, queue))


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
def test_a_policy_of_the_destination_goes_before_it_as_a_whole(
    mode_session: Session, others: Session, queue: Queue, administration: Administration
) -> None:
    administration.create_queue(queue.name, redelivery_delay=0)
    send_texts(others, queue, "patient")
    consumer = mode_session.create_consumer(queue)
    for number in range(1, 7):
        assert count(receive(consumer)) == number
        fail(mode_session, "broken")
    assert count(receive(consumer)) == 7


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
def test_messages_in_the_dead_letter_queue_stay_there(mode_session: Session, others: Session, server: Server) -> None:
    send_texts(others, DLQ, "dead already")
    consumer = mode_session.create_consumer(DLQ)
    for number in range(1, 6):
        assert count(receive(consumer)) == number
        fail(mode_session, "broken")
    assert server.rows("select delivery_count, next_attempt is not null from jmsql.messages") == [(5, True)]
