"""What maintenance removes, in small steps, and what it leaves alone until it may."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, Topic
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.topics.rows import count, wait_until_empty
from tests.leadership import SUSPEND_MAINTENANCE, maintain
from tests.texts import receive, receive_texts, send_texts, texts_of

NAME = "subscription"
JOIN = """
    insert into jmsql_internal.subscriber
    select s.queue_id, c.connection_id, 1 from jmsql_internal.subscription s, jmsql_internal.connection c"""
WAITING = "select count(*) from pg_locks where not granted"
GIVEN_UP = "delete from jmsql_internal.subscriber"


@pytest.fixture
def maintenance(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """A connection that does the maintenance, when a test says so; no client does it."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute(SUSPEND_MAINTENANCE)
        yield connection


def run(maintenance: psycopg.Connection) -> None:
    maintain(PsycopgRunner(maintenance, "jmsql"))


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED])
def test_message_that_is_held_goes_when_it_is_let_go(
    maintenance: psycopg.Connection, reader: Connection, server: Server, mode: AcknowledgeMode
) -> None:
    session = reader.create_session()
    queue = session.create_temporary_queue()
    send_texts(session, queue, "a", "b", "c")
    holding = reader.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    with holding.create_consumer(queue) as consumer:
        message = receive(consumer)
    queue.delete()
    run(maintenance)
    assert server.rows("select text_body from jmsql_internal.message") == [("a",)]
    assert count(server, "queue") == 1
    if mode is AcknowledgeMode.CLIENT:
        message.acknowledge()
    else:
        holding.rollback()
    run(maintenance)
    assert [count(server, table) for table in ("message", "delivery", "queue")] == [0, 0, 0]


def test_many_messages_are_purged_in_steps(
    maintenance: psycopg.Connection, reader: Connection, server: Server, topic: Topic
) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    server.rows(
        """
        insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type)
        select queue_id, 5, 2, 'Message' from jmsql_internal.subscription, generate_series(1, 12000)
        """
    )
    session.unsubscribe(NAME)
    left = []
    for _ in range(3):
        run(maintenance)
        left.append(count(server, "message"))
    assert left == [7000, 2000, 0]
    assert count(server, "queue") == 0


def test_other_messages_are_left_alone(
    maintenance: psycopg.Connection, reader: Connection, server: Server, topic: Topic
) -> None:
    session = reader.create_session()
    queue = session.create_queue("orders")
    kept = session.create_durable_consumer(topic, "kept")
    session.create_durable_consumer(topic, NAME).close()
    send_texts(session, topic, "a")
    send_texts(session, queue, "b")
    session.unsubscribe(NAME)
    run(maintenance)
    assert texts_of(receive_all(kept)) == ["a"]
    assert texts_of(receive_all(session.create_consumer(queue))) == ["b"]
    assert server.rows("select count(*) from jmsql_internal.queue where name is null") == [(1,)]


def test_subscription_that_is_joined_at_the_same_moment_stays(
    maintenance: psycopg.Connection, connection: Connection, server: Server, blocker: psycopg.Connection, topic: Topic
) -> None:
    """The administrator's transaction does what that of a client does that joins a subscription nobody has."""
    consumer = connection.create_session().create_shared_consumer(topic, NAME)
    server.rows(GIVEN_UP)
    blocker.execute("select from jmsql_internal.subscription for update")
    blocker.execute(JOIN)
    running = Background(lambda: run(maintenance))
    wait_for(lambda: not running.is_running or server.rows(WAITING) != [(0,)])
    blocker.commit()
    running.result()
    assert count(server, "subscription") == 1
    send_texts(connection.create_session(), topic, "a")
    assert receive_texts(consumer, 1) == ["a"]


def test_transaction_that_published_as_the_subscription_ended_leaves_nothing(
    maintenance: psycopg.Connection, connection: Connection, server: Server, blocker: psycopg.Connection, topic: Topic
) -> None:
    """It begins after the statement that ends the subscription, and before that statement's commit."""
    session, publishing = connection.create_session(), connection.create_session(transacted=True)
    session.create_shared_durable_consumer(topic, NAME).close()
    (queue_id,) = server.rows("select queue_id from jmsql_internal.subscription")[0]
    blocker.execute("update jmsql_internal.subscription set ended = true where queue_id = %s", [queue_id])
    publishing.create_producer(topic).send(publishing.create_text_message("a"))
    assert publishing.database is not None  # sends what waits
    blocker.commit()
    run(maintenance)
    publishing.commit()
    for _ in range(2):  # it finds the queue's number first, and then removes what is in it
        run(maintenance)
    assert [count(server, table) for table in ("message", "queue")] == [0, 0]


def test_client_that_leads_does_it_by_itself(reader: Connection, server: Server, topic: Topic) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    session.create_shared_consumer(topic, NAME)
    send_texts(session, topic, "a")
    session.unsubscribe(NAME)
    server.rows(GIVEN_UP)
    wait_until_empty(server, "message", "subscription", "queue")
