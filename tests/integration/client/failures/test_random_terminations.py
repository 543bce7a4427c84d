"""Connections that the server ends at random moments, under load: nothing is lost, and transactions happen once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest
import sqlalchemy

from jmsql import AcknowledgeMode, Connection, JMSException, MessageConsumer, Queue, Session
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server

QUEUE = Queue("orders")
MESSAGES = 200
TERMINATIONS = 40
CONSUMERS = 3
UNKNOWN_OUTCOME = "08007"


@pytest.fixture
def received(server: Server) -> Iterator[None]:
    """A business table, where each message received leaves a row."""
    server.rows("create table received (number int)")
    yield
    server.rows("drop table received")


def terminate_at_random(url: str) -> int:
    """End connections of the client's at random, for a while; return how many there were."""
    ended = 0
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(TERMINATIONS):
            threading.Event().wait(random.uniform(0.001, 0.03))
            ended += connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name in (%s, %s) order by random() limit 2",
                [SESSIONS, CONTROL],
            ).rowcount
    return ended


def send_all(session: Session) -> set[int]:
    """Send numbered messages, each until it is sure to be sent; return those that may have been sent twice."""
    producer = session.create_producer(QUEUE)
    doubtful = set()
    for number in range(MESSAGES):
        while True:
            message = session.create_message()
            message.set_int_property("number", number)
            producer.send(message)
            try:
                session.commit()
                break
            except JMSException as error:
                if error.error_code == UNKNOWN_OUTCOME:
                    doubtful.add(number)
    return doubtful


def test_transactions_receive_and_store_once(
    connection: Connection, server: Server, jmsql_clean_url: str, received: None
) -> None:
    all_stored = threading.Event()
    insert = sqlalchemy.text("insert into received values (:number)")

    def consume(session: Session, consumer: MessageConsumer) -> None:
        while not all_stored.is_set():
            try:
                message = consumer.receive(timeout=0.05)
                if message is not None:
                    session.database.execute(insert, {"number": message.get_int_property("number")})
                    session.commit()
            except (JMSException, sqlalchemy.exc.OperationalError):
                session.rollback()

    sessions = [connection.create_session(transacted=True) for _ in range(CONSUMERS)]
    consumers = [session.create_consumer(QUEUE) for session in sessions]
    terminating = Background(partial(terminate_at_random, jmsql_clean_url))
    consuming = [Background(partial(consume, *pair)) for pair in zip(sessions, consumers, strict=True)]
    doubtful = send_all(connection.create_session(transacted=True))
    assert terminating.result() > 0
    wait_for(lambda: server.rows("select count(distinct number) from received") == [(MESSAGES,)], timeout=60)
    wait_for(lambda: server.rows("select count(*) from jmsql.messages") == [(0,)], timeout=60)
    all_stored.set()
    for each in consuming:
        each.result()
    stored = Counter(number for (number,) in server.rows("select number from received"))
    assert stored.keys() == set(range(MESSAGES))
    assert {number for number, count in stored.items() if count > 1} <= doubtful


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
def test_no_message_is_lost(
    connection: Connection, server: Server, jmsql_clean_url: str, mode: AcknowledgeMode
) -> None:
    seen: set[int] = set()
    all_seen = threading.Event()

    def consume(consumer: MessageConsumer) -> None:
        while not all_seen.is_set():
            try:
                message = consumer.receive(timeout=0.05)
                if message is not None:
                    seen.add(message.get_int_property("number"))
                    message.acknowledge()
            except JMSException:
                continue

    consumers = [connection.create_session(mode).create_consumer(QUEUE) for _ in range(CONSUMERS)]
    terminating = Background(partial(terminate_at_random, jmsql_clean_url))
    consuming = [Background(partial(consume, consumer)) for consumer in consumers]
    send_all(connection.create_session(transacted=True))
    assert terminating.result() > 0
    wait_for(lambda: len(seen) == MESSAGES, timeout=60)
    wait_for(lambda: server.rows("select count(*) from jmsql.messages") == [(0,)], timeout=60)
    all_seen.set()
    for each in consuming:
        each.result()
