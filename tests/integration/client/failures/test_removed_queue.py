"""Queues that an administrator removes while clients use them."""

from __future__ import annotations

import dataclasses
from typing import Any

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageProducer,
    Queue,
    Session,
    TransactionRolledBackException,
)
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.connections.server_session_pools import Heard, listening
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_of

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))


REFUSALS = (InvalidDestinationException, TransactionRolledBackException)


def send(session: Session, producer: MessageProducer, text: str, queue: Queue | None = None) -> None:
    producer.send(session.create_text_message(text), queue)
    if session.transacted:
        session.commit()


def remove(server: Server, queue: Queue) -> None:
    server.rows("delete from jmsql_internal.queue where name = %s", queue.name)


@MODES
def test_consumer_of_a_removed_queue_receives_nothing_more(
    others: Session, mode_session: Session, queue: Queue, server: Server
) -> None:
    send_texts(others, queue, "a", "b")
    send_texts(others, Queue("kept"), "c")
    consumer = mode_session.create_consumer(queue)
    remove(server, queue)
    assert receive_all(consumer) == []
    assert server.rows("select count(*) from jmsql_internal.message") == [(1,)]


def test_state_of_deliveries_goes_with_the_queue(
    session: Session, connection: Connection, queue: Queue, server: Server
) -> None:
    send_texts(session, queue, "a", "b")
    claiming = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    receive_texts(claiming.create_consumer(queue), 2)
    claiming.recover()
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(2,)]
    remove(server, queue)
    assert server.rows("select count(*) from jmsql_internal.delivery") == [(0,)]


NAMED = pytest.mark.parametrize("named", [False, True], ids=["by the producer", "with each send"])


@MODES
@NAMED
def test_open_producer_makes_a_removed_queue_again(
    others: Session, mode_session: Session, queue: Queue, server: Server, named: bool
) -> None:
    producer = mode_session.create_producer(None if named else queue)
    destination = queue if named else None
    send(mode_session, producer, "a", destination)
    remove(server, queue)
    if mode_session.transacted:  # the commit finds that out, when it cannot be helped any more
        with pytest.raises(TransactionRolledBackException, match="not exist: orders"):
            send(mode_session, producer, "b", destination)
    send(mode_session, producer, "c", destination)
    send(mode_session, producer, "d", destination)
    assert texts_of(receive_all(others.create_consumer(queue))) == ["c", "d"]


@NAMED
def test_transaction_that_inserts_before_its_commit_makes_a_removed_queue_again(
    connection: Connection, others: Session, queue: Queue, server: Server, named: bool
) -> None:
    with connection.create_session(transacted=True) as session:
        producer = session.create_producer(None if named else queue)
        remove(server, queue)
        for number in range(60):
            producer.send(session.create_text_message(str(number)), queue if named else None)
        assert session.database is not None  # what the application sees
        session.commit()
    assert texts_of(receive_all(others.create_consumer(queue))) == [str(number) for number in range(60)]


def test_asynchronous_send_makes_a_removed_queue_again(
    connection: Connection, others: Session, queue: Queue, server: Server
) -> None:
    told: list[JMSException | None] = []
    with connection.create_session() as session, session.create_producer(queue) as producer:
        for text in "ab":
            remove(server, queue)
            message = session.create_text_message(text)
            producer.send(message, completion_listener=lambda _, error: told.append(error))
            wait_for(lambda: len(told) == ord(text) - ord("a") + 1)  # noqa: B023 - called within the round
    assert told == [None, None]
    assert texts_of(receive_all(others.create_consumer(queue))) == ["b"]


@MODES
def test_producer_does_not_make_a_removed_queue_again_where_its_use_makes_none(
    jmsql_factory: ConnectionFactory, queue: Queue, mode: AcknowledgeMode
) -> None:
    factory = dataclasses.replace(jmsql_factory, automatic_creation=False)
    with Administration(jmsql_factory) as administration, factory.create_connection() as connection:
        administration.create(queue)
        session = connection.create_session(mode)
        producer = session.create_producer(queue)
        administration.delete(queue)
        for _ in range(2):
            with pytest.raises(REFUSALS, match=r"not exist: orders|automatic creation is off"):
                send(session, producer, "a")
        administration.create(queue)
        send(session, producer, "b")
        assert [each.ready for each in administration.queues()] == [1]


