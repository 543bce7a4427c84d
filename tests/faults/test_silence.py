"""A network that swallows packets: within the bound that the documentation names, both sides are rid of each other."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

from jmsql import AcknowledgeMode, ConnectionFactory, JMSException, Queue
from jmsql.client._sync.link.opening import open_runner
from jmsql.client._sync.link.own import OwnLink
from jmsql.spark.connection import DatabaseReference
from jmsql.store.connections.database_url import parse_url
from jmsql.store.connections.engine import Endpoint
from jmsql.testing import FAST_TIMINGS, wait_for
from jmsql.values.clock import monotonic
from tests.background import Background
from tests.faults.faulty_server import FaultyServer, faulty_server
from tests.faults.proxy import CuttingProxy
from tests.integration.client.server import with_parameters
from tests.leadership import LEADER
from tests.texts import receive, send_texts, texts_left

QUEUE = Queue("orders")
CLIENT = {
    "keepalives_idle": socket.TCP_KEEPIDLE,
    "keepalives_interval": socket.TCP_KEEPINTVL,
    "keepalives_count": socket.TCP_KEEPCNT,
    "tcp_user_timeout": socket.TCP_USER_TIMEOUT,
}
SETTINGS = """
    select array[current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'),
                 current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout')]::integer[]"""
DEFAULTS = [10, 5, 3, 20_000]

# The mechanism in a tenth of the time; that the defaults are what they are is a test of its own.
HURRIED = {
    "keepalives_idle": "1",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "2000",
    "connect_timeout": "2",
    "options": "-c tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2 "
    "-c tcp_user_timeout=2000",
}
SLOW_MACHINE = 12
SERVER_BOUND, CALL_BOUND = 2 + 1 + SLOW_MACHINE, 2 + 1 + 2 + SLOW_MACHINE
"""Seconds: what the hurried parameters make of the documented bounds, and a slow machine. With the defaults it takes
20 seconds."""
SESSIONS = 12
LEASE = FAST_TIMINGS.lease_duration + FAST_TIMINGS.maintenance_interval + SLOW_MACHINE
"""Seconds within which another client does the maintenance."""


@pytest.fixture(scope="module")
def listening_server() -> Iterator[FaultyServer]:
    """A server that is reached by TCP."""
    process = os.getpid()
    address = f"127.{10 + process % 200}.{process // 256 % 256}.{1 + process % 250}"
    with faulty_server(address=address) as server:
        yield server


@pytest.fixture
def administrator(listening_server: FaultyServer) -> Iterator[psycopg.Connection[Any]]:
    """Reaches the server whatever becomes of the network."""
    with psycopg.connect(listening_server.url, autocommit=True) as connection:
        connection.execute("delete from jmsql_internal.message")
        yield connection


@pytest.fixture
def proxy(listening_server: FaultyServer) -> Iterator[CuttingProxy]:
    with CuttingProxy(listening_server.network_url) as proxy:
        yield proxy


def sides(connection: psycopg.Connection[Any]) -> tuple[list[int], list[int]]:
    """What the client's socket and the server's are set to."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        own = [end.getsockopt(socket.IPPROTO_TCP, option) for option in CLIENT.values()]
    row = connection.execute(SETTINGS).fetchone()
    assert row is not None
    return own, row[0]


def test_both_sides_of_each_connection_have_keepalives(listening_server: FaultyServer) -> None:
    url = listening_server.network_url
    with ConnectionFactory(url).create_connection() as connection:
        database = connection.create_session(transacted=True).database
        driver_connection = database.connection.driver_connection
        assert isinstance(driver_connection, psycopg.Connection)
        assert sides(driver_connection) == (DEFAULTS, DEFAULTS)
        with psycopg.connect(url) as other:
            clients = other.execute("select server_process_id from jmsql_internal.connection").fetchall()
        # The client of an earlier test, whose network was cut, may not have been missed yet.
        assert (connection._control._service.link.connection.info.backend_pid,) in clients
    control_like, _ = Endpoint(parse_url(url)).connect()
    with control_like:
        assert sides(control_like) == (DEFAULTS, DEFAULTS)
    with open_runner(url, "jmsql") as command:
        assert sides(command.connection) == (DEFAULTS, DEFAULTS)
    for autocommit in (False, True):
        with DatabaseReference(url=url).connect("testing", autocommit=autocommit) as spark:
            assert sides(spark) == (DEFAULTS, DEFAULTS)
    with DatabaseReference(url=url).connect_arrow("testing") as arrow:
        [settings] = arrow.execute(SETTINGS).read_all().column(0).to_pylist()
        assert settings == [10, 5, 3, 0], "a reader may pause in the middle of what it reads"


def test_the_urls_parameters_go_before_the_defaults(listening_server: FaultyServer) -> None:
    url = with_parameters(
        listening_server.network_url,
        keepalives_idle="7",
        tcp_user_timeout="0",
        options="-c tcp_keepalives_count=9 -c tcp_user_timeout=0",
    )
    with open_runner(url, "jmsql") as connection:
        assert sides(connection.connection) == ([7, 5, 3, 0], [10, 5, 9, 0])


def test_settings_of_the_server_that_are_stricter_stay(
    listening_server: FaultyServer, administrator: psycopg.Connection[Any]
) -> None:
    administrator.execute("alter database postgres set tcp_keepalives_idle = 3")
    try:
        with open_runner(listening_server.network_url, "jmsql") as connection:
            assert sides(connection.connection)[1] == [3, 5, 3, 20_000]
    finally:
        administrator.execute("alter database postgres reset tcp_keepalives_idle")


def test_unix_socket_needs_none_of_it(listening_server: FaultyServer) -> None:
    with open_runner(listening_server.url, "jmsql") as connection:
        found = connection.connection.execute("select current_setting('tcp_user_timeout')")
        assert found.fetchall() == [("0",)]


def elapsed(call: Callable[[], object]) -> tuple[float, BaseException | None]:
    """Return how long a call takes, and what it raises."""
    started = time.monotonic()
    try:
        call()
    except JMSException as error:
        return time.monotonic() - started, error
    return time.monotonic() - started, None


def test_vanished_client_is_forgotten_and_its_own_calls_return(
    listening_server: FaultyServer, administrator: psycopg.Connection[Any], proxy: CuttingProxy
) -> None:
    cut_off = ConnectionFactory(with_parameters(proxy.url, **HURRIED), timings=FAST_TIMINGS).create_connection()
    told = threading.Event()
    cut_off.exception_listener = lambda _: told.set()
    cut_off.start()
    wait_for(lambda: administrator.execute(LEADER).fetchall())
    claiming = cut_off.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    working = cut_off.create_session(transacted=True)
    sending = cut_off.create_session()
    waiting = cut_off.create_session()
    send_texts(sending, QUEUE, "claimed")
    claimed = receive(claiming.create_consumer(QUEUE))
    send_texts(sending, QUEUE, "locked")
    assert receive(working.create_consumer(QUEUE)).get_body(str) == "locked"
    working.database.execute(sqlalchemy.text("select pg_advisory_xact_lock(4711)"))
    consumer = waiting.create_consumer(Queue("empty"))
    receiving = Background(lambda: elapsed(lambda: consumer.receive(60)))
    receiving.wait_until_it_waits()

    assert cut_off._control.connection_id in [number for (number,) in administrator.execute(LEADER)]
    living = ConnectionFactory(listening_server.url, timings=FAST_TIMINGS).create_connection()
    proxy.swallow()
    started = time.monotonic()
    calls = [
        receiving,
        Background(lambda: elapsed(lambda: send_texts(sending, QUEUE, "never"))),
        Background(lambda: elapsed(working.commit)),
        Background(lambda: elapsed(claimed.acknowledge)),
    ]
    locks = "select from pg_locks where locktype = 'advisory' and objid = 4711"
    remote = "select from pg_stat_activity where client_addr is not null"
    wait_for(lambda: not administrator.execute(locks).fetchall(), SERVER_BOUND)
    wait_for(lambda: not administrator.execute(remote).fetchall(), SERVER_BOUND)
    claims = "select from jmsql_internal.delivery where claim_id is not null"
    wait_for(lambda: not administrator.execute(claims).fetchall(), LEASE)
    assert time.monotonic() - started < SERVER_BOUND + LEASE
    for call in calls:
        seconds, error = call.result(timeout=2 * CALL_BOUND)
        assert isinstance(error, JMSException), call
        assert seconds < CALL_BOUND
    assert told.wait(CALL_BOUND)
    assert elapsed(cut_off.close)[0] < CALL_BOUND
    assert sorted(texts_left(ConnectionFactory(listening_server.url), QUEUE)) == ["claimed", "locked"]
    living.close()


def test_a_session_whose_idle_connection_a_firewall_has_dropped_takes_another_one(
    listening_server: FaultyServer, administrator: psycopg.Connection[Any], proxy: CuttingProxy
) -> None:
    with ConnectionFactory(with_parameters(proxy.url, **HURRIED), timings=FAST_TIMINGS).create_connection() as cut_off:
        sending = cut_off.create_session()
        send_texts(sending, QUEUE, "a")
        lease = sending._transaction.database
        assert lease is not None
        link = lease.link
        assert isinstance(link, OwnLink)
        with selectors.DefaultSelector() as selector:
            selector.register(link.driver.fileno(), selectors.EVENT_READ)
            proxy.forget_connections()
            assert selector.select(SERVER_BOUND), "keepalives"
        time.sleep(max(0.0, link.driver.trusted_until - monotonic()))
        send_texts(sending, QUEUE, "b")
    assert sorted(texts_left(ConnectionFactory(listening_server.url), QUEUE)) == ["a", "b"]


def test_sessions_do_not_wait_for_the_network_one_after_the_other(proxy: CuttingProxy) -> None:
    connection = ConnectionFactory(with_parameters(proxy.url, **HURRIED), timings=FAST_TIMINGS).create_connection()
    connection.start()
    for number in range(SESSIONS):
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        send_texts(session, QUEUE, str(number))
        receive(session.create_consumer(QUEUE))
    proxy.swallow()
    # A second one may have to notice for itself, as its connection was used later. One after the other takes longer.
    notices = CALL_BOUND - SLOW_MACHINE
    assert elapsed(connection.close)[0] < 2 * notices + SLOW_MACHINE < SESSIONS * notices
