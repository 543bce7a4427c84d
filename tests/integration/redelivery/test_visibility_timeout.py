"""Claims with a visibility timeout: handlers at work keep them, and handlers that hang lose them."""

from __future__ import annotations

import contextlib
import threading

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    Message,
    Queue,
    Session,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.client_process import Order, client_process
from tests.integration.client.server import SESSIONS, Server
from tests.slowness import scaled
from tests.texts import receive, send_texts, texts_of

LIMIT = 2.0
"""Seconds. A slow machine extends a claim late."""
PATIENCE = 60.0


def test_a_message_that_is_held_for_too_long_goes_to_another_and_cannot_be_acknowledged_any_more(
    connection: Connection, other_connection: Connection, others: Session, queue: Queue, server: Server
) -> None:
    consumer = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue)
    consumer.visibility_timeout = LIMIT
    send_texts(others, queue, "a", "b")
    first = receive(consumer)

    taking = other_connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    other = taking.create_consumer(queue)
    messages = {}
    while "a" not in messages:
        message = other.receive(timeout=PATIENCE)
        assert message is not None
        messages[message.get_body(str)] = message
    assert messages["a"].get_int_property("JMSXDeliveryCount") == 2
    assert server.rows("select last_error from jmsql.messages where body = 'a'") == [
        ("the client held the message for longer than its visibility timeout",)
    ]
    with pytest.raises(JMSException, match=r"could not be acknowledged.*held for longer than their visibility timeout"):
        first.acknowledge()
    messages["a"].acknowledge()
    taking.close()
    connection.close()
    assert receive_all(others.create_consumer(queue)) == []


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
def test_a_listener_keeps_its_message_for_as_long_as_it_runs_and_no_transaction_is_open(
    mode_session: Session,
    connection: Connection,
    others: Session,
    queue: Queue,
    administration: Administration,
    server: Server,
) -> None:
    administration.create_queue(queue.name, visibility_timeout=LIMIT)
    is_enough = threading.Event()
    heard: list[int] = []

    def listen(message: Message) -> None:
        heard.append(message.get_int_property("JMSXDeliveryCount"))
        is_enough.wait(PATIENCE)
        message.acknowledge()

    mode_session.create_consumer(queue).message_listener = listen
    send_texts(others, queue, "a")
    wait_for(lambda: heard)
    extended = f"select claim_expires_at > claimed_at + interval '{2.5 * LIMIT} seconds' from jmsql_internal.delivery"
    wait_for(lambda: server.rows(extended.encode()) == [(True,)], PATIENCE)  # type: ignore[arg-type] # no literal
    transactions = "select state from pg_stat_activity where application_name = %s and xact_start is not null"
    # Each extension is a transaction of its own; one around the handler would last until the handler ends.
    wait_for(lambda: server.rows(transactions, SESSIONS) == [])
    is_enough.set()
    mode_session.close()
    assert heard == [1]
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]


def test_a_program_that_receives_can_keep_its_claims_too(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, visibility_timeout=LIMIT)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(others, queue, "a")
    message = receive(session.create_consumer(queue))
    with session.extend_claims():
        extended = "select claim_expires_at > claimed_at + interval '5 seconds' from jmsql_internal.delivery"
        wait_for(lambda: server.rows(extended) == [(True,)], PATIENCE)
    message.acknowledge()
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])


def test_claims_that_are_soon_over_are_extended_at_once(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    limit = scaled(2 * LIMIT)
    administration.create_queue(queue.name, visibility_timeout=limit)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    send_texts(others, queue, "a")
    receive(session.create_consumer(queue))
    ends_soon = (
        "select claim_expires_at - clock_timestamp() < %s::float8 * interval '1 second' from jmsql_internal.delivery"
    )
    wait_for(lambda: server.rows(ends_soon, limit / 4) == [(True,)], PATIENCE)
    with session.extend_claims():
        wait_for(lambda: server.rows(ends_soon, limit / 2) == [(False,)], limit / 4)


def test_a_process_that_hangs_loses_its_message_to_another(
    jmsql_clean_url: str, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, visibility_timeout=LIMIT)
    send_texts(others, queue, "a")
    order = Order(queue.name, AcknowledgeMode.AUTO.name, receives=1, listens=True)
    with client_process(jmsql_clean_url, order) as client:
        client.wait_until_ready()
        assert client.received(1) == [[queue.name, "a"]]
        client.freeze()
        try:
            message = receive(others.create_consumer(queue))
            assert message.get_int_property("JMSXDeliveryCount") == 2
        finally:
            client.thaw()
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])


def test_with_a_visibility_timeout_messages_are_claimed_one_at_a_time(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, visibility_timeout=3600)
    texts = [f"{number}" for number in range(20)]
    send_texts(others, queue, *texts)
    consumer = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT).create_consumer(queue)
    messages = [receive(consumer) for _ in range(10)]
    assert texts_of(messages) == texts[:10]
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(10,)]
    messages[-1].acknowledge()


def test_visibility_timeouts_are_checked(connection: Connection, queue: Queue, administration: Administration) -> None:
    consumer = connection.create_session().create_consumer(queue)
    with pytest.raises(ValueError, match=r"at least 1 s, not 0\.5 s"):
        consumer.visibility_timeout = 0.5
    with pytest.raises(JMSException, match="visibility_timeout"):
        administration.create_queue(queue.name, visibility_timeout=0.5)
    consumer.visibility_timeout = 5
    assert consumer.visibility_timeout == 5.0
    consumer.close()
    with pytest.raises(IllegalStateException):
        consumer.visibility_timeout = 5


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_settled_though_its_claim_is_extended_at_the_same_moment(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str, others: Session, server: Server, *, fails: bool
) -> None:
    blocked = "select from pg_stat_activity where %s = any(pg_blocking_pids(pid)) or wait_event = 'tuple'"
    errors: list[JMSException] = []
    deliveries: list[int] = []
    texts: list[tuple[bool]] = []
    with jmsql_factory.create_connection() as connection, psycopg.connect(jmsql_clean_url) as blocker:
        connection.exception_listener = errors.append
        process = blocker.info.backend_pid

        def listen(message: Message) -> None:
            deliveries.append(message.get_int_property("JMSXDeliveryCount"))
            if len(deliveries) == 1:
                blocker.execute("select from jmsql_internal.delivery for update")
                wait_for(lambda: server.rows(blocked, process))  # the extension
                if fails:
                    raise ValueError("the handler's own error")
            else:
                texts.extend(server.rows("select last_error like '%%own error%%' from jmsql.messages"))

        consumer = connection.create_session().create_consumer(Queue("orders"))
        consumer.visibility_timeout = 2 * LIMIT
        consumer.message_listener = listen
        connection.start()
        send_texts(others, Queue("orders"), "a")
        wait_for(lambda: deliveries)
        wait_for(lambda: server.rows(blocked, process))
        with contextlib.suppress(AssertionError):
            wait_for(lambda: len(server.rows(blocked, process)) > 1, timeout=0.5)  # it does not wait there
        blocker.rollback()
        wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)], PATIENCE)
    assert (deliveries, texts, errors) == (([1, 2], [(True,)], []) if fails else ([1], [], []))
