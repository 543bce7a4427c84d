"""A client without consumers does not listen; one that receives later misses nothing, though polling takes minutes."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import jmsql
import jmsql.asyncio as jms
from jmsql import ConnectionFactory, Queue
from jmsql.testing import wait_for
from jmsql.timings import InternalTimings
from tests.background import Background
from tests.faults.proxy import CutPoint, CuttingProxy
from tests.integration.client.delivery.test_notifications import wait_for_texts
from tests.integration.client.server import Server
from tests.leadership import LEADER, SUSPEND_MAINTENANCE
from tests.texts import receive_texts, send_texts

QUEUE = Queue("orders")
TIMINGS = InternalTimings(
    minimum_poll_interval=300.0,
    maximum_poll_interval=300.0,
    maintenance_interval=0.1,
    listening_duration=0.001,
    prefetch_duration=60.0,  # a slow machine would fetch fewer messages ahead
)
LISTEN, UNLISTEN = re.compile(rb'(?<!un)listen "'), re.compile(rb'unlisten "')
ANNOUNCE = re.compile(rb"pg_try_advisory_lock_shared")

_numbers = itertools.count()


class ControlWire:
    """The wire of a client's control connection, on which what it says can be held up.

    Args:
        factory: Makes clients that reach the server directly.
    """

    def __init__(self, factory: ConnectionFactory) -> None:
        assert factory.url is not None
        self.proxy = CuttingProxy(factory.url, on_request=self._on_request, on_response=self._on_response)
        self.factory = ConnectionFactory(
            factory.url, schema=factory.schema, control_url=self.proxy.url, timings=TIMINGS
        )
        self._holds_listening = False
        self.cuts_listening = False
        """Whether the connection is cut at the next LISTEN."""
        self.is_held = threading.Event()
        self.listens = threading.Event()
        """Set to pass on the LISTEN."""
        self._goes_on = threading.Event()
        self._requests = self._responses = b""

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """Hold the next LISTEN up, and in the block the announcement of the wait, which has everybody look, too."""
        self._holds_listening = True
        try:
            yield
        finally:
            self.listens.set()
            self._goes_on.set()

    def has_said(self, request: re.Pattern[bytes]) -> bool:
        """Whether the client has said something."""
        return request.search(self._requests) is not None

    def hears(self, server: Server) -> bool:
        """Whether the client is told of what is notified."""
        payload = f"probe {next(_numbers)}"
        before = self.proxy.requests
        server.rows("select pg_notify('jmsql', %s)", payload)
        wait_for(lambda: self.proxy.requests >= before + 3)  # it was told before the answer to the second
        return payload.encode() in self._responses

    def _on_request(self, request: bytes) -> None:
        self._requests += request
        if LISTEN.search(request) is not None:
            if self.cuts_listening:
                self.cuts_listening = False
                self.proxy.cut(CutPoint.BEFORE_RESPONSE)
            if self._holds_listening:
                self.is_held.set()
                assert self.listens.wait(60)
        elif self.is_held.is_set() and ANNOUNCE.search(request) is not None:
            assert self._goes_on.wait(60)

    def _on_response(self, response: bytes) -> None:
        self._responses += response


@pytest.fixture
def wire(jmsql_factory: ConnectionFactory) -> Iterator[ControlWire]:
    """That of a client's control connection; others do not use it."""
    wire = ControlWire(jmsql_factory)
    with wire.proxy:
        yield wire


@pytest.fixture
def _no_maintenance(server: Server) -> None:
    """Clients look for no messages without a notification, and the lead makes no client listen."""
    server.rows(SUSPEND_MAINTENANCE)


@contextmanager
def sender(factory: ConnectionFactory) -> Iterator[jmsql.Session]:
    with factory.create_connection() as connection, connection.create_session() as session:
        yield session


@pytest.mark.usefixtures("_no_maintenance")
def test_a_client_that_only_sends_is_told_of_nothing(wire: ControlWire, server: Server) -> None:
    with sender(wire.factory) as session:
        wait_for(lambda: not wire.hears(server))
        send_texts(session, QUEUE, "a")
        assert not wire.hears(server)


@pytest.mark.usefixtures("_no_maintenance")
def test_a_client_that_has_had_a_consumer_is_told_of_all(wire: ControlWire, server: Server) -> None:
    with sender(wire.factory) as session:
        wait_for(lambda: wire.has_said(UNLISTEN))
        session.create_consumer(QUEUE).close()
        wait_for(lambda: wire.hears(server))


