"""Messages that wait for a retry or their delivery time, and that an administrator has delivered now."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, InvalidDestinationException, Queue, Session, Topic
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.texts import receive, receive_texts, texts_left, texts_of

HOUR = 3600.0


@pytest.fixture(autouse=True)
def queue(administration: Administration, queue: Queue) -> Queue:
    return administration.create_queue(queue.name, redelivery_delay=HOUR, maximum_deliveries=9)


def send(
    session: Session, queue: Queue | Topic, *texts: str, delay: float = 0.0, group: str | None = None, priority: int = 4
) -> None:
    with session.create_producer(queue) as producer:
        producer.delivery_delay = delay
        for text in texts:
            message = session.create_text_message(text)
            message.set_string_property("text", text)
            if group is not None:
                message.set_string_property("JMSXGroupID", group)
            producer.send(message, priority=priority)


def fail(connection: Connection, queue: Queue, count: int) -> None:
    """Receive so many messages, and roll them back, after which they wait."""
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    for _ in range(count):
        receive(consumer)
    transacted.rollback()
    transacted.close()


def test_messages_that_wait_for_a_retry_keep_their_order_and_the_number_of_their_deliveries(
    administration: Administration, connection: Connection, session: Session, queue: Queue
) -> None:
    send(session, queue, "a", "b")
    send(session, queue, "urgent", priority=9)
    fail(connection, queue, 3)
    send(session, queue, "later")
    before = [each.delivery for each in administration.browse(queue)]
    assert [each.state for each in before] == ["waiting", "waiting", "waiting", "ready"]
    assert administration.deliver(queue) == 3
    after = [each.delivery for each in administration.browse(queue)]
    assert [each.state for each in after] == ["ready"] * 4
    assert [each._replace(state="", next_attempt=None) for each in after] == [
        each._replace(state="", next_attempt=None) for each in before
    ]
    assert administration.deliver(queue) == 0
    received = receive_all(session.create_consumer(queue))
    assert texts_of(received) == ["urgent", "a", "b", "later"]
    assert [each.get_int_property("JMSXDeliveryCount") for each in received] == [2, 2, 2, 1]


def test_delayed_messages_come_in_the_order_of_their_delivery_times(
    administration: Administration, session: Session, queue: Queue
) -> None:
    send(session, queue, "second", delay=HOUR * 2)
    send(session, queue, "first", delay=HOUR)
    send(session, queue, "there")
    assert administration.deliver(queue) == 2
    received = receive_all(session.create_consumer(queue))
    assert texts_of(received) == ["there", "first", "second"]
    now = time.time() * 1000
    assert all((each.jms_delivery_time or 0) <= now + 60_000 for each in received)
    assert [each.jms_redelivered for each in received] == [False] * 3


def test_consumers_that_wait_are_notified(
    administration: Administration, connection: Connection, session: Session, others: Session, queue: Queue
) -> None:
    send(session, queue, "failed")
    fail(connection, queue, 1)
    send(session, queue, "delayed", delay=HOUR)
    received: list[str] = []
    consumer = others.create_consumer(queue)
    assert consumer.receive(timeout=0.2) is None  # its scan bound is behind the message that waits
    thread = threading.Thread(target=lambda: received.extend(receive_texts(consumer, 2)))
    thread.start()
    assert administration.deliver(queue) == 2
    thread.join(60)
    assert sorted(received) == ["delayed", "failed"]


def test_a_group_goes_on_when_its_first_message_is_delivered(
    administration: Administration, connection: Connection, session: Session, others: Session, queue: Queue
) -> None:
    send(session, queue, "a1", "a2", group="a")
    fail(connection, queue, 1)
    consumer = others.create_consumer(queue)
    assert consumer.receive(timeout=0.2) is None
    assert administration.deliver(queue) == 1
    assert receive_texts(consumer, 2) == ["a1", "a2"]


def test_by_selector_with_a_limit_and_by_place(
    administration: Administration, connection: Connection, session: Session, queue: Queue
) -> None:
    send(session, queue, *"abc")
    fail(connection, queue, 3)
    send(session, queue, *"abcd", delay=HOUR)
    steps: list[int] = []
    assert administration.deliver(queue, "text IN ('b', 'c')", limit=3, progress=steps.append) == 3
    assert (steps, texts_of(receive_all(session.create_consumer(queue)))) == ([2, 3], ["b", "c", "b"])
    places = [each.delivery.place for each in administration.browse(queue)]
    assert administration.deliver(queue, places=[places[0], places[-1], places[-1]]) == 2
    assert texts_of(receive_all(session.create_consumer(queue))) == ["a", "d"]
    assert administration.deliver(queue, places=places) == 2
    with pytest.raises(ValueError, match="selector and a limit"):
        administration.deliver(queue, "text = 'a'", places=places)
    with pytest.raises(ValueError, match="goes with places"):
        administration.deliver(1)
    with pytest.raises(InvalidDestinationException):
        administration.deliver("nowhere")


def test_held_and_dying_messages_stay(
    administration: Administration, connection: Connection, session: Session, queue: Queue, jmsql_clean_url: str
) -> None:
    send(session, queue, "held")
    holder = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    receive(holder.create_consumer(queue)).acknowledge()
    send(session, queue, "held", "doomed")
    held = receive(holder.create_consumer(queue))
    fail(connection, queue, 1)
    with psycopg.connect(jmsql_clean_url) as sql:
        sql.execute("update jmsql_internal.delivery set next_attempt = 'infinity' where claim_id is null")
    assert administration.deliver(queue) == 0
    held.acknowledge()


def test_messages_of_a_subscription_are_delivered_by_their_places(
    administration: Administration, session: Session, jmsql_factory: ConnectionFactory
) -> None:
    topic = administration.create_topic("prices")
    administration.subscribe(topic, "audit", shared=True)
    send(session, topic, "17.5", delay=HOUR)
    [waiting] = [each for each in administration.overview(kind="subscription") if each.subscription == "audit"]
    [message] = administration.browse(waiting.number)
    assert administration.deliver(waiting.number, places=[message.delivery.place]) == 1
    assert texts_of(receive_all(session.create_shared_durable_consumer(topic, "audit"))) == ["17.5"]


def test_sql_delivers_in_the_transaction_of_its_caller(
    administration: Administration,
    session: Session,
    queue: Queue,
    jmsql_clean_url: str,
    jmsql_factory: ConnectionFactory,
) -> None:
    send(session, queue, "a", "b", "c", delay=HOUR)
    with psycopg.connect(jmsql_clean_url) as sql:
        sequences = [row[0] for row in sql.execute("select sequence from jmsql.messages order by sequence")]
        assert sql.execute("select jmsql.deliver(%s)", [queue.name]).fetchone() == (3,)
        sql.rollback()
        assert sql.execute("select jmsql.deliver(%s, %s)", [queue.name, sequences[1:]]).fetchone() == (2,)
        sql.commit()
        assert texts_left(jmsql_factory, queue) == ["b", "c"]
        assert sql.execute("select jmsql.deliver(%s, max_messages => 5)", [queue.name]).fetchone() == (1,)
        assert sql.execute("select jmsql.deliver(%s, array[]::bigint[])", [queue.name]).fetchone() == (0,)
        with pytest.raises(psycopg.Error) as refusal:
            sql.execute("select jmsql.deliver(%s, null)", [queue.name])
        assert refusal.value.sqlstate == "JMS03"


def test_a_message_with_a_key_still_coalesces_after_its_delivery(
    administration: Administration, session: Session, queue: Queue
) -> None:
    def request(text: str, *, delay: float = 0.0) -> None:
        message = session.create_text_message(text)
        message.set_string_property("JMS_jmsql_Coalesce", "report")
        message.set_string_property("JMS_jmsql_CoalesceBody", "latest")
        with session.create_producer(queue) as producer:
            producer.delivery_delay = delay
            producer.send(message)

    request("old", delay=HOUR)
    assert administration.deliver(queue) == 1
    request("new")
    assert texts_of(receive_all(session.create_consumer(queue))) == ["new"]


def test_messages_that_wait_are_delivered_once_beside_consumers_that_take_them(
    administration: Administration, connection: Connection, session: Session, other_connection: Connection, queue: Queue
) -> None:
    texts = [str(number) for number in range(60)]
    send(session, queue, *texts[:30])
    fail(connection, queue, 30)
    send(session, queue, *texts[30:], delay=HOUR)
    received: list[str] = []
    done = threading.Event()

    def take() -> None:
        consumer = other_connection.create_session().create_consumer(queue)
        while not done.is_set():
            message = consumer.receive(timeout=0.05)
            if message is not None:
                received.append(str(message.get_body(str)))

    takers = [threading.Thread(target=take) for _ in range(3)]
    for taker in takers:
        taker.start()
    delivered = 0
    while count := administration.deliver(queue, limit=7):
        delivered += count
    wait_for(lambda: len(received) == 60)
    done.set()
    for taker in takers:
        taker.join()
    assert (delivered, sorted(received)) == (60, sorted(texts))
