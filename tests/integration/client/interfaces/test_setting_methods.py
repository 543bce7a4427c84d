"""What properties set, methods set too, since setting it may take asking the server (JMS 1.1, chapters 4.3 and 4.5)."""

from __future__ import annotations

import threading

import pytest
import sqlalchemy

from jmsql import (
    ConnectionFactory,
    IllegalStateException,
    InvalidClientIDException,
    JMSException,
    Message,
    Queue,
)
from tests.texts import send_texts

pytestmark = pytest.mark.usefixtures("maintenance_suspended")


def test_a_client_identifier_is_set_once_and_by_one(factory: ConnectionFactory) -> None:
    with factory.create_connection() as first, factory.create_connection() as second:
        first.set_client_id("mine")
        assert first.client_id == "mine"
        with pytest.raises(IllegalStateException):
            first.set_client_id("another")
        with pytest.raises(InvalidClientIDException):
            second.set_client_id("mine")
        second.set_client_id("yours")
        assert second.client_id == "yours"


def test_a_context_has_the_methods_of_its_connection(factory: ConnectionFactory) -> None:
    heard: list[JMSException] = []
    with factory.create_context() as context:
        context.set_client_id("mine")
        assert context.client_id == "mine"
        context.set_exception_listener(heard.append)
        assert context.exception_listener == heard.append
        context.set_exception_listener(None)
        assert context.exception_listener is None


def test_an_exception_listener_is_callable_or_has_the_method(factory: ConnectionFactory) -> None:
    with factory.create_connection() as connection, pytest.raises(TypeError):
        connection.set_exception_listener("nobody")  # type: ignore[arg-type]
    with pytest.raises(IllegalStateException):
        connection.set_exception_listener(None)


def test_a_message_listener_is_set_by_a_method(factory: ConnectionFactory, queue: Queue) -> None:
    received = threading.Event()

    def listen(_: Message) -> None:
        received.set()

    with factory.create_connection() as connection:
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        consumer.set_message_listener(listen)
        assert consumer.message_listener is listen
        connection.start()
        send_texts(connection.create_session(), queue, "a")
        assert received.wait(60)
        consumer.set_message_listener(None)
        session.set_message_listener(listen)
        assert session.message_listener is listen
        consumer.set_message_listener(None)


def test_a_context_s_consumer_has_the_method(factory: ConnectionFactory, queue: Queue) -> None:
    received = threading.Event()
    with factory.create_context() as context:
        context.create_consumer(queue).set_message_listener(lambda _: received.set())
        with factory.create_context() as other:
            other.create_producer().send(queue, "a")
        assert received.wait(60)


def test_the_transaction_is_had_by_a_method(factory: ConnectionFactory) -> None:
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        assert session.get_database() is session.database
        assert session.get_database().scalar(sqlalchemy.text("select 1")) == 1
        with pytest.raises(IllegalStateException):
            connection.create_session().get_database()
