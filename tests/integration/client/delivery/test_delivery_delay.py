"""Messages that are delivered some time after they were sent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql import (
    Connection,
    ConnectionFactory,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from jmsql.testing import wait_for
from tests.integration.client.server import Server

SHORT = 0.3
"""Seconds: a delay that a test waits for."""
LONG = 3600.0
"""Seconds: a delay that no test waits for."""
PATIENCE = 60.0
ALL_DUE: LiteralString = """
    update jmsql_internal.delayed_message d set jms_delivery_time = o.place
    from (select sequence, rank() over (order by jms_delivery_time) as place from jmsql_internal.delayed_message) o
    where d.sequence = o.sequence
    """
"""Makes all that was sent with a delay due at once, in the same order."""


@pytest.fixture
def producer(session: Session, queue: Queue) -> MessageProducer:
    return session.create_producer(queue)


@pytest.fixture
def consumer(session: Session, queue: Queue) -> MessageConsumer:
    return session.create_consumer(queue)


def now() -> int:
    """The time, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def send(producer: MessageProducer, text: str, delay: float | timedelta) -> TextMessage:
    producer.delivery_delay = delay
    message = TextMessage(text)
    producer.send(message)
    return message


def received(consumer: MessageConsumer) -> TextMessage:
    message = consumer.receive(timeout=PATIENCE)
    assert isinstance(message, TextMessage)
    return message


def texts(messages: Iterator[Message]) -> list[str | None]:
    return [message.get_body(str) for message in messages]


class TestProducer:
    def test_delay_is_none_at_first(self, producer: MessageProducer) -> None:
        assert producer.delivery_delay == 0.0

    def test_delay_is_seconds_or_a_timedelta(self, producer: MessageProducer) -> None:
        producer.delivery_delay = timedelta(minutes=2)
        assert producer.delivery_delay == 120.0

    @pytest.mark.parametrize("delay", [-1, float("nan"), 1e300])
    def test_delay_is_a_time_to_come(self, producer: MessageProducer, delay: float) -> None:
        with pytest.raises(ValueError, match="delivery_delay"):
            producer.delivery_delay = delay

    def test_closed_producer_has_no_delay(self, producer: MessageProducer) -> None:
        producer.close()
        with pytest.raises(jmsql.IllegalStateException):
            producer.delivery_delay = 1.0


class TestDeliveryTime:
    def test_without_a_delay_it_is_the_time_of_the_send(
        self, producer: MessageProducer, consumer: MessageConsumer
    ) -> None:
        sent = send(producer, "at once", 0)
        assert sent.jms_delivery_time == sent.jms_timestamp
        assert received(consumer).jms_delivery_time == sent.jms_timestamp

    def test_delay_is_added_to_the_time_of_the_send(self, producer: MessageProducer, consumer: MessageConsumer) -> None:
        sent = send(producer, "later", SHORT)
        assert sent.jms_delivery_time == sent.jms_timestamp + 1000 * SHORT
        assert received(consumer).jms_delivery_time == sent.jms_delivery_time

    def test_it_does_not_need_the_timestamp(self, producer: MessageProducer, consumer: MessageConsumer) -> None:
        producer.disable_message_timestamp = True
        before = now()
        sent = send(producer, "later", SHORT)
        assert sent.jms_delivery_time >= before + 1000 * SHORT
        message = received(consumer)
        assert (message.jms_timestamp, message.jms_delivery_time) == (0, sent.jms_delivery_time)

    def test_delivery_is_not_before_it(self, producer: MessageProducer, consumer: MessageConsumer) -> None:
        for delay in (0.001, 0.05, 0.4):
            sent = send(producer, "later", delay)
            received(consumer)
            assert now() >= sent.jms_delivery_time

    def test_listener_gets_it_then(self, connection: Connection, producer: MessageProducer, queue: Queue) -> None:
        arrivals: list[tuple[int, int]] = []
        connection.create_session().create_consumer(queue).message_listener = lambda message: arrivals.append(
            (now(), message.jms_delivery_time)
        )
        send(producer, "later", SHORT)
        wait_for(lambda: arrivals)
        [(arrived, due)] = arrivals
        assert arrived >= due


class TestBeforeThen:
    def test_it_is_not_received(self, producer: MessageProducer, consumer: MessageConsumer) -> None:
        send(producer, "later", LONG)
        assert consumer.receive(timeout=0.2) is None
        assert consumer.receive_no_wait() is None

    def test_it_is_not_browsed(self, session: Session, producer: MessageProducer, queue: Queue) -> None:
        send(producer, "later", LONG)
        send(producer, "at once", 0)
        with session.create_browser(queue) as browser:
            assert texts(iter(browser)) == ["at once"]

    def test_those_without_a_delay_overtake_it(
        self, producer: MessageProducer, consumer: MessageConsumer, server: Server
    ) -> None:
        send(producer, "later", LONG)
        send(producer, "at once", 0)
        server.rows(ALL_DUE)
        assert [received(consumer).text for _ in range(2)] == ["at once", "later"]

    def test_the_views_show_it(self, producer: MessageProducer, server: Server) -> None:
        sent = send(producer, "later", LONG)
        send(producer, "at once", 0)
        assert server.rows(
            "select state, body, (extract(epoch from delivery_time) * 1000)::bigint from jmsql.messages order by state"
        ) == [("delayed", "later", sent.jms_delivery_time), ("ready", "at once", None)]
        assert server.rows("select ready, delayed from jmsql.queues") == [(1, 1)]