@pytest.mark.usefixtures("_no_maintenance")
def test_a_client_that_is_new_listens_for_a_while(jmsql_factory: ConnectionFactory, server: Server) -> None:
    wire = ControlWire(jmsql_factory)
    factory = ConnectionFactory(
        jmsql_factory.url,
        schema=jmsql_factory.schema,
        control_url=wire.proxy.url,
        timings=InternalTimings(maintenance_interval=0.1, listening_duration=300.0),
    )
    with wire.proxy, sender(factory):
        assert wire.hears(server)
        assert not wire.has_said(UNLISTEN)


@pytest.mark.usefixtures("_no_maintenance")
@pytest.mark.parametrize("transacted", [False, True])
def test_a_message_sent_between_the_look_and_listen_is_received(
    wire: ControlWire, jmsql_factory: ConnectionFactory, transacted: bool
) -> None:
    with wire.factory.create_connection() as connection, sender(jmsql_factory) as others:
        wait_for(lambda: wire.has_said(UNLISTEN))
        connection.start()
        with wire.holding_up():
            receiving = wait_for_texts(connection.create_session(transacted).create_consumer(QUEUE))
            assert wire.is_held.wait(60)
            send_texts(others, QUEUE, "a")
            assert receiving.is_running
            wire.listens.set()
            assert receiving.result() == ["a"]


@pytest.mark.usefixtures("_no_maintenance")
def test_a_message_released_between_the_look_and_listen_is_received(
    wire: ControlWire, jmsql_factory: ConnectionFactory
) -> None:
    with wire.factory.create_connection() as connection, jmsql_factory.create_connection() as other:
        wait_for(lambda: wire.has_said(UNLISTEN))
        connection.start()
        other.start()
        with wire.holding_up(), other.create_session(transacted=True) as holding, other.create_session() as sending:
            send_texts(sending, QUEUE, "a", "b")
            assert receive_texts(holding.create_consumer(QUEUE), 1) == ["a"]
            consumer = connection.create_session().create_consumer(QUEUE)
            assert receive_texts(consumer, 1) == ["b"]
            receiving = wait_for_texts(consumer)
            assert wire.is_held.wait(60)
            holding.rollback()
            assert receiving.is_running
            wire.listens.set()
            assert receiving.result() == ["a"]


@pytest.mark.usefixtures("_no_maintenance")
def test_held_messages_are_released_if_their_queue_was_paused_before_the_client_listened(
    wire: ControlWire, jmsql_factory: ConnectionFactory, server: Server
) -> None:
    with sender(jmsql_factory) as others:
        send_texts(others, QUEUE, "a", "b", "c", "d")
        with wire.factory.create_connection() as connection:
            wait_for(lambda: wire.has_said(UNLISTEN))
            connection.start()
            session = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
            with wire.holding_up():
                consumer = session.create_consumer(QUEUE)
                for text in ("a", "b"):  # with the second it fetches another
                    message = consumer.receive(60)
                    assert message is not None
                    assert message.get_body(str) == text
                assert server.rows("select count(*) from jmsql_internal.delivery") == [(3,)]
                assert wire.is_held.wait(60)
                server.rows("update jmsql_internal.queue set paused = true")
            wait_for(lambda: wire.hears(server))
            assert wire.hears(server)  # which takes the thread some exchanges after those of LISTEN
            assert consumer.receive_no_wait() is None


@pytest.mark.usefixtures("_no_maintenance")
@pytest.mark.parametrize("mode", [jmsql.AcknowledgeMode.CLIENT, jmsql.AcknowledgeMode.TRANSACTED])
def test_held_messages_stay_in_order_when_the_client_begins_to_listen(
    wire: ControlWire, jmsql_factory: ConnectionFactory, server: Server, mode: jmsql.AcknowledgeMode
) -> None:
    texts = list("abcdefgh")
    with sender(jmsql_factory) as others:
        send_texts(others, QUEUE, *texts)
        with wire.factory.create_connection() as connection:
            wait_for(lambda: wire.has_said(UNLISTEN))
            connection.start()
            with wire.holding_up():
                consumer = connection.create_session(mode).create_consumer(QUEUE)
                received = receive_texts(consumer, 3)  # it holds more
                assert wire.is_held.wait(60)
            wait_for(lambda: wire.hears(server))
            assert received + receive_texts(consumer, 5) == texts


