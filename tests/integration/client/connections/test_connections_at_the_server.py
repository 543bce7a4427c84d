"""The connections that a client has to PostgreSQL: one to begin with, one for each session in use, none after close."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, JMSException, Queue, Session, Timings
from jmsql.store.control.reporting import Reporting
from jmsql.testing import FAST_TIMINGS, wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server
from tests.texts import receive_texts, send_texts

LATEST_QUERY = """
    select max(query_start), max(xact_start) from pg_stat_activity
    where datname = current_database() and application_name = %s"""
OPEN = "select pid from pg_stat_activity where application_name in (%s, %s) order by pid"
KEEPING = dataclasses.replace(FAST_TIMINGS, idle_connection_timeout=3600.0)
MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


def use(session: Session, queue: Queue) -> None:
    """Send and receive, and leave something to be released."""
    send_texts(session, queue, "a", "b")
    assert receive_texts(session.create_consumer(queue), 1) == ["a"]


@pytest.fixture
def other_threads() -> set[threading.Thread]:
    """Those that were there before the connection."""
    return set(threading.enumerate())


@MODES
def test_close_of_the_connection_ends_all(
    other_threads: set[threading.Thread], connection: Connection, mode_session: Session, server: Server, queue: Queue
) -> None:
    use(mode_session, queue)
    mode_session.create_consumer(Queue("other")).message_listener = lambda message: None
    connection.create_session()  # never used
    assert server.connections(CONTROL) == 1
    assert server.connections(SESSIONS) >= 1
    connection.close()
    wait_for(lambda: server.connections(CONTROL) + server.connections(SESSIONS) == 0)
    assert server.rows("select count(*) from jmsql_internal.connection") == [(0,)]
    wait_for(lambda: other_threads.issuperset(threading.enumerate()))


@MODES
def test_close_of_a_session_gives_its_connection_back(
    connection: Connection, server: Server, mode: AcknowledgeMode
) -> None:
    for number in range(10):
        with connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session:
            use(session, Queue(f"queue {number}"))
            assert server.connections(SESSIONS) <= 2, "the session's, and one beside the sessions"


@pytest.mark.usefixtures("jmsql_timings")
@pytest.mark.parametrize("jmsql_timings", [KEEPING], ids=["kept"])
def test_idle_connections_hold_no_transaction(connection: Connection, server: Server) -> None:
    for mode in AcknowledgeMode:
        session, queue = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode), Queue(mode.name)
        send_texts(session, queue, "a")
        consumer = session.create_consumer(queue)
        receive_texts(consumer, 1)
        if session.transacted:
            session.commit()
        Background(consumer.receive).wait_until_it_waits()
    in_transactions = (
        "select pid from pg_stat_activity where application_name in (%s, %s) and xact_start is not null "
        "and state <> 'active'"
    )
    before = server.rows(OPEN, SESSIONS, CONTROL)
    # A poll, and the maintenance, may be between two statements; the server ends what stays in a transaction.
    wait_for(lambda: not server.rows(in_transactions, SESSIONS, CONTROL))
    assert server.rows(OPEN, SESSIONS, CONTROL) == before


def test_connection_that_cannot_be_made_leaves_nothing(factory: ConnectionFactory, server: Server) -> None:
    with ConnectionFactory(
        factory.url, schema=factory.schema, control_url=factory.control_url, client_id="mine"
    ).create_connection() as first:
        before = server.connections(SESSIONS), server.connections(CONTROL)
        with pytest.raises(JMSException, match="in use"):
            ConnectionFactory(
                factory.url, schema=factory.schema, control_url=factory.control_url, client_id=first.client_id
            ).create_connection()
        wait_for(lambda: (server.connections(SESSIONS), server.connections(CONTROL)) == before)


def test_connections_tell_their_name(jmsql_factory: ConnectionFactory, server: Server) -> None:
    before = server.connections("jmsql")
    with jmsql_factory.create_connection():
        assert server.connections("jmsql") > before
    wait_for(lambda: server.connections("jmsql") == before)


def test_connections_have_the_name_that_the_environment_gives(
    jmsql_factory: ConnectionFactory, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.connections("shop") == 0
    monkeypatch.setenv("PGAPPNAME", "shop")
    with jmsql_factory.create_connection() as connection:
        assert server.connections("shop") == 1
        connection.start()
        use(connection.create_session(), Queue("orders"))
        assert server.connections("shop") == 2 + 1, "the session's, and one beside the sessions"


def test_a_session_that_waits_keeps_its_prepared_statements(connection: Connection, queue: Queue) -> None:
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    connection.start()

    def prepared() -> set[str]:
        rows = transacted.database.exec_driver_sql("select name from pg_prepared_statements")
        names = {name for (name,) in rows}
        transacted.commit()
        return names

    assert consumer.receive(timeout=0) is None
    before = prepared()
    assert before
    assert consumer.receive(timeout=0) is None
    assert before <= prepared()


@pytest.mark.parametrize(
    "use", [Session.commit, Session.rollback, Session.close, lambda session: (session.commit(), session.close())]
)
def test_a_session_that_has_done_nothing_takes_no_connection(
    connection: Connection, server: Server, use: Callable[[Session], object]
) -> None:
    session = connection.create_session(transacted=True)
    use(session)
    assert server.connections(SESSIONS) == 0


def test_idle_connections_close_together_once_they_are_not_needed(
    jmsql_factory: ConnectionFactory, server: Server
) -> None:
    period = 1.0
    factory = ConnectionFactory(jmsql_factory.url, timings=Timings(idle_connection_timeout=period))
    with factory.create_connection() as connection:
        *sessions, last = [connection.create_session() for _ in range(6)]
        for session in (*sessions, last):
            send_texts(session, Queue("orders"), "a")
        assert server.connections("jmsql") >= 6
        for session in sessions:
            session.close()
        time.sleep(2 * period)
        last.close()
        # The control connection, and two of the pool: one that the last session had, and one beside the sessions.
        wait_for(lambda: server.connections("jmsql") <= 3)


@pytest.mark.parametrize("end", [Session.commit, Session.rollback])
def test_the_end_of_a_transaction_begins_none(
    connection: Connection, server: Server, queue: Queue, end: Callable[[Session], object]
) -> None:
    session = connection.create_session(transacted=True)
    send_texts(session, queue, "a")
    before = server.rows(LATEST_QUERY, SESSIONS)
    end(session)
    assert server.rows(LATEST_QUERY, SESSIONS) == before, "nothing was asked of the server"
    assert before[0][1] is None, "no transaction is open"


def test_a_commit_that_comes_too_late_opens_no_connection(factory: ConnectionFactory, server: Server) -> None:
    connection = factory.create_connection()
    session = connection.create_session(transacted=True)
    with session._state.lock:  # as a close of the connection that another thread has begun
        committing = Background(session.commit)
        committing.wait_until_it_waits()
        connection.close()
    with pytest.raises(JMSException, match="closed"):
        committing.result()
    wait_for(lambda: server.connections(SESSIONS) == 0)


def test_a_client_that_cannot_write_its_counts_is_gone_when_it_closes(
    factory: ConnectionFactory, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise JMSException("permission denied")

    with factory.create_connection():
        monkeypatch.setattr(Reporting, "write_counters", fail)
    assert server.rows("select count(*) from jmsql_internal.connection") == [(0,)]
