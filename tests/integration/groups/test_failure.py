"""A group waits for its message that failed, until that is delivered again or is a dead letter; others go on."""

from __future__ import annotations

import threading

import psycopg
import pytest

import jmsql
from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Message, Queue, RedeliveryPolicy, Session
from jmsql.admin import Administration
from jmsql.connection_consumers import ThreadServerSessionPool
from jmsql.store.sending.notification import MOST_GROUPS
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.client_process import Order, client_process
from tests.integration.client.server import Server
from tests.integration.groups.conftest import OpenSession, Receiver
from tests.integration.groups.grouped import GroupPlace, place_of, receive_places, send_group, send_places
from tests.integration.groups.settling import release, settle
from tests.texts import receive, receive_texts

LATER = RedeliveryPolicy(delay=3600.0)
IMMEDIATELY_DEAD = RedeliveryPolicy(maximum_deliveries=1)


def make_due(server: Server) -> None:
    """Let the delay of all messages that wait be over."""
    server.rows("update jmsql_internal.delivery set next_attempt = now() where next_attempt is not null")


def test_the_group_waits_for_a_message_that_waits_for_its_next_attempt(
    holder: Receiver, other: Receiver, others: Session, queue: Queue, server: Server
) -> None:
    send_places(others, queue, ("a", 1), ("b", 1), ("a", 2))
    holder.consumer.redelivery_policy = LATER
    receive(holder.consumer)

    release(holder.session)

    assert receive_places(other.consumer, 1) == [("b", 1)]
    assert receive_all(other.consumer) == []
    assert receive_all(holder.consumer) == []
    make_due(server)
    assert receive_places(other.consumer, 2) == [("a", 1), ("a", 2)]


def test_the_group_goes_on_when_its_message_is_a_dead_letter(
    holder: Receiver, other: Receiver, others: Session, queue: Queue
) -> None:
    send_group(others, queue, "a", 3)
    holder.consumer.redelivery_policy = IMMEDIATELY_DEAD
    receive(holder.consumer)

    release(holder.session)

    assert receive_places(other.consumer, 2) == [("a", 2), ("a", 3)]
    assert receive_places(others.create_consumer(Queue("DLQ")), 1) == [("a", 1)]


def test_a_listener_does_not_get_the_rest_of_the_group_after_a_message_that_it_failed_with(
    connection: Connection, others: Session, queue: Queue, server: Server
) -> None:
    heard: list[GroupPlace] = []

    def listen(message: Message) -> None:
        heard.append(place_of(message))
        if heard == [("a", 1)]:
            raise ValueError("not this time")

    consumer = connection.create_session().create_consumer(queue)
    consumer.redelivery_policy = LATER
    connection.stop()
    consumer.message_listener = listen
    send_places(others, queue, ("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2))
    connection.start()

    wait_for(lambda: heard[-1:] == [("b", 2)])
    assert heard == [("a", 1), ("b", 1), ("b", 2)]
    make_due(server)
    wait_for(lambda: heard[-1] == ("a", 3))
    assert heard[3:] == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT], ids=lambda mode: mode.name)