class TestOrder:
    def test_delayed_messages_come_by_delivery_time(
        self, producer: MessageProducer, consumer: MessageConsumer, server: Server
    ) -> None:
        for delay in (2 * LONG, LONG, 1.5 * LONG):
            send(producer, str(delay), delay)
        server.rows(ALL_DUE)
        assert [received(consumer).text for _ in range(3)] == [str(LONG), str(1.5 * LONG), str(2 * LONG)]

    def test_messages_with_one_delivery_time_come_as_they_were_sent(
        self, connection: Connection, queue: Queue, server: Server
    ) -> None:
        count = 1200  # more than move at once
        with connection.create_session(transacted=True) as session:
            producer = session.create_producer(queue)
            for number in range(count):
                send(producer, str(number), LONG)
            session.commit()
            server.rows("update jmsql_internal.delayed_message set jms_delivery_time = 1")
            consumer = session.create_consumer(queue)
            assert [received(consumer).text for _ in range(count)] == [str(number) for number in range(count)]
            session.commit()

    def test_priority_counts_among_those_that_are_due(
        self, connection: Connection, producer: MessageProducer, consumer: MessageConsumer, server: Server
    ) -> None:
        connection.stop()
        for priority in (1, 9, 5):
            producer.priority = priority
            send(producer, str(priority), 0.1)
        wait_for(lambda: server.rows("select ready from jmsql.queues") == [(3,)])
        connection.start()
        assert [received(consumer).text for _ in range(3)] == ["9", "5", "1"]


class TestExpiry:
    def test_time_to_live_counts_from_the_send(self, producer: MessageProducer) -> None:
        producer.time_to_live = 60.0
        sent = send(producer, "later", 30.0)
        assert sent.jms_expiration == sent.jms_timestamp + 60_000

    def test_a_message_that_expires_before_its_delivery_time_is_removed(
        self, producer: MessageProducer, consumer: MessageConsumer, server: Server
    ) -> None:
        producer.time_to_live = 0.2
        send(producer, "too late", LONG)
        assert consumer.receive(timeout=0.5) is None
        wait_for(lambda: server.rows("select from jmsql.messages") == [])

    def test_it_goes_to_the_expiry_queue(
        self, session: Session, producer: MessageProducer, queue: Queue, server: Server
    ) -> None:
        expired = session.create_consumer(Queue("expired"))
        server.rows(
            "update jmsql_internal.queue set expiry_queue_id = (select queue_id "
            "from jmsql_internal.queue where name = 'expired')"
        )
        producer.time_to_live = 0.1
        send(producer, "too late", LONG)
        assert received(expired).text == "too late"


class TestTransactions:
    def test_commit_sends_it_with_the_rest(self, connection: Connection, queue: Queue, server: Server) -> None:
        with connection.create_session(transacted=True) as session:
            producer = session.create_producer(queue)
            send(producer, "later", LONG)
            send(producer, "at once", 0)
            session.database.execute(sqlalchemy.text("select 1"))
            assert server.rows("select from jmsql.messages") == []
            session.commit()
        assert server.rows("select body from jmsql.messages order by state") == [("later",), ("at once",)]

    def test_rollback_forgets_it(self, connection: Connection, queue: Queue, server: Server) -> None:
        with connection.create_session(transacted=True) as session:
            send(session.create_producer(queue), "later", LONG)
            session.database.execute(sqlalchemy.text("select 1"))
            session.rollback()
        assert server.rows("select from jmsql.messages") == []

    def test_it_is_delivered_though_it_was_due_before_the_commit(
        self, connection: Connection, queue: Queue, consumer: MessageConsumer
    ) -> None:
        with connection.create_session(transacted=True) as session:
            sent = send(session.create_producer(queue), "later", 0.05)
            wait_for(lambda: now() > sent.jms_delivery_time)
            session.commit()
        assert received(consumer).text == "later"

    def test_redelivery_does_not_wait_again(
        self, connection: Connection, producer: MessageProducer, queue: Queue
    ) -> None:
        sent = send(producer, "later", SHORT)
        with connection.create_session(transacted=True) as session:
            consumer = session.create_consumer(queue)
            received(consumer)
            session.rollback()
            again = received(consumer)
            session.commit()
        assert again.jms_redelivered
        assert again.jms_delivery_time == sent.jms_delivery_time


