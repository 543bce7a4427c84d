"""The send of one call, and destinations given as text."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    Message,
    MessageFormatException,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from jmsql.testing import receive_all
from tests.compliance.apis import THREADS_ALONE, Api

pytestmark = pytest.mark.usefixtures("shared_connection")

PATIENCE = 60.0
"""More than a delivery takes."""


@dataclass
class Order:
    """The body of a message."""

    number: int


def received(session: Session, destination: Destination | str) -> list[Message]:
    with session.create_consumer(destination) as consumer:
        return receive_all(consumer)


def test_a_message_is_sent_with_the_given_options(api: Api, connection: Connection, session: Session) -> None:
    identifier = api.send(
        connection,
        "orders",
        Order(17),
        priority=7,
        time_to_live=timedelta(hours=1),
        group="A1",
        properties={"colour": "blue"},
        reply_to="topic://answers",
        correlation_id="request 5",
    )
    (message,) = received(session, Queue("orders"))
    assert identifier.startswith("ID:")
    assert (message.jms_message_id, message.get_body(str)) == (identifier, '{"number":17}')
    assert (message.jms_type, message.jms_priority, message.jms_correlation_id) == ("Order", 7, "request 5")
    assert message.jms_expiration - message.jms_timestamp == 3_600_000
    assert message.jms_reply_to == Topic("answers")
    assert {name: message.properties[name] for name in ("colour", "JMSXGroupID")} == {
        "colour": "blue",
        "JMSXGroupID": "A1",
    }


def test_a_delay_is_kept(api: Api, connection: Connection, session: Session) -> None:
    message = TextMessage("later")
    assert api.send(connection, "orders", message, delivery_delay=3600) == message.jms_message_id
    assert message.jms_delivery_time - message.jms_timestamp == 3_600_000
    assert received(session, "orders") == []


def test_it_is_part_of_the_sessions_transaction(api: Api, connection: Connection, session: Session) -> None:
    transacted = connection.create_session(transacted=True)
    for target in (transacted, api.context(transacted, connection)):
        api.send(target, "orders", "taken back")
        transacted.rollback()
        api.send(target, "orders", "kept")
        assert received(session, "orders") == []
        transacted.commit()
        assert [each.get_body(str) for each in received(session, "orders")] == ["kept"]


def test_a_listener_sends_over_its_connection(api: Api, connection: Connection, session: Session) -> None:
    listening = connection.create_session()
    with session.create_consumer("shipments") as shipments:
        listening.create_consumer("orders").message_listener = lambda message: api.send(
            connection, "shipments", message.get_body(str), correlation_id=message.jms_message_id
        )
        identifier = api.send(session, "orders", "a lantern")
        shipment = shipments.receive(PATIENCE)
    assert shipment is not None
    assert (shipment.get_body(str), shipment.jms_correlation_id) == ("a lantern", identifier)
    listening.close()


@THREADS_ALONE
def test_threads_share_a_connection(api: Api, connection: Connection, session: Session) -> None:
    def send() -> None:
        identifiers.extend(api.send(connection, "orders", "text") for _ in range(5))

    identifiers: list[str] = []
    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.jms_message_id or "" for each in received(session, "orders")) == sorted(identifiers)
    assert len(set(identifiers)) == 20


def test_wrong_arguments_are_refused(api: Api, connection: Connection, session: Session) -> None:
    with pytest.raises(TypeError, match=r"not object|not str"):
        api.send("orders", "orders", "text")
    with pytest.raises(InvalidDestinationException, match=r"write queue://NAME or topic://NAME"):
        api.send(session, "amqp://orders", "text")
    for wrong in (None, "", 5):
        with pytest.raises(InvalidDestinationException):
            api.send(connection, wrong, "text")
    with pytest.raises(InvalidDestinationException, match="answers"):
        api.send(session, "orders", "text", reply_to="amqp://answers")
    with pytest.raises(MessageFormatException):
        api.send(session, "orders", object())
    assert received(session, "orders") == []
    session.close()
    with pytest.raises(IllegalStateException, match="closed"):
        api.send(session, "orders", "text")


@pytest.mark.parametrize(
    ("text", "destination"),
    [("orders", Queue("orders")), ("queue://orders", Queue("orders")), ("topic://prices", Topic("prices"))],
)
def test_a_text_names_a_destination(session: Session, text: str, destination: Destination) -> None:
    with session.create_consumer(text) as consumer:
        session.create_producer(text).send(TextMessage("1"))
        session.create_producer().send(TextMessage("2"), text)
        session.create_producer(destination).send(TextMessage("3"))
        messages = [consumer.receive(PATIENCE) for _ in range(3)]
    assert [message and message.get_body(str) for message in messages] == ["1", "2", "3"]
    assert {message.jms_destination for message in messages if message} == {destination}


def test_a_text_names_the_queue_of_a_browser_and_the_topic_of_a_subscription(
    api: Api, connection: Connection, session: Session
) -> None:
    api.send(session, "orders", "text")
    with session.create_browser("orders") as browser:
        assert [message.get_body(str) for message in browser] == ["text"]
    with api.context(session, connection).create_shared_consumer("prices", "stock") as consumer:
        api.send(session, "topic://prices", "5.30")
        assert consumer.receive_body(str, PATIENCE) == "5.30"


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT])
def test_without_a_transaction_it_is_there_at_once(
    api: Api, connection: Connection, session: Session, mode: AcknowledgeMode
) -> None:
    api.send(api.context(connection.create_session(mode), connection), "orders", "text")
    assert len(received(session, "orders")) == 1


@THREADS_ALONE
def test_type_checkers_know_its_parameters_and_result(connection: Connection, session: Session) -> None:
    identifier: str = jmsql.send(connection, "orders", Order(1), delivery_delay=timedelta(), reply_to=Queue("answers"))
    jmsql.send(session, Topic("prices"), None, correlation_id=identifier, time_to_live=5)
    with pytest.raises(TypeError):
        jmsql.send(5, "orders", None)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationException):
        jmsql.send(session, 5, None)  # type: ignore[arg-type]
