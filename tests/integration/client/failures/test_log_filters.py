"""Filters of the log, which are the application's, and fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from jmsql import Connection, Queue, RedeliveryPolicy, Session
from jmsql.testing import wait_for
from tests.integration.client.server import CONTROL, Server
from tests.texts import receive, send_texts

pytestmark = pytest.mark.own_connection


@pytest.fixture(autouse=True)
def failing(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """A filter fails with each record, which it notes."""
    heard: list[str] = []

    def refuse(record: logging.LogRecord) -> bool:
        heard.append(record.getMessage())
        raise KeyError("bug in a filter")

    caplog.set_level(logging.INFO, "jmsql")
    logger = logging.getLogger("jmsql")
    logger.addFilter(refuse)
    yield heard
    logger.removeFilter(refuse)


@pytest.mark.usefixtures("maintenance_suspended")  # which may be moving the message as the test looks for it
def test_a_rollback_makes_a_dead_letter_whatever_the_log_does(
    connection: Connection, session: Session, queue: Queue, server: Server, failing: list[str]
) -> None:
    send_texts(session, queue, "a")
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    consumer.set_redelivery_policy(RedeliveryPolicy(maximum_deliveries=1))
    receive(consumer)
    transacted.rollback("it failed")
    assert server.rows("select count(*) from jmsql.dead_letters") == [(1,)]
    assert consumer.receive_no_wait() is None
    assert any("moves to the dead-letter queue" in each for each in failing)


def test_a_control_connection_is_restored_whatever_the_log_does(
    connection: Connection, session: Session, others: Session, queue: Queue, server: Server, failing: list[str]
) -> None:
    consumer = session.create_consumer(queue)
    assert consumer.receive_no_wait() is None
    assert server.terminate(CONTROL) >= 1
    wait_for(lambda: any("restored" in each for each in failing))
    send_texts(others, queue, "a")
    assert receive(consumer).get_body(str) == "a"
