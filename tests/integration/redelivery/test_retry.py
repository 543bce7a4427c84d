"""Dead letters on their way back, and messages that expired."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    Connection,
    InvalidDestinationException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive, receive_texts, send_texts, texts_of

DLQ = Queue("DLQ")


def let_die(connection: Connection, queue: Queue, *errors: str) -> None:
    """Fail once with as many messages of a queue that delivers each once, and wait until they are dead letters."""
    dying = sqlalchemy.text("select count(*) from jmsql_internal.delivery where dead_letter_queue_id is not null")
    with connection.create_session(transacted=True) as session, session.create_consumer(queue) as consumer:
        for error in errors:
            receive(consumer)
            session.rollback(error)
        # Maintenance may be moving one at the moment, so that the rollback leaves it to that.
        wait_for(lambda: session.database.scalar(dying) == 0)


@pytest.fixture
def fragile(administration: Administration, queue: Queue) -> Queue:
    """A queue whose messages are dead after one failed delivery."""
    return administration.create_queue(queue.name, maximum_deliveries=1)


def test_queues_with_dead_letters_are_listed_by_name(
    connection: Connection, others: Session, fragile: Queue, administration: Administration
) -> None:
    send_texts(others, fragile, "a")
    assert administration.dead_letter_queues() == []
    let_die(connection, fragile, "no")
    assert administration.dead_letter_queues() == ["DLQ"]


def test_dead_letters_go_back_with_the_properties_that_jmsql_gave_them_before(
    connection: Connection, others: Session, fragile: Queue, administration: Administration, server: Server
) -> None:
    ticks = "select properties from jmsql_internal.message"
    administration.set_schedule("report", timedelta(days=2), fragile, "the figures")
    with others.create_consumer("another queue"):  # so that the client sends what is due
        server.rows("update jmsql_internal.schedule set next_at = clock_timestamp() - interval '5 d'")
        server.rows("select pg_notify('jmsql', '-2147483648')")
        wait_for(lambda: server.rows(ticks))
    [(before,)] = server.rows(ticks)
    assert {"JMS_jmsql_Schedule", "JMS_jmsql_ScheduledTime", "JMS_jmsql_MissedTicks"} <= set(before)
    let_die(connection, fragile, "no")
    assert server.rows(ticks) != [(before,)]
    assert administration.retry().returned == {"queue://orders": 1}
    assert server.rows(ticks) == [(before,)]


def test_dead_letters_go_back_as_they_were_and_count_as_new(
    connection: Connection, others: Session, fragile: Queue, administration: Administration, server: Server
) -> None:
    sent = others.create_text_message("x" * 5000)
    sent.set_string_property("colour", "blue")
    sent.set_byte_property("size", 3)
    sent.jms_correlation_id = "7"
    others.create_producer(fragile).send(sent, priority=8, time_to_live=3600)
    let_die(connection, fragile, "no")
    done = administration.retry()
    assert (done.returned, done.left) == ({"queue://orders": 1}, 0)
    with others.create_consumer(fragile) as consumer:  # whose end waits for the commit, for the count below
        again = receive(consumer)
    assert again.get_body(str) == "x" * 5000
    assert again.jms_message_id == sent.jms_message_id
    assert again.jms_priority == 8
    assert again.jms_expiration == sent.jms_expiration
    assert again.jms_correlation_id == "7"
    assert (again.jms_redelivered, again.get_int_property("JMSXDeliveryCount")) == (False, 1)
    assert set(again.property_names) == {"colour", "size", "JMSXDeliveryCount"}
    assert again.get_byte_property("size") == 3
    assert administration.retry() == ({}, 0, {}), "doing it again does no harm"
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]


def test_some_go_back_by_selector_or_number(
    connection: Connection, others: Session, fragile: Queue, administration: Administration
) -> None:
    send_texts(others, fragile, "a", "b", "c", "d")
    let_die(connection, fragile, "TimeoutError: a", "KeyError: b", "TimeoutError: c", "KeyError: d")
    letters = administration.dead_letters("DLQ", "JMS_jmsql_LastError LIKE 'Key%'")
    assert [(letter.body, letter.error) for letter in letters] == [("d", "KeyError: d"), ("b", "KeyError: b")]
    assert [letter.body for letter in administration.dead_letters(limit=1)] == ["d"]

    done = administration.retry("DLQ", "JMS_jmsql_LastError LIKE 'Timeout%'", limit=1)
    assert (done.returned, done.left) == ({"queue://orders": 1}, 0)
    assert texts_of(receive_all(others.create_consumer(fragile))) == ["a"]
    assert administration.retry("DLQ", "JMS_jmsql_LastError LIKE 'Key%'").returned == {"queue://orders": 2}
    assert texts_of(receive_all(others.create_consumer(fragile))) == ["b", "d"]
    assert texts_of(receive_all(others.create_consumer(DLQ))) == ["c"]


def test_retry_leaves_held_messages_and_those_of_deleted_queues(
    connection: Connection, others: Session, fragile: Queue, administration: Administration
) -> None:
    send_texts(others, fragile, "held")
    let_die(connection, fragile, "no")
    gone = administration.create_queue("gone", maximum_deliveries=1)
    send_texts(others, gone, "homeless")
    let_die(connection, gone, "no")
    administration.delete("gone", force=True)  # its consumer may still be listed, which is closed
    holding = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    assert receive_texts(holding.create_consumer(DLQ, "JMS_jmsql_OriginalDestination = 'queue://orders'"), 1)
    assert administration.retry() == ({}, 2, {"queue://gone": 1})
    holding.close()
    assert administration.retry() == ({"queue://orders": 1}, 1, {"queue://gone": 1})
    administration.create_queue("gone")
    assert administration.retry() == ({"queue://gone": 1}, 0, {})
    with pytest.raises(InvalidDestinationException):
        administration.retry("nowhere")


def test_messages_of_a_subscription_go_back_to_it_alone(
    connection: Connection, others: Session, administration: Administration
) -> None:
    topic = administration.create_topic("prices", maximum_deliveries=1)
    session = connection.create_session(transacted=True)
    desk, other = (session.create_shared_durable_consumer(topic, name) for name in ("desk", "other"))
    send_texts(others, Topic("prices"), "x" * 5000)
    assert receive(desk).get_body(str) == "x" * 5000
    session.rollback()
    wait_for(lambda: administration.depth("DLQ").number == 1)  # maintenance may have to move it
    assert administration.retry() == ({"topic://prices (desk)": 1}, 0, {})
    assert [len(text) for text in receive_texts(desk, 1) + receive_texts(other, 1)] == [5000, 5000]
    session.commit()
    assert receive_all(desk) == receive_all(other) == []


def test_sql_does_it_too(connection: Connection, others: Session, fragile: Queue, server: Server) -> None:
    send_texts(others, fragile, "a", "b", "c")
    let_die(connection, fragile, "no", "no", "no")
    assert server.rows("select jmsql.retry('DLQ', 2)") == [(2,)]
    assert server.rows("select jmsql.retry('DLQ')") == [(1,)]
    assert server.rows("select jmsql.retry('DLQ')") == [(0,)]
    assert texts_of(receive_all(others.create_consumer(fragile))) == ["a", "b", "c"]


def test_a_consumer_that_waits_hears_of_a_message_that_comes_back(
    connection: Connection, others: Session, fragile: Queue, administration: Administration
) -> None:
    send_texts(others, fragile, "a")
    let_die(connection, fragile, "no")
    heard: list[Message] = []
    others.create_consumer(fragile).message_listener = heard.append
    administration.retry()
    wait_for(lambda: texts_of(heard) == ["a"])


def test_a_dead_letter_that_a_consumer_sends_on_is_an_ordinary_message(
    connection: Connection, session: Session, fragile: Queue, administration: Administration
) -> None:
    sent = session.create_text_message("a")
    sent.set_short_property("size", 3)
    session.create_producer(fragile).send(sent)
    let_die(connection, fragile, "no")
    dead = receive(session.create_consumer(DLQ))
    session.create_producer(fragile).send(dead)
    again = receive(session.create_consumer(fragile))
    assert set(again.property_names) == {"size", "JMSXDeliveryCount"}
    assert again.get_short_property("size") == 3
    assert administration.dead_letters() == []


def test_expired_messages_keep_their_origin_and_can_be_returned(
    session: Session, administration: Administration, queue: Queue
) -> None:
    administration.create_queue("expired")
    topic = administration.create_topic("prices", expiry_queue="expired")
    administration.create_queue(queue.name, expiry_queue="expired")
    subscriber = session.create_shared_durable_consumer(topic, "desk")
    consumer = session.create_consumer(Queue("expired"))
    for destination in (queue, topic):
        session.create_producer(destination).send(session.create_text_message(destination.name), time_to_live=0.001)
    wait_for(lambda: len(administration.dead_letters("expired")) == 2)
    letters = sorted(administration.dead_letters("expired"))
    facts = [(each.original_destination, each.original_subscription, each.reason, each.deliveries) for each in letters]
    assert sorted(facts) == [
        ("queue://orders", None, "expired", 0),
        ("topic://prices", "desk", "expired", 0),
    ]
    assert all(each.expires_at is not None for each in letters)
    assert administration.retry("expired") == ({"queue://orders": 1, "topic://prices (desk)": 1}, 0, {})
    assert receive(subscriber).jms_expiration == 0, "it does not expire at once again"
    assert receive_all(consumer) == []


def test_nothing_is_lost_or_doubled_when_many_bury_at_once(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    count, threads = 100, 4
    send_texts(others, queue, *(f"{number}" for number in range(count)))

    def fail_with_all() -> None:
        with connection.create_session(transacted=True) as session:
            consumer = session.create_consumer(queue)
            consumer.redelivery_policy = RedeliveryPolicy(maximum_deliveries=2)
            while consumer.receive(timeout=0.5) is not None:
                session.rollback()

    failing = [threading.Thread(target=fail_with_all) for _ in range(threads)]
    for thread in failing:
        thread.start()
    for thread in failing:
        thread.join()
    rows = "select count(*), count(distinct body), min(deliveries), max(deliveries) from jmsql.dead_letters"
    # Maintenance may be moving one at the moment, so that the rollback leaves it to that.
    wait_for(lambda: server.rows(rows) == [(count, count, 2, 2)])
    assert server.rows("select count(*) from jmsql_internal.message") == [(count,)]
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]
    assert administration.retry().returned == {"queue://orders": count}
