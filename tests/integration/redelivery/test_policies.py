"""Redelivery policies of destinations and consumers: counts, delays, and the way to the dead-letter queue."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NoReturn

import pytest
import sqlalchemy

from jmsql import (
    AcknowledgeMode,
    Connection,
    IllegalStateException,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
    TransactionRolledBackException,
    enlist,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive, receive_texts, send_texts, texts_of

FAILING = pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
DLQ = Queue("DLQ")


def fail(session: Session, error: BaseException | str | None = None) -> None:
    """Deliver again what the session has received."""
    if session.transacted:
        session.rollback(error)
    else:
        session.recover(error)


def fail_with(error: Exception) -> NoReturn:
    raise error


def acknowledge(session: Session, message: Message) -> None:
    if session.transacted:
        session.commit()
    message.acknowledge()
    if session.acknowledge_mode is AcknowledgeMode.DUPS_OK:
        session.close()


def count(message: Message) -> int:
    return message.get_int_property("JMSXDeliveryCount")


@FAILING
def test_each_failed_delivery_counts_until_the_message_is_dead(
    mode_session: Session, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, maximum_deliveries=3)
    sent = others.create_text_message("poison")
    sent.set_string_property("colour", "blue")
    others.create_producer(queue).send(sent, priority=7, time_to_live=3600)
    send_texts(others, queue, "good")
    consumer = mode_session.create_consumer(queue)
    for number in (1, 2, 3):
        message = receive(consumer)
        assert (message.get_body(str), count(message), message.jms_redelivered) == ("poison", number, number > 1)
        fail(mode_session, "no stock")
    good = receive(consumer)
    assert (good.get_body(str), count(good)) == ("good", 1)
    acknowledge(mode_session, good)

    dead = receive(others.create_consumer(DLQ))
    assert dead.get_body(str) == "poison"
    assert dead.jms_message_id == sent.jms_message_id
    assert dead.jms_timestamp == sent.jms_timestamp
    assert dead.jms_priority == 7
    assert dead.jms_expiration == 0, "it does not expire"
    assert (count(dead), dead.jms_redelivered) == (1, False)
    now = time.time() * 1000
    assert dead.get_string_property("colour") == "blue"
    assert dead.get_string_property("JMS_jmsql_OriginalDestination") == "queue://orders"
    assert dead.get_string_property("JMS_jmsql_DeadLetterReason") == "maximum deliveries"
    assert dead.get_int_property("JMS_jmsql_Deliveries") == 3
    assert dead.get_string_property("JMS_jmsql_LastError") == "no stock"
    assert dead.get_long_property("JMS_jmsql_OriginalExpiration") == sent.jms_expiration
    assert sent.jms_timestamp - 1000 <= dead.get_long_property("JMS_jmsql_FirstFailure")
    assert dead.get_long_property("JMS_jmsql_FirstFailure") <= dead.get_long_property("JMS_jmsql_DeadLetterTime")
    assert dead.get_long_property("JMS_jmsql_DeadLetterTime") < now + 1000
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.delivery") == [(0,)])
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.message") == [(0,)])


def test_dead_letters_are_chosen_by_selectors_and_seen_in_sql(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue("dead")
    administration.create_queue(queue.name, maximum_deliveries=1, dead_letter_queue="dead")
    send_texts(others, queue, "a", "b")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    for text in ("a", "b"):
        assert receive(consumer).get_body(str) == text
        with pytest.raises(ValueError, match="cannot do") as failure:
            fail_with(ValueError(f"cannot do {text}"))
        session.rollback(failure.value)
    # Maintenance may be moving them at the moment, so that the rollback leaves them to it.
    wait_for(lambda: server.rows("select count(*) from jmsql.dead_letters") == [(2,)])
    rows = server.rows(
        "select queue, original_destination, reason, deliveries, error, body, properties from jmsql.dead_letters "
        "order by body"
    )
    facts = ("dead", "queue://orders", "maximum deliveries", 1)
    assert rows == [(*facts, "ValueError: cannot do a", "a", {}), (*facts, "ValueError: cannot do b", "b", {})]
    (last_error,) = server.rows("select last_error from jmsql.dead_letters order by body")[0]
    assert last_error.startswith("Traceback (most recent call last):")
    selector = "JMS_jmsql_OriginalDestination = 'queue://orders' AND JMS_jmsql_LastError LIKE '%do b%'"
    assert texts_of(receive_all(others.create_consumer(Queue("dead"), selector))) == ["b"]


@pytest.mark.parametrize("listening", [True, False])
def test_failed_messages_wait_longer_each_time_and_others_go_on(
    connection: Connection, others: Session, queue: Queue, administration: Administration, listening: bool
) -> None:
    administration.create_queue(queue.name, redelivery_delay=0.2, redelivery_multiplier=3.0)
    session = connection.create_session(transacted=not listening)
    consumer = session.create_consumer(queue)
    heard: list[tuple[str | None, float]] = []

    def handle(message: Message) -> None:
        text = message.get_body(str)
        heard.append((text, time.monotonic()))
        if text == "poison" and count(message) <= 2:
            raise RuntimeError("not yet")

    send_texts(others, queue, "poison", "a", "b")
    if listening:
        consumer.message_listener = handle
        wait_for(lambda: len(heard) == 5)
    else:
        while len(heard) < 5:
            try:
                handle(receive(consumer))
                session.commit()
            except RuntimeError as error:
                session.rollback(error)
    assert [text for text, _ in heard] == ["poison", "a", "b", "poison", "poison"]
    first, second, third = (moment for text, moment in heard if text == "poison")
    assert second - first >= 0.2
    assert third - second >= 0.6


def test_a_policy_of_the_consumer_goes_before_that_of_the_destination(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, redelivery_delay=3600.0)
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    consumer.redelivery_policy = policy = RedeliveryPolicy(maximum_deliveries=2, dead_letter_queue="own")
    assert consumer.redelivery_policy == policy
    send_texts(others, queue, "poison")
    for number in (1, 2):
        assert count(receive(consumer)) == number
        session.rollback()
    assert receive_all(consumer) == []
    assert receive_texts(others.create_consumer(Queue("own")), 1) == ["poison"]

    consumer.redelivery_policy = None
    send_texts(others, queue, "waits")
    receive(consumer)
    session.rollback()
    assert receive_all(consumer) == []
    assert server.rows("select next_attempt - now() > interval '50 minutes' from jmsql.messages") == [(True,)]


def test_a_default_policy_holds_where_nothing_else_does(
    connection: Connection, others: Session, queue: Queue, administration: Administration
) -> None:
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    consumer.default_redelivery_policy = RedeliveryPolicy(maximum_deliveries=1)
    send_texts(others, queue, "dies")
    receive(consumer)
    session.rollback()
    assert receive(others.create_consumer(DLQ)).get_body(str) == "dies"


@FAILING
def test_a_message_that_has_failed_too_often_for_a_stricter_consumer_is_not_delivered(
    mode_session: Session, connection: Connection, others: Session, queue: Queue
) -> None:
    send_texts(others, queue, "poison", "good")
    patient = connection.create_session(transacted=True)
    for _ in range(2):
        with patient.create_consumer(queue) as consumer:
            receive_texts(consumer, 1)
            patient.rollback()
    patient.close()
    strict = mode_session.create_consumer(queue)
    strict.redelivery_policy = RedeliveryPolicy(maximum_deliveries=2)
    message = strict.receive_no_wait()
    assert message is not None, "what comes behind it does"
    assert message.get_body(str) == "good"
    acknowledge(mode_session, message)
    assert texts_of([receive(others.create_consumer(DLQ))]) == ["poison"]


@FAILING
def test_a_dead_letter_queue_with_a_policy_keeps_its_messages(
    mode_session: Session, others: Session, administration: Administration
) -> None:
    administration.create_queue("DLQ", maximum_deliveries=2)
    send_texts(others, DLQ, "dead already")
    consumer = mode_session.create_consumer(DLQ)
    for number in (1, 2, 3, 4):
        assert count(receive(consumer)) == number
        fail(mode_session)


def test_dead_letters_cannot_be_sent_in_circles(administration: Administration) -> None:
    administration.create_queue("a", maximum_deliveries=1)
    administration.create_queue("b", maximum_deliveries=1, dead_letter_queue="a")
    with pytest.raises(JMSException, match="dead letters would go round: a -> b -> a"):
        administration.alter("a", dead_letter_queue="b")
    with pytest.raises(JMSException, match="its own dead letter queue"):
        administration.alter("a", dead_letter_queue="a")


def test_the_origin_of_a_message_that_dies_twice_stays_the_first(
    connection: Connection, others: Session, administration: Administration
) -> None:
    administration.create_queue("hopeless")
    administration.create_queue("DLQ", maximum_deliveries=1, dead_letter_queue="hopeless")
    administration.create_queue("orders", maximum_deliveries=2)
    send_texts(others, Queue("orders"), "poison")
    session = connection.create_session(transacted=True)
    for name, times in (("orders", 2), ("DLQ", 1)):
        with session.create_consumer(Queue(name)) as consumer:
            for _ in range(times):
                receive(consumer)
                session.rollback(f"failed in {name}")
    dead = receive(others.create_consumer(Queue("hopeless")))
    assert dead.get_string_property("JMS_jmsql_OriginalDestination") == "queue://orders"
    assert dead.get_string_property("JMS_jmsql_LastError") == "failed in DLQ"
    assert dead.get_int_property("JMS_jmsql_Deliveries") == 1


def test_a_topics_policy_serves_its_subscriptions(
    connection: Connection, others: Session, administration: Administration, server: Server
) -> None:
    topic = administration.create_topic("prices", maximum_deliveries=1)
    session = connection.create_session(transacted=True)
    consumer = session.create_shared_durable_consumer(topic, "desk")
    send_texts(others, Topic("prices"), "poison")
    receive(consumer)
    session.rollback()
    letters = "select original_destination, original_subscription, body from jmsql.dead_letters"
    wait_for(lambda: server.rows(letters) == [("topic://prices", "desk", "poison")])


def test_a_dead_letter_queue_that_was_deleted_gives_way_to_the_default_one(
    connection: Connection, others: Session, queue: Queue, administration: Administration
) -> None:
    administration.create_queue("dead")
    administration.create_queue(queue.name, maximum_deliveries=1, dead_letter_queue="dead")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    send_texts(others, queue, "a", "b")
    receive_texts(consumer, 1)
    session.rollback()
    wait_for(lambda: administration.depth("dead").number == 1)  # maintenance may have to move it
    administration.delete("dead")
    receive_texts(consumer, 1)
    session.rollback()
    assert receive(others.create_consumer(DLQ)).get_body(str) == "b"


def test_deliveries_that_end_well_leave_nothing_behind(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, maximum_deliveries=5)
    texts = [f"{number}" for number in range(250)]
    send_texts(others, queue, *texts)
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    for number in range(5):
        assert receive_texts(consumer, 50) == texts[50 * number : 50 * (number + 1)]
        session.commit()
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]


def test_fetched_and_undelivered_messages_do_not_count(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server
) -> None:
    administration.create_queue(queue.name, maximum_deliveries=5)
    texts = [f"{number}" for number in range(100)]
    send_texts(others, queue, *texts)
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    receive_texts(consumer, 40)  # by now it fetches many at once
    session.rollback()
    assert [count(message) for message in (receive(consumer) for _ in texts)] == [2] * 40 + [1] * 60
    session.commit()
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


def test_a_session_in_the_callers_transaction_has_no_policy(jmsql_clean_url: str, queue: Queue) -> None:
    import psycopg

    with psycopg.connect(jmsql_clean_url) as database:
        consumer = enlist(database)._session.create_consumer(queue)
        with pytest.raises(IllegalStateException, match="does not count deliveries"):
            consumer.redelivery_policy = RedeliveryPolicy()


def test_no_view_shows_a_time_that_languages_cannot_read_while_a_message_is_buried(
    others: Session, queue: Queue, server: Server
) -> None:
    send_texts(others, queue, "dead")
    server.rows("begin")  # so that nobody else buries it
    server.rows(
        "insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, delivery_count, next_attempt, "
        "dead_letter_queue_id) select queue_id, inverse_priority, sequence, 1, 'infinity', 0 "
        "from jmsql_internal.message"
    )
    assert server.rows("select state, next_attempt from jmsql.messages") == [("waiting", None)]
    server.rows("rollback")


@pytest.mark.parametrize("has_policy", [True, False])
@pytest.mark.parametrize("listens", [True, False])
def test_a_message_keeps_why_the_commit_has_failed(
    connection: Connection, others: Session, queue: Queue, administration: Administration, server: Server,
    has_policy: bool, listens: bool,
) -> None:  # fmt: skip
    if has_policy:
        administration.create_queue(queue.name, maximum_deliveries=5, redelivery_delay=60.0)
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    send_texts(others, queue, "1")
    refusals: list[JMSException] = []

    def handle(_: Message) -> None:
        with suppress(sqlalchemy.exc.DataError):
            session.database.execute(sqlalchemy.text("select 1 / 0"))
        with suppress(sqlalchemy.exc.InternalError):
            session.database.execute(sqlalchemy.text("select 2"))
        try:
            session.commit()
        except JMSException as error:
            refusals.append(error)
            consumer.message_listener = None

    if listens:
        consumer.message_listener = handle
        wait_for(lambda: refusals, 60.0)
    else:
        handle(receive(consumer))
    assert isinstance(refusals[0], TransactionRolledBackException)
    assert refusals[0].error_code == "25P02"
    assert "had failed before (division by zero), and the error was caught" in str(refusals[0])
    kept = "select delivery_count, strpos(last_error, 'division by zero') > 0, next_attempt > now() from jmsql.messages"
    wait_for(lambda: server.rows(kept), 60.0)
    [(count, has_reason, waits)] = server.rows(kept)
    assert (count >= 1, has_reason) == (True, True)
    assert bool(waits) is has_policy, "without a policy only errors that are given make a message wait"


def test_a_failure_undone_by_a_savepoint_is_not_blamed_for_later_ones(
    connection: Connection, others: Session, queue: Queue, server: Server
) -> None:
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(queue)
    send_texts(others, queue, "1", "2")
    receive(consumer)
    with suppress(sqlalchemy.exc.DataError), session.database.begin_nested():
        session.database.execute(sqlalchemy.text("select 1 / 0"))
    session.commit()
    receive(consumer)
    with suppress(sqlalchemy.exc.DataError):
        session.database.execute(sqlalchemy.text("select 'x'::text::int"))
    with pytest.raises(TransactionRolledBackException, match="invalid input syntax") as refusal:
        session.commit()
    assert "division" not in str(refusal.value)
    assert server.rows("select body from jmsql.messages") == [("2",)]
