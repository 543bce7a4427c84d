"""The client that does the maintenance is frozen: another does it, and the first does no harm."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session
from jmsql.store.control.liveness import AdvisoryLock
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import FAST_TIMINGS, wait_for
from jmsql.timings import InternalTimings
from tests.forked import ForkedProcess
from tests.integration.client.server import Server
from tests.leadership import LEADER
from tests.texts import receive, receive_texts, send_texts

UNEXPIRED = """
    select count(*) from jmsql_internal.message where jms_expiration > extract(epoch from clock_timestamp()) * 1000"""
BOUND = 60.0


@pytest.fixture
def jmsql_timings() -> InternalTimings:
    """A client that cannot do the maintenance pauses for longer than its lease."""
    return dataclasses.replace(FAST_TIMINGS, maintenance_retry_delay=FAST_TIMINGS.lease_duration + 1)


def _stay_connected(url: str) -> None:
    with ConnectionFactory(url, timings=FAST_TIMINGS).create_connection() as connection:
        connection.start()
        connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        print("ready", flush=True)  # noqa: T201 - for `other_process`
        sys.stdin.read()


@contextmanager
def other_process(url: str) -> Iterator[ForkedProcess]:
    """A client in a process of its own, which is there when the block begins."""
    process = ForkedProcess(_stay_connected, url)
    try:
        assert process.read_line() == "ready\n"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()


@pytest.fixture
def leader(jmsql_clean_url: str, server: Server) -> Iterator[ForkedProcess]:
    """A process that does the maintenance."""
    with other_process(jmsql_clean_url) as process:
        wait_for(lambda: server.rows(LEADER))
        yield process


def freeze(process: ForkedProcess, server: Server, connection_id: int) -> bool:
    """Stop a client between two transactions of its control connection: the server would end one that stays open."""
    process.send_signal(signal.SIGSTOP)
    is_idle = server.rows(
        "select from pg_stat_activity join jmsql_internal.connection on server_process_id = pid "
        "where connection_id = %s and state = 'idle'",
        connection_id,
    )
    if not is_idle:
        process.send_signal(signal.SIGCONT)
    return bool(is_idle)


def test_maintenance_goes_on_without_the_frozen_leader(
    leader: ForkedProcess, jmsql_clean_url: str, server: Server, other_connection: Connection, queue: Queue
) -> None:
    [(frozen,)] = wait_for(lambda: server.rows(LEADER))
    session = other_connection.create_session()
    with other_process(jmsql_clean_url) as victim:
        killed = max(number for (number,) in server.rows("select connection_id from jmsql_internal.connection"))
        server.rows("with q as (select jmsql.create_queue('held', '{}')) select from q")
        send_texts(session, Queue("held"), "held")
        server.rows(
            "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, claim_id, "
            "connection_id, claimed_at) "
            "select queue_id, inverse_priority, sequence, nextval('jmsql_internal.claim_sequence'), %s, now() "
            "from jmsql_internal.message",
            killed,
        )
        wait_for(lambda: freeze(leader, server, frozen))
        frozen_at = time.monotonic()
        victim.kill()
    with session.create_producer(queue) as producer:
        producer.send(session.create_text_message("expired"), time_to_live=0.01)
        producer.delivery_delay = 0.5
        producer.send(session.create_text_message("delayed"))
    wait_for(lambda: server.rows(UNEXPIRED) == [(0,)])
    assert receive(session.create_consumer(queue)).get_body(str) == "delayed"
    assert receive_texts(session.create_consumer(Queue("held")), 1) == ["held"]
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)], BOUND)
    assert time.monotonic() - frozen_at < BOUND
    [(successor,)] = wait_for(lambda: server.rows(LEADER))
    assert successor != frozen
    leader.send_signal(signal.SIGCONT)
    send_texts(session, queue, "a")
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]
    assert wait_for(lambda: server.rows(LEADER)) == [(successor,)]
    assert server.rows("select jmsql_internal.is_connected(%s)", frozen) == [(True,)]


def test_transaction_in_which_a_control_connection_freezes_ends(
    jmsql_clean_url: str, connection: Connection, session: Session, queue: Queue
) -> None:
    """As if the process had been frozen between two statements."""
    with closing(psycopg.connect(jmsql_clean_url, autocommit=True)) as frozen:
        AdvisoryLock(InternalTimings(idle_in_transaction_timeout=0.5)).register(PsycopgRunner(frozen, "jmsql"), 0)
        send_texts(session, queue, "a")
        frozen.execute("begin")
        frozen.execute("select from jmsql_internal.message for update")
        assert receive_texts(session.create_consumer(queue), 1) == ["a"]


def test_a_lock_that_is_kept_holds_up_no_control_connection_for_long(
    connection: Connection, server: Server, blocker: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    wait_for(lambda: server.rows(LEADER))
    before = server.rows("select connection_id from jmsql_internal.connection")
    blocker.execute("lock table jmsql_internal.body in access exclusive mode")
    wait_for(lambda: "Maintenance is postponed" in caplog.text, BOUND)
    wait_for(lambda: server.rows(LEADER) == [], BOUND)
    blocker.rollback()
    wait_for(lambda: server.rows(LEADER) == before, BOUND)