@pytest.mark.usefixtures("_no_maintenance")
def test_a_control_connection_that_is_cut_as_it_listens_is_made_again_and_listens(
    wire: ControlWire, jmsql_factory: ConnectionFactory, server: Server
) -> None:
    with wire.factory.create_connection() as connection, sender(jmsql_factory) as others:
        wait_for(lambda: wire.has_said(UNLISTEN))
        wire.cuts_listening = True
        connection.start()
        receiving = wait_for_texts(connection.create_session().create_consumer(QUEUE))
        wait_for(lambda: not wire.cuts_listening)
        send_texts(others, QUEUE, "a")
        assert receiving.result() == ["a"]
        wait_for(lambda: wire.hears(server))
        receiving = wait_for_texts(connection.create_session().create_consumer(QUEUE))
        send_texts(others, QUEUE, "b")
        assert receiving.result() == ["b"]


@pytest.mark.usefixtures("_no_maintenance")
def test_a_client_that_only_sends_listens_no_more_when_it_has_connected_again(
    wire: ControlWire, jmsql_factory: ConnectionFactory, server: Server
) -> None:
    lost = threading.Event()
    with wire.factory.create_connection() as connection, sender(jmsql_factory) as others:
        connection.exception_listener = lambda _: lost.set()
        wait_for(lambda: wire.has_said(UNLISTEN))
        wire.proxy.cut(CutPoint.BEFORE_REQUEST)
        assert lost.wait(60)
        wait_for(lambda: not wire.hears(server))
        connection.start()
        receiving = wait_for_texts(connection.create_session().create_consumer(QUEUE))
        send_texts(others, QUEUE, "a")
        assert receiving.result() == ["a"]


@pytest.mark.usefixtures("_no_maintenance")
def test_a_wait_in_the_applications_transaction_has_a_sending_client_listen(
    wire: ControlWire, jmsql_factory: ConnectionFactory, jmsql_clean_url: str
) -> None:
    with sender(wire.factory), psycopg.connect(jmsql_clean_url) as database:
        wait_for(lambda: wire.has_said(UNLISTEN))
        with sender(jmsql_factory) as others:
            send_texts(others, QUEUE, "first")
        consumer = jmsql.enlist(database, timings=TIMINGS).create_consumer(QUEUE)
        assert consumer.receive_body(str, 60) == "first"
        database.commit()
        receiving: Background[str | None] = Background(lambda: consumer.receive_body(str, 60))
        wait_for(lambda: wire.has_said(LISTEN))
        with psycopg.connect(jmsql_clean_url) as sending:
            jmsql.enlist(sending).create_producer().send(QUEUE, "second")
        assert receiving.result() == "second"


@pytest.mark.usefixtures("_no_maintenance")
async def test_a_task_that_begins_to_receive_is_woken(wire: ControlWire, jmsql_factory: ConnectionFactory) -> None:
    factory = jms.ConnectionFactory(
        wire.factory.url, schema=wire.factory.schema, control_url=wire.proxy.url, timings=TIMINGS
    )
    others = jms.ConnectionFactory(jmsql_factory.url, schema=jmsql_factory.schema)
    async with factory.create_context() as context, others.create_context() as other, asyncio.timeout(60):
        await asyncio.to_thread(wait_for, lambda: wire.has_said(UNLISTEN))
        with wire.holding_up():
            async with context.create_consumer(QUEUE) as consumer:
                receiving = asyncio.create_task(consumer.receive_body(str))
                assert await asyncio.to_thread(wire.is_held.wait, 60)
                await other.create_producer().send(QUEUE, "a")
                wire.listens.set()
                assert await receiving == "a"


def test_the_client_that_leads_is_told_of_delayed_messages_though_it_only_sends(
    wire: ControlWire, server: Server
) -> None:
    server.rows(SUSPEND_MAINTENANCE)
    with sender(wire.factory):
        wait_for(lambda: wire.has_said(UNLISTEN))
        server.rows("update jmsql_internal.leadership set expires_at = '-infinity'")
        wait_for(lambda: server.rows(LEADER) != [])
        wait_for(lambda: wire.hears(server))
