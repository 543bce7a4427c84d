"""Asynchronous sends in transactions."""

from __future__ import annotations

import threading

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    Queue,
    Session,
    TextMessage,
    TransactionRolledBackException,
)
from jmsql.testing import wait_for
from tests.background import Background
from tests.integration.asynchronous_send.completions import PATIENCE, Completions, stored
from tests.integration.client.server import SESSIONS, Server


class TestTransactions:
    def test_listener_is_told_before_the_commit(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        transacted.create_producer(queue).send(TextMessage("hello"), completion_listener=completions)
        wait_for(lambda: completions.told)
        assert stored(server) == []
        transacted.commit()
        assert stored(server) == ["hello"]

    def test_messages_belong_to_the_applications_transaction(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        database = transacted.database
        producer = transacted.create_producer(queue)
        with database.begin_nested() as savepoint:
            producer.send(TextMessage("undone"), completion_listener=completions)
            savepoint.rollback()
        producer.send(TextMessage("done"), completion_listener=completions)
        count = database.scalar(sqlalchemy.text("select count(*) from jmsql_internal.message"))
        transacted.commit()
        assert count == 1
        assert completions.sent == ["undone", "done"]
        assert stored(server) == ["done"]

    def test_message_listener_can_wait_for_its_sends(
        self, connection: Connection, transacted: Session, queue: Queue, others: Session
    ) -> None:
        def forward(message: Message) -> None:
            told = threading.Event()
            replies.send(message, completion_listener=lambda *_: told.set())
            assert told.wait(PATIENCE)
            transacted.commit()

        replies = transacted.create_producer(Queue("replies"))
        transacted.create_consumer(queue).message_listener = forward
        others.create_producer(queue).send(TextMessage("hello"))
        reply = others.create_consumer(Queue("replies")).receive(timeout=PATIENCE)
        assert reply is not None
        assert reply.get_body(str) == "hello"

    def test_removed_queue_fails_the_messages_and_the_transaction(
        self, transacted: Session, completions: Completions, server: Server
    ) -> None:
        producer = transacted.create_producer(transacted.create_temporary_queue())
        server.rows("delete from jmsql_internal.queue where connection_id is not null")
        producer.send(TextMessage("hello"), completion_listener=completions)
        with pytest.raises(TransactionRolledBackException):
            transacted.commit()
        assert completions.failed == ["hello"]
        assert isinstance(completions.errors[0], InvalidDestinationException)

    def test_lost_connection_fails_the_messages_and_the_transaction(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        producer = transacted.create_producer(queue)
        producer.send(TextMessage("first"), completion_listener=completions)
        wait_for(lambda: completions.told)
        server.terminate(SESSIONS)
        producer.send(TextMessage("second"), completion_listener=completions)
        with pytest.raises(TransactionRolledBackException):
            transacted.commit()
        assert completions.failed == ["second"]
        producer.send(TextMessage("third"), completion_listener=completions)
        transacted.commit()
        assert stored(server) == ["third"]

    def test_transactions_of_others_have_no_listeners(
        self, jmsql_clean_url: str, queue: Queue, completions: Completions
    ) -> None:
        with psycopg.connect(jmsql_clean_url) as database:
            producer = jmsql.enlist(database).create_producer(completion_listener=completions)
            with pytest.raises(IllegalStateException, match="completion listener"):
                producer.send(queue, "hello")

    def test_a_message_received_while_the_sender_deletes_others_is_deleted_too(
        self,
        transacted: Session,
        queue: Queue,
        others: Session,
        server: Server,
        blocker: psycopg.Connection,
        completions: Completions,
    ) -> None:
        """A send under conditions has the sender delete the delivered messages, while the application receives."""
        producer, consumer = others.create_producer(queue), transacted.create_consumer(queue)
        for text in ("earlier", "earlier"):
            producer.send(TextMessage(text))
            assert consumer.receive(PATIENCE) is not None
        transacted.commit()
        for text in ("first", "second"):
            producer.send(TextMessage(text))
        received = [consumer.receive(PATIENCE)]
        blocker.execute("lock table jmsql_internal.message in share mode")
        message = TextMessage("last")
        message.set_string_property("JMS_jmsql_Coalesce", "customer 5")
        transacted.create_producer(Queue("customers")).send(message, completion_listener=completions)
        server.wait_until_a_session_waits()
        second = Background(lambda: consumer.receive(PATIENCE))  # it was fetched with the first
        second.wait_until_it_waits()
        blocker.rollback()
        received.append(second.result())
        transacted.commit()
        assert [None if each is None else each.get_body(str) for each in received] == ["first", "second"]
        assert stored(server) == ["last"]


def test_a_listener_sends_asynchronously_in_its_transaction(jmsql_factory: ConnectionFactory) -> None:
    """The sender inserts in the open transaction, in another thread, while the next message is fetched in it."""
    incoming, outgoing, most = Queue("incoming"), Queue("outgoing"), 30
    errors: list[JMSException | None] = []
    with jmsql_factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        with connection.create_session() as others:
            for _ in range(most):
                others.create_producer(incoming).send(others.create_message())
        producer = session.create_producer(outgoing)

        def listen(_: Message) -> None:
            producer.send(session.create_message(), completion_listener=lambda _, error: errors.append(error))

        session.create_consumer(incoming).message_listener = listen
        connection.start()
        wait_for(lambda: len(errors) == most, 60.0)
    assert errors == [None] * most