@pytest.mark.parametrize("maximum_deliveries", [None, 9], ids=["without policy", "with one"])
def test_the_group_of_a_killed_client_begins_with_its_messages(
    jmsql_factory: ConnectionFactory,
    jmsql_clean_url: str,
    others: Session,
    queue: Queue,
    mode: AcknowledgeMode,
    maximum_deliveries: int | None,
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue(queue.name, maximum_deliveries=maximum_deliveries)
    send_places(others, queue, ("a", 1), ("a", 2), ("b", 1))
    with client_process(jmsql_clean_url, Order(queue.name, mode.name, receives=1)) as client:
        client.wait_until_ready()
        client.received(1)
        consumer = others.create_consumer(queue)
        assert place_of(receive(consumer)) == ("b", 1)
        client.kill()

    assert receive_places(consumer, 2) == [("a", 1), ("a", 2)]


def test_a_claim_that_has_run_out_of_time_frees_the_group(
    jmsql_factory: ConnectionFactory, open_session: OpenSession, others: Session, queue: Queue, server: Server
) -> None:
    send_group(others, queue, "a", 2)
    slow = open_session(AcknowledgeMode.CLIENT).create_consumer(queue)
    slow.visibility_timeout = 1000.0
    receive(slow)
    other = open_session(AcknowledgeMode.CLIENT).create_consumer(queue)
    assert receive_all(other) == []

    server.rows("update jmsql_internal.delivery set claim_expires_at = now()")

    assert receive_places(other, 2) == [("a", 1), ("a", 2)]


def test_a_consumer_that_waits_hears_that_a_group_is_free(
    holder: Receiver, other: Receiver, others: Session, queue: Queue
) -> None:
    send_places(others, queue, ("a", 1), ("b", 1), ("b", 2), ("a", 2))
    first = receive(holder.consumer)
    assert receive_places(other.consumer, 2) == [("b", 1), ("b", 2)]
    waiting = Background(lambda: receive(other.consumer))
    waiting.wait_until_it_waits()

    settle(holder.session, first)

    assert place_of(waiting.result()) == ("a", 2)


def test_a_consumer_that_waits_hears_that_many_groups_are_free(
    open_session: OpenSession, others: Session, queue: Queue
) -> None:
    """More than a notification names: the commit that frees them notifies of the queue."""
    groups = [f"group {number}" for number in range(2 * MOST_GROUPS)]
    send_places(others, queue, *((group, 1) for group in groups))
    holder = open_session(AcknowledgeMode.TRANSACTED)
    assert len(receive_places(holder.create_consumer(queue), len(groups))) == len(groups)
    send_places(others, queue, *((group, 2) for group in groups))
    consumer = open_session(AcknowledgeMode.AUTO).create_consumer(queue)
    waiting = Background(lambda: receive(consumer))
    waiting.wait_until_it_waits()

    holder.commit()

    assert place_of(waiting.result()) == (groups[0], 2)


def test_a_consumer_finds_the_messages_of_a_group_that_it_had_passed_over(
    holder: Receiver, open_session: OpenSession, others: Session, queue: Queue
) -> None:
    """Also if it has moved on, and if they have other priorities than the one that was held."""
    send_places(others, queue, ("a", 1), ("a", 2))
    first = receive(holder.consumer)
    send_places(others, queue, ("a", 3), priority=1)
    send_places(others, queue, *(("b", number) for number in range(1, 6)))
    other = open_session(AcknowledgeMode.AUTO).create_consumer(queue)
    assert receive_places(other, 4) == [("b", number) for number in range(1, 5)]

    settle(holder.session, first)

    found = receive_places(other, 3)
    assert [place for place in found if place[0] == "a"] == [("a", 2), ("a", 3)]


def test_sessions_of_a_pool_share_groups(connection: Connection, others: Session, queue: Queue) -> None:
    handled: list[GroupPlace] = []
    running: set[str | None] = set()
    clashes: list[GroupPlace] = []
    lock = threading.Lock()

    def listen(message: Message) -> None:
        place = place_of(message)
        with lock:
            clashes.extend([place] if place[0] in running else [])
            running.add(place[0])
        pause.wait(0.002)
        with lock:
            running.discard(place[0])
            handled.append(place)

    pause = threading.Event()
    everything = [(group, number) for number in range(1, 9) for group in "abcd"]
    with (
        ThreadServerSessionPool(connection, 3, lambda _: listen) as pool,
        connection.create_connection_consumer(queue, None, pool, 2),
    ):
        send_places(others, queue, *everything)
        wait_for(lambda: len(handled) == len(everything))
    assert clashes == []
    for group in "abcd":
        assert [number for name, number in handled if name == group] == list(range(1, 9))


def test_the_transaction_of_an_application_holds_the_groups_of_its_messages(
    jmsql_clean_url: str, other: Receiver, others: Session, queue: Queue
) -> None:
    send_places(others, queue, ("a", 1), ("a", 2), ("b", 1))
    with psycopg.connect(jmsql_clean_url) as database:
        first = jmsql.enlist(database).create_consumer(queue).receive_no_wait()
        assert first is not None
        assert place_of(first) == ("a", 1)
        assert receive_places(other.consumer, 1) == [("b", 1)]
        assert receive_all(other.consumer) == []
        database.rollback()

        assert receive_places(other.consumer, 2) == [("a", 1), ("a", 2)]


def test_the_holder_of_a_group_can_be_seen(
    open_session: OpenSession, others: Session, queue: Queue, server: Server
) -> None:
    send_places(others, queue, ("a", 1), ("a", 2), ("b", 1), (None, 1))
    receive(open_session(AcknowledgeMode.CLIENT).create_consumer(queue))

    assert server.rows("select queue, group_id, messages, claimed from jmsql.message_groups order by group_id") == [
        ("orders", "a", 2, 1),
        ("orders", "b", 1, 0),
    ]
    assert server.rows("select group_id from jmsql.messages order by sequence") == [("a",), ("a",), ("b",), (None,)]
    assert server.rows(
        "select count(*) from jmsql.message_groups g join jmsql.clients c on c.connection_id = g.claimed_by"
    ) == [(1,)]


def test_messages_made_by_sql_are_in_groups(others: Session, holder: Receiver, other: Receiver, server: Server) -> None:
    others.create_producer(Queue("orders"))
    for number in (1, 2):
        server.rows(
            "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, "
            "properties) "
            "select queue_id, 5, 2, 'Message', jsonb_build_object('JMSXGroupID', 'a', 'number', %s::int) "
            "from jmsql_internal.queue where name = 'orders'",
            number,
        )
    assert receive_places(holder.consumer, 1) == [("a", 1)]
    assert receive_all(other.consumer) == []


def test_a_client_killed_among_many_messages_loses_none(
    jmsql_clean_url: str, open_session: OpenSession, others: Session, queue: Queue
) -> None:
    send_group(others, queue, "a", 20)
    with client_process(jmsql_clean_url, Order(queue.name, AcknowledgeMode.CLIENT.name, receives=5)) as client:
        client.wait_until_ready()
        client.received(5)
        client.kill()

    assert receive_texts(open_session(AcknowledgeMode.AUTO).create_consumer(queue), 20) == [
        f"a{number}" for number in range(1, 21)
    ]
