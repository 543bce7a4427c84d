"""A session that holds a message of a group holds the group: others get the rest of the queue, none of the group."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, Session, Timings, Topic
from jmsql.testing import receive_all
from tests.integration.groups.conftest import OpenSession, Receiver
from tests.integration.groups.grouped import place_of, places_of, receive_places, send_group, send_places
from tests.integration.groups.settling import release, settle
from tests.texts import receive

pytestmark = pytest.mark.usefixtures("shared_connection", "other_shared_connection")


def test_a_group_is_held_by_one_consumer_and_others_go_to_the_next(
    holder: Receiver, other: Receiver, others: Session, queue: Queue
) -> None:
    send_places(others, queue, ("a", 1), ("a", 2), ("b", 1), (None, 1), ("b", 2))

    assert receive_places(holder.consumer, 1) == [("a", 1)]

    assert receive_places(other.consumer, 3) == [("b", 1), (None, 1), ("b", 2)]
    assert receive_all(other.consumer) == []


def test_a_consumer_holds_the_group_of_its_message_alone_however_the_server_finds_it(
    jmsql_clean_url: str, jmsql_timings: Timings, queue: Queue
) -> None:
    """A server that takes the index for dear, as after much has left it, reads the whole table and sorts it."""
    url = make_url(jmsql_clean_url).update_query_dict(
        {"options": "-c enable_indexscan=off -c enable_bitmapscan=off -c enable_indexonlyscan=off"}
    )
    with ConnectionFactory(
        url.render_as_string(hide_password=False), timings=jmsql_timings
    ).create_connection() as connection:
        connection.start()
        one, another = (connection.create_session(transacted=True) for _ in range(2))
        send_places(one, queue, ("a", 1), ("a", 2), ("b", 1), (None, 1), ("c", 1))

        assert receive_places(one.create_consumer(queue), 1) == [("a", 1)]

        assert receive_places(another.create_consumer(queue), 3) == [("b", 1), (None, 1), ("c", 1)]


def test_the_group_is_free_when_its_message_is_settled(
    holder: Receiver, other: Receiver, others: Session, queue: Queue
) -> None:
    send_group(others, queue, "a", 2)
    first = receive(holder.consumer)
    assert receive_all(other.consumer) == []

    settle(holder.session, first)

    assert receive_places(other.consumer, 1) == [("a", 2)]


def test_the_group_begins_with_the_message_that_was_released(
    holder: Receiver, other: Receiver, others: Session, queue: Queue
) -> None:
    send_group(others, queue, "a", 3)
    assert receive_places(holder.consumer, 2) == [("a", 1), ("a", 2)]

    release(holder.session)

    again = receive(other.consumer)
    assert place_of(again) == ("a", 1)
    assert again.jms_redelivered
    if other.mode is not AcknowledgeMode.AUTO:
        assert receive_all(holder.consumer) == []


def test_its_holder_gets_more_of_the_group(holder: Receiver, others: Session, queue: Queue) -> None:
    send_group(others, queue, "a", 2)
    assert receive_places(holder.consumer, 2) == [("a", 1), ("a", 2)]

    send_places(others, queue, ("a", 3))

    assert receive_places(holder.consumer, 1) == [("a", 3)]


def test_a_message_of_a_higher_priority_is_the_first_of_its_group_and_waits_for_the_holder(
    holder: Receiver, other: Receiver, others: Session, queue: Queue
) -> None:
    send_group(others, queue, "a", 2)
    first = receive(holder.consumer)
    send_places(others, queue, ("a", 9), priority=9)
    assert receive_all(other.consumer) == []

    settle(holder.session, first)

    assert receive_places(other.consumer, 1) == [("a", 9)]
    if other.mode is AcknowledgeMode.AUTO:
        assert receive_places(other.consumer, 1) == [("a", 2)]


def test_the_same_name_in_another_queue_is_another_group(
    holder: Receiver, open_session: OpenSession, others: Session, queue: Queue
) -> None:
    shipments = Queue("shipments")
    send_group(others, queue, "a", 1)
    send_group(others, shipments, "a", 1)
    receive(holder.consumer)

    assert receive_places(open_session(AcknowledgeMode.AUTO).create_consumer(shipments), 1) == [("a", 1)]


def test_two_consumers_of_a_session_take_a_group_in_order(
    open_session: OpenSession, others: Session, queue: Queue
) -> None:
    session = open_session(AcknowledgeMode.TRANSACTED)
    odd, even = (session.create_consumer(queue, f"number - number / 2 * 2 = {rest}") for rest in (1, 0))
    send_group(others, queue, "a", 4)

    assert receive_places(odd, 1) == [("a", 1)]
    session.commit()
    assert receive_places(even, 1) == [("a", 2)]


def test_any_text_is_the_name_of_a_group(holder: Receiver, others: Session, queue: Queue) -> None:
    names = ["", " ", "größe", "a\0b", "'; drop table message", "x" * 100_000]
    send_places(others, queue, *((name, 1) for name in names))

    assert receive_places(holder.consumer, len(names)) == [(name, 1) for name in names]


@pytest.mark.parametrize(
    "delayed", [pytest.param(False, id="at once"), pytest.param(True, id="delayed", marks=pytest.mark.maintained)]
)
def test_each_subscription_has_its_own_groups(
    connection: Connection, other_connection: Connection, others: Session, delayed: bool
) -> None:
    topic = Topic("prices")
    sessions = [client.create_session(transacted=True) for client in (connection, other_connection)]
    first, second = (session.create_shared_consumer(topic, "one") for session in sessions)
    alone = connection.create_session().create_shared_consumer(topic, "two")
    with others.create_producer(topic) as producer:
        producer.delivery_delay = 0.01 if delayed else 0.0
        for number in (1, 2):
            message = others.create_text_message("text")
            message.set_int_property("number", number)
            message.set_string_property("JMSXGroupID", "a")
            producer.send(message)

    assert receive_places(first, 1) == [("a", 1)]
    assert receive_all(second) == []
    assert receive_places(alone, 2) == [("a", 1), ("a", 2)]
    sessions[0].commit()
    assert receive_places(second, 1) == [("a", 2)]


def test_a_selector_chooses_among_groups_and_their_messages(
    holder: Receiver, open_session: OpenSession, others: Session, queue: Queue
) -> None:
    send_places(others, queue, ("a", 1), ("b", 1), ("a", 2), ("b", 2))
    of_b = open_session(AcknowledgeMode.AUTO).create_consumer(queue, "JMSXGroupID = 'b' and JMSXGroupSeq > 1")

    assert receive_places(of_b, 1) == [("b", 2)]
    assert receive_places(holder.consumer, 3) == [("a", 1), ("b", 1), ("a", 2)]
    assert receive_all(of_b) == []


def test_a_long_transaction_receives_from_thousands_of_groups(
    open_session: OpenSession, others: Session, queue: Queue, jmsql_factory: ConnectionFactory
) -> None:
    groups = 3000
    with jmsql_factory.create_connection() as connection:
        send_places(connection.create_session(transacted=True), queue, *((f"g{n}", 1) for n in range(groups)))
    session = open_session(AcknowledgeMode.TRANSACTED)
    consumer = session.create_consumer(queue)

    received = places_of(receive_all(consumer))

    # Some groups have the slot of another one, whose messages come all the same.
    assert received == [(f"g{n}", 1) for n in range(groups)]
    session.commit()
    assert receive_all(others.create_consumer(queue)) == []
