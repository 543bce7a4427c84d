"""Clients whose control connection leads through a pooler show by heartbeats that they live."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    JMSException,
    Queue,
    Session,
    TemporaryQueue,
    Topic,
)
from jmsql.testing import FAST_TIMINGS, wait_for
from jmsql.timings import InternalTimings
from tests.integration.client.server import Server
from tests.integration.pooler.pgbouncer import PgBouncer
from tests.integration.topics.remote_client import RemoteClient, remote_client
from tests.integration.topics.rows import count, wait_until_empty
from tests.leadership import LEADER
from tests.texts import receive, receive_texts, send_texts

pytestmark = pytest.mark.maintained

TOPIC = Topic("news")
HEARTBEATS = "select connection_id, heartbeat_at from jmsql_internal.connection order by connection_id"
MISS = """
    update jmsql_internal.connection set heartbeat_at = heartbeat_at - heartbeat_timeout
    where connection_id = any(%s)
    """


def clients(server: Server) -> list[int]:
    return [number for number, _ in server.rows(HEARTBEATS)]


def let_heartbeats_be_missed(server: Server, *connection_ids: int) -> None:
    """Make it later for these clients, as if they had been silent for the whole time-out."""
    server.rows(MISS, list(connection_ids))


def kill(server: Server, client: RemoteClient, *living: int) -> None:
    """End a client as nothing can prevent, and let the time pass after which the others notice."""
    client.kill()
    let_heartbeats_be_missed(server, *(set(clients(server)) - set(living)))


def test_heartbeats_go_on_while_nothing_happens(factory: ConnectionFactory, server: Server) -> None:
    quick = dataclasses.replace(factory, timings=InternalTimings(heartbeat_interval=0.05))
    with quick.create_connection():
        wait_for(lambda: server.rows(HEARTBEATS))
        for _ in range(3):
            before = server.rows(HEARTBEATS)
            wait_for(lambda before=before: server.rows(HEARTBEATS) > before)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("timings", "alive", "dead"), [(InternalTimings(), 14, 15), (FAST_TIMINGS, 4, 5)], ids=["default", "shorter"]
)
def test_client_is_connected_until_it_has_sent_no_heartbeat_for_its_time_out(
    factory: ConnectionFactory, server: Server, timings: InternalTimings, alive: int, dead: int
) -> None:
    is_connected = "select connected from jmsql.clients"
    silent = "update jmsql_internal.connection set heartbeat_at = clock_timestamp() - make_interval(secs => %s)"
    with dataclasses.replace(factory, timings=timings).create_connection() as connection:
        connection.start()
        wait_for(lambda: server.rows(is_connected) == [(True,)])
        server.rows("begin")  # so that its heartbeats wait
        server.rows(silent, alive)
        assert server.rows(is_connected) == [(True,)]
        server.rows(silent, dead)
        assert server.rows(is_connected) == [(False,)]
        server.rows(silent, -3600)  # the server's clock has been set back
        assert server.rows(is_connected) == [(False,)]
        server.rows("rollback")


def test_nothing_of_a_client_stays_on_the_connections_that_all_share(
    jmsql_factory: ConnectionFactory, pooler: PgBouncer, server: Server
) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        send_texts(connection.create_session(), Queue("orders"), "a")
        wait_for(lambda: len(clients(server)) == 1)
        # Transactions of the control thread hold advisory locks; a lock of a connection would outlive them.
        wait_for(lambda: not server.rows("select from pg_locks where locktype = 'advisory'"))
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        for _ in range(10):  # on all the pooler's connections, one after the other
            settings = session.database.exec_driver_sql(
                "select current_setting('synchronous_commit'), array(select * from pg_listening_channels()), "
                "(select count(*) from pg_prepared_statements where name !~ '^PGBOUNCER')"
            ).one()
            session.commit()
            assert tuple(settings) == ("on", [], 0)


# What is unique


def test_client_identifier_is_unique(durable_connection: Connection, jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as other:
        with pytest.raises(InvalidClientIDException, match="in use"):
            other.client_id = "reader"
        durable_connection.close()
        other.client_id = "reader"


def test_client_identifier_is_unique_between_clients_on_either_way(
    durable_connection: Connection, direct_factory: ConnectionFactory, jmsql_factory: ConnectionFactory
) -> None:
    with direct_factory.create_connection() as direct:
        with pytest.raises(InvalidClientIDException, match="in use"):
            direct.client_id = "reader"
        direct.client_id = "another"
        with jmsql_factory.create_connection() as pooled, pytest.raises(InvalidClientIDException, match="in use"):
            pooled.client_id = "another"


def test_durable_subscription_has_one_consumer(durable_connection: Connection) -> None:
    first, second = durable_connection.create_session(), durable_connection.create_session()
    consumer = first.create_durable_subscriber(TOPIC, "subscription")
    with pytest.raises(IllegalStateException, match="active consumer"):
        second.create_durable_subscriber(TOPIC, "subscription")
    consumer.close()
    second.create_durable_subscriber(TOPIC, "subscription")


# After a kill


def test_a_clock_that_was_set_back_keeps_no_dead_client_alive(jmsql_factory: ConnectionFactory, server: Server) -> None:
    assert jmsql_factory.url is not None
    with remote_client(jmsql_factory.url) as client, jmsql_factory.create_connection():
        client.temporary_destinations()
        assert len(clients(server)) == 2
        client.kill()
        server.rows("update jmsql_internal.connection set heartbeat_at = heartbeat_at + interval '1 hour'")
        wait_for(lambda: len(clients(server)) == 1)


def test_client_identifier_and_durable_subscription_of_a_killed_client_are_free_once_it_is_missed(
    jmsql_factory: ConnectionFactory, server: Server
) -> None:
    assert jmsql_factory.url is not None
    with remote_client(jmsql_factory.url, "reader") as client:
        assert client.subscribe_durably(TOPIC, "subscription") is None
        client.kill()
        with jmsql_factory.create_connection() as other:
            with pytest.raises(InvalidClientIDException):
                other.client_id = "reader"
            let_heartbeats_be_missed(server, *clients(server)[:1])
            other.client_id = "reader"
            session = other.create_session()
            subscriber = session.create_durable_subscriber(TOPIC, "subscription")
            other.start()
            send_texts(session, TOPIC, "a")
            assert receive_texts(subscriber, 1) == ["a"]


def test_a_killed_clients_objects_go_once_it_is_missed(
    jmsql_factory: ConnectionFactory, other_connection: Connection, others: Session, server: Server
) -> None:
    assert jmsql_factory.url is not None
    [living] = clients(server)
    with remote_client(jmsql_factory.url) as client:
        temporary, _ = client.temporary_destinations()
        client.subscribe(TOPIC)
        send_texts(others, TOPIC, "a")
        send_texts(others, TemporaryQueue(temporary), "a")
        kill(server, client, living)
        wait_until_empty(server, "subscription", "subscriber", "topic where connection_id is not null")
        wait_until_empty(server, "message", "queue where connection_id is not null")
        assert count(server, "connection") == 1
    with pytest.raises(InvalidDestinationException):
        send_texts(others, TemporaryQueue(temporary), "b")


def test_claims_of_a_killed_client_are_free_once_it_is_missed(
    jmsql_factory: ConnectionFactory, other_connection: Connection, others: Session, server: Server
) -> None:
    assert jmsql_factory.url is not None
    [living] = clients(server)
    with remote_client(jmsql_factory.url, "killed") as client:
        assert client.subscribe_durably(TOPIC, "subscription") is None
        send_texts(others, TOPIC, "a", "b")
        assert client.receive(1) == ["a"]
        kill(server, client, living)
    with jmsql_factory.create_connection() as successor:
        successor.client_id = "killed"
        successor.start()
        consumer = successor.create_session().create_durable_consumer(TOPIC, "subscription")
        first, second = sorted((receive(consumer) for _ in "ab"), key=lambda message: str(message.get_body(str)))
    assert (first.get_body(str), first.jms_redelivered) == ("a", True)
    assert second.get_body(str) == "b"


# Without a kill


def test_client_that_is_taken_for_dead_hears_of_it_and_begins_again(
    jmsql_factory: ConnectionFactory, other_connection: Connection, others: Session, server: Server
) -> None:
    with jmsql_factory.create_connection() as client:
        errors: list[JMSException] = []
        client.exception_listener = errors.append
        session = client.create_session()
        consumer = session.create_consumer(TOPIC)
        reply_queue = session.create_temporary_queue()
        client.start()
        former = max(clients(server))
        let_heartbeats_be_missed(server, former)
        wait_for(lambda: former not in clients(server))
        wait_for(lambda: len(clients(server)) == 2 and count(server, "subscriber") == 1)
        wait_for(lambda: errors)
        assert "silent for too long" in str(errors[0])
        send_texts(others, TOPIC, "a")
        send_texts(others, reply_queue, "b")
        assert receive_texts(consumer, 1) == ["a"]
        assert receive_texts(session.create_consumer(reply_queue), 1) == ["b"]


def test_client_of_a_pooler_that_restarts_keeps_what_it_has(
    connection: Connection, direct_session: Session, server: Server, pooler: PgBouncer, jmsql_clean_url: str
) -> None:
    lost = threading.Event()
    connection.exception_listener = lambda _: lost.set()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(Queue("orders"))
    send_texts(direct_session, Queue("orders"), "a")
    message = receive(consumer)
    before = clients(server)
    pooler.forget(jmsql_clean_url)
    assert lost.wait(60)
    send_texts(direct_session, Queue("orders"), "b")
    wait_for(lambda: connection._control._service.link.connection.closed is False)
    try:
        message.acknowledge()
    except JMSException:  # the session notices here that its connection is gone
        message.acknowledge()
    assert receive_texts(consumer, 1) == ["b"]
    assert clients(server) == before


# Maintenance


def test_maintenance_is_done_by_one_client_until_it_closes(
    jmsql_factory: ConnectionFactory, connection: Connection, server: Server
) -> None:
    [(first,)] = wait_for(lambda: server.rows(LEADER))
    assert [first] == clients(server)
    with jmsql_factory.create_connection() as other:
        other.start()
        wait_for(lambda: len(clients(server)) == 2)
        assert wait_for(lambda: server.rows(LEADER)) == [(first,)]
        connection.close()
        wait_for(lambda: server.rows(LEADER) not in ([], [(first,)]))


def test_maintenance_is_left_to_a_client_that_has_a_server_process_of_its_own(
    connection: Connection, jmsql_clean_url: str, server: Server
) -> None:
    wait_for(lambda: server.rows(LEADER))
    direct = "select connection_id from jmsql_internal.connection where heartbeat_at is null"
    with ConnectionFactory(jmsql_clean_url).create_connection():
        wait_for(lambda: server.rows(LEADER) == server.rows(direct) != [])


def test_maintenance_removes_expired_and_moves_due_messages(connection: Connection, server: Server) -> None:
    session = connection.create_session()
    queue = Queue("orders")
    with session.create_producer(None) as producer:
        producer.send(session.create_text_message("expires"), Queue("unread"), time_to_live=0.01)
        producer.delivery_delay = 0.1
        producer.send(session.create_text_message("comes later"), queue)
    assert receive_texts(session.create_consumer(queue), 1) == ["comes later"]
    wait_until_empty(server, "message")