class TestTopics:
    def test_each_subscription_gets_it_then(self, session: Session) -> None:
        topic = Topic("news")
        subscribers = [session.create_consumer(topic) for _ in range(2)]
        sent = send(session.create_producer(topic), "later", SHORT)
        for subscriber in subscribers:
            assert received(subscriber).text == "later"
            assert now() >= sent.jms_delivery_time

    def test_subscriptions_that_are_there_at_the_send_count(self, session: Session) -> None:
        topic = Topic("news")
        early = session.create_consumer(topic)
        send(session.create_producer(topic), "later", SHORT)
        late = session.create_consumer(topic)
        assert received(early).text == "later"
        assert late.receive(timeout=0.2) is None

    def test_selectors_choose_it(self, session: Session) -> None:
        topic = Topic("news")
        blue, red = (session.create_consumer(topic, f"color = '{color}'") for color in ("blue", "red"))
        producer = session.create_producer(topic)
        producer.delivery_delay = SHORT
        message = TextMessage("later")
        message.set_string_property("color", "blue")
        producer.send(message)
        assert received(blue).text == "later"
        assert red.receive(timeout=0.2) is None

    def test_subscription_that_ends_takes_it_along(self, session: Session, server: Server) -> None:
        topic = Topic("news")
        subscriber = session.create_consumer(topic)
        send(session.create_producer(topic), "later", LONG)
        assert server.rows("select delayed from jmsql.subscriptions") == [(1,)]
        subscriber.close()
        wait_for(lambda: server.rows("select from jmsql_internal.delayed_message") == [])
        wait_for(lambda: server.rows("select from jmsql_internal.queue where name is null") == [])


class TestQueues:
    def test_queue_that_is_removed_takes_it_along(self, producer: MessageProducer, server: Server) -> None:
        send(producer, "later", LONG)
        server.rows("delete from jmsql_internal.queue")
        assert server.rows("select from jmsql_internal.delayed_message") == []

    def test_temporary_queue_takes_it_along(self, session: Session, server: Server) -> None:
        temporary = session.create_temporary_queue()
        send(session.create_producer(temporary), "later", LONG)
        temporary.delete()
        wait_for(lambda: server.rows("select from jmsql_internal.delayed_message") == [])

    def test_queue_that_was_deleted_is_made_again(self, producer: MessageProducer, server: Server) -> None:
        server.rows("delete from jmsql_internal.queue")
        send(producer, "later", LONG)
        rows = server.rows(
            "select d.text_body from jmsql_internal.delayed_message d join jmsql_internal.queue using (queue_id)"
        )
        assert rows == [("later",)]


class TestClients:
    def test_context_takes_a_delay(self, factory: ConnectionFactory, queue: Queue, consumer: MessageConsumer) -> None:
        with factory.create_context() as context:
            context.create_producer(delivery_delay=timedelta(seconds=SHORT)).send(queue, "later")
        message = received(consumer)
        assert message.jms_delivery_time == message.jms_timestamp + 1000 * SHORT

    def test_it_outlives_its_sender(
        self, factory: ConnectionFactory, other_connection: Connection, queue: Queue
    ) -> None:
        with factory.create_connection() as connection, connection.create_session() as session:
            send(session.create_producer(queue), "later", SHORT)
        with other_connection.create_session() as session:
            assert received(session.create_consumer(queue)).text == "later"

    def test_another_client_takes_over_when_the_leader_is_gone(self, factory: ConnectionFactory, queue: Queue) -> None:
        leader = factory.create_connection()
        with factory.create_connection() as connection, connection.create_session() as session:
            connection.start()
            send(session.create_producer(queue), "later", 0.5)
            leader.close()
            assert received(session.create_consumer(queue)).text == "later"

    def test_no_message_is_lost_or_doubled_while_the_leader_is_cut_off(
        self, connection: Connection, others: Session, queue: Queue, server: Server
    ) -> None:
        count = 2000
        with connection.create_session(transacted=True) as session:
            producer = session.create_producer(queue)
            for number in range(count):
                send(producer, str(number), 0.2)
            session.commit()
        consumer = others.create_consumer(queue)
        numbers: list[str | None] = []
        while len(numbers) < count:
            if len(numbers) % 400 == 0:
                server.rows(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = %s",
                    "client's control",
                )
            numbers.append(received(consumer).text)
        assert consumer.receive(timeout=0.2) is None
        assert sorted(numbers, key=lambda text: int(text or "")) == [str(number) for number in range(count)]


class TestEnlisted:
    def test_it_is_sent_with_the_callers_transaction(
        self, jmsql_clean_url: str, consumer: MessageConsumer, queue: Queue
    ) -> None:
        with psycopg.connect(jmsql_clean_url) as database:
            jmsql.enlist(database).create_producer(delivery_delay=SHORT).send(queue, "later")
        message = received(consumer)
        assert message.jms_delivery_time == message.jms_timestamp + 1000 * SHORT

    def test_rollback_of_the_caller_forgets_it(self, jmsql_clean_url: str, queue: Queue, server: Server) -> None:
        with psycopg.connect(jmsql_clean_url) as database:
            jmsql.enlist(database).create_producer(delivery_delay=LONG).send(queue, "later")
            database.rollback()
        assert server.rows("select from jmsql_internal.delayed_message") == []