@MODES
def test_new_consumer_and_browser_see_the_queue_that_was_made_again(
    others: Session, mode_session: Session, queue: Queue, server: Server
) -> None:
    mode_session.create_consumer(queue).close()
    remove(server, queue)
    send_texts(others, queue, "a")
    assert texts_of(mode_session.create_browser(queue)) == ["a"]
    assert texts_of(receive_all(mode_session.create_consumer(queue))) == ["a"]


@MODES
def test_open_consumer_finds_the_queue_that_was_made_again(
    others: Session, mode_session: Session, queue: Queue, server: Server
) -> None:
    consumer = mode_session.create_consumer(queue)
    send_texts(others, queue, "a")
    assert receive_texts(consumer, 1) == ["a"]
    assert consumer.receive_no_wait() is None  # so that a lazy session acknowledges
    if mode_session.transacted:
        mode_session.commit()
    remove(server, queue)
    waiting = Background(lambda: receive_texts(consumer, 1))
    waiting.wait_until_it_waits()
    others.create_consumer(queue).close()  # makes it again
    send_texts(others, queue, "b")
    assert waiting.result() == ["b"]


def test_listener_hears_of_the_queue_that_was_made_again(
    jmsql_clean_url: str, connection: Connection, others: Session, queue: Queue
) -> None:
    heard: list[Message] = []
    connection.create_session().create_consumer(queue, "JMSPriority < 9").message_listener = heard.append
    with Administration(jmsql_clean_url) as administration:
        for text in "ab":
            others.create_consumer(queue).close()  # looks the queue up
            send_texts(others, queue, text)
            wait_for(lambda: heard and heard[-1].get_body(str) == text)  # noqa: B023 - called within the round
            administration.delete(queue, force=True)
    assert texts_of(heard) == ["a", "b"]


def test_connection_consumer_finds_the_queue_that_was_made_again(
    jmsql_clean_url: str, connection: Connection, others: Session, queue: Queue
) -> None:
    heard = Heard()
    with listening(connection, queue, heard), Administration(jmsql_clean_url) as administration:
        send_texts(others, queue, "a")
        heard.wait_for(1)
        administration.delete(queue, force=True)
        others.create_consumer(queue).close()  # makes it again
        send_texts(others, queue, "b")
        heard.wait_for(2)
    assert heard.texts == ["a", "b"]


def test_consumer_that_waits_long_finds_a_queue_that_is_made_long_after(
    connection: Connection, others: Session, queue: Queue, server: Server
) -> None:
    others.create_consumer(queue).close()
    consumer = connection.create_session().create_consumer(queue)
    buffer = consumer._state.buffer
    receiving = Background(lambda: consumer.receive(60))
    wait_for(lambda: buffer.poll.is_longest)  # the control connection looks in its place
    server.rows("select jmsql.delete_destination(%s, true)", queue.name)
    wait_for(lambda: buffer.source.target.may_be_gone)
    receiving.wait_until_it_waits()
    others.create_consumer(queue).close()
    send_texts(others, queue, "a")
    message = receiving.result()
    assert message is not None
    assert message.get_body(str) == "a"


def test_consumer_hears_of_the_queue_that_its_look_has_found(
    connection: Connection, others: Session, queue: Queue, blocker: psycopg.Connection[Any]
) -> None:
    others.create_consumer(queue).close()
    consumer = connection.create_session().create_consumer(queue)
    buffer = consumer._state.buffer
    before = buffer.source.queue_id
    receiving = Background(lambda: consumer.receive(60))
    wait_for(lambda: buffer.poll.is_longest)
    blocker.execute("select jmsql.delete_destination(%s, true)", [queue.name])
    blocker.execute("select jmsql.create_queue(%s)", [queue.name])
    blocker.commit()
    wait_for(lambda: buffer.source.queue_id != before)
    receiving.wait_until_it_waits()
    send_texts(others, queue, "a")
    message = receiving.result()
    assert message is not None
    assert message.get_body(str) == "a"
