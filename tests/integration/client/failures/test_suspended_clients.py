"""A client that was suspended, and taken for dead meanwhile, hands out nothing that it had fetched ahead."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, JMSException, Message, MessageConsumer, Queue, Timings
from jmsql.store.wire._sync.runner import Runner
from jmsql.testing import FAST_TIMINGS, receive_all, wait_for
from tests.integration.client.server import Server
from tests.integration.pooler.routes import Route
from tests.slowness import scaled
from tests.texts import receive, send_texts

QUEUE = Queue("suspended")
NAMES = [str(number) for number in range(12)]


@pytest.fixture
def jmsql_timings() -> Timings:
    """A client that is suspended is soon taken for dead, behind a pooler, and no longer sure that it is not."""
    return dataclasses.replace(
        FAST_TIMINGS,
        heartbeat_interval=0.1,
        heartbeat_timeout=scaled(2.0),
        acknowledgement_delay=3600.0,
        prefetch_duration=60.0,
    )


@contextmanager
def suspended(connection: Connection, server: Server) -> Iterator[None]:
    """Let a connection's control thread stand still, and the server take the client for dead."""
    control = connection._control
    go_on, stands, wakes = control._service.link.liveness.run, threading.Event(), threading.Event()

    def stand_still(runner: Runner) -> None:
        stands.set()
        wakes.wait(60)
        go_on(runner)

    control._service.link.liveness.run = stand_still  # type: ignore[method-assign]
    control._duties.wake_socket.wake()
    assert stands.wait(60)
    wait_for(lambda: not control.is_certain)
    if not control._service.link.is_pooled:
        server.rows("update jmsql_internal.connection set started_at = started_at - interval '1 minute'")
        server.rows("select pg_terminate_backend(%s, 10000)", control._service.link.connection.info.backend_pid)
    number = control.connection_id
    wait_for(lambda: not server.rows("select from jmsql_internal.connection where connection_id = %s", number), 60)
    wait_for(lambda: not server.rows("select from jmsql_internal.delivery where connection_id = %s", number), 60)
    try:
        yield
    finally:
        wakes.set()


@pytest.fixture
def connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def other(jmsql_factory: ConnectionFactory, connection: Connection) -> Iterator[Connection]:
    """Another client, which notices that the first is gone."""
    assert connection is not None  # it is the first
    with jmsql_factory.create_connection() as other:
        other.start()
        yield other


def deliveries(messages: list[Message]) -> dict[str, int]:
    return {str(message.get_body(str)): message.get_int_property("JMSXDeliveryCount") for message in messages}


def fetch_ahead(consumer: MessageConsumer) -> list[Message]:
    """Receive some messages, so that others are fetched and not delivered."""
    received = [receive(consumer) for _ in range(4)]
    while not consumer._state.buffer.held.rows and len(received) < len(NAMES):  # a slow machine fetches fewer at a time
        received.append(receive(consumer))
    assert len(consumer._state.buffer.held.rows) > 0
    return received


@pytest.mark.parametrize("route", [Route.POOLED_ALONE, Route.DIRECT], indirect=True)
@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
def test_messages_fetched_ahead_are_not_delivered_without_the_redelivered_flag(
    connection: Connection, other: Connection, server: Server, mode: AcknowledgeMode
) -> None:
    with other.create_session() as sender:
        send_texts(sender, QUEUE, *NAMES)
    session = connection.create_session(mode)
    consumer = session.create_consumer(QUEUE)
    held = deliveries(fetch_ahead(consumer))
    with suspended(connection, server):
        theirs = deliveries(receive_all(other.create_session().create_consumer(QUEUE)))
        if mode is AcknowledgeMode.DUPS_OK:  # it acknowledges when it finds nothing more
            with pytest.raises(JMSException, match="could not be acknowledged"):
                consumer.receive(timeout=0)
        assert consumer.receive(timeout=0) is None, "it was given to the other client"
        assert sorted(theirs) == sorted(NAMES)
        assert all(theirs[name] == 2 for name in held)
    if mode is AcknowledgeMode.CLIENT:
        with pytest.raises(JMSException, match="could not be acknowledged"):
            session.acknowledge()
    with other.create_session() as sender:
        send_texts(sender, QUEUE, "afterwards")
    assert receive(consumer).get_body(str) == "afterwards", "it goes on, as a new client"


@pytest.mark.parametrize("route", [Route.POOLED_ALONE, Route.DIRECT], indirect=True)
def test_a_listener_is_not_given_it_either(connection: Connection, other: Connection, server: Server) -> None:
    with other.create_session() as sender:
        send_texts(sender, QUEUE, *NAMES)
    session = connection.create_session()
    consumer = session.create_consumer(QUEUE)
    ours: list[Message] = []
    listens, goes_on = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        ours.append(message)
        if len(ours) == 4:
            listens.set()
            goes_on.wait(60)

    consumer.message_listener = listen
    assert listens.wait(60)
    assert len(consumer._state.buffer.held.rows) > 0
    with suspended(connection, server):
        theirs = deliveries(receive_all(other.create_session().create_consumer(QUEUE)))
        goes_on.set()
        with pytest.raises(AssertionError):
            wait_for(lambda: len(ours) > 4, timeout=1)
        assert sorted(theirs) == sorted(NAMES[3:])
        assert theirs[NAMES[3]] == 2
