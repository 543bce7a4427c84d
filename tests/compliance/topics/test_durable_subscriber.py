"""Durable subscriptions: JMS 1.1 chapters 4.3.2, 6.3 and 6.11.1."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import methodcaller

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Session,
    Topic,
)
from jmsql.testing import receive_all
from tests.texts import receive, receive_texts, send_texts, texts_of

pytestmark = [pytest.mark.routes, pytest.mark.usefixtures("shared_connection")]

NEWS, SPORTS = Topic("news"), Topic("sports")
NAME = "reader"


@pytest.fixture
def other_session(connection: Connection) -> Session:
    return connection.create_session()


@pytest.mark.requirement("subscriber.durable.unique")
@pytest.mark.case("durable-subscriber-01")
def test_second_subscriber_in_another_session_is_refused(session: Session, other_session: Session) -> None:
    subscriber = session.create_durable_subscriber(NEWS, NAME)
    with pytest.raises(JMSException, match="active consumer"):
        other_session.create_durable_subscriber(NEWS, NAME)
    send_texts(session, NEWS, "a")
    assert receive_texts(subscriber, 1) == ["a"]


@pytest.mark.requirement("subscriber.durable.unique")
@pytest.mark.case("durable-subscriber-02")
def test_second_subscriber_in_the_same_session_is_refused(session: Session) -> None:
    subscriber = session.create_durable_subscriber(NEWS, NAME)
    with pytest.raises(JMSException, match="active consumer"):
        session.create_durable_subscriber(NEWS, NAME)
    send_texts(session, NEWS, "a")
    assert receive_texts(subscriber, 1) == ["a"]


@pytest.mark.requirement("subscriber.durable.unique", "subscriber.durable.changing")
@pytest.mark.parametrize("change", ["topic", "selector", "no_local"])
def test_subscription_with_an_active_subscriber_is_not_changed(
    session: Session, other_session: Session, change: str
) -> None:
    subscriber = session.create_durable_subscriber(NEWS, NAME)
    with pytest.raises(IllegalStateException):
        other_session.create_durable_subscriber(
            SPORTS if change == "topic" else NEWS,
            NAME,
            "urgent" if change == "selector" else None,
            no_local=change == "no_local",
        )
    send_texts(session, NEWS, "a")
    assert receive_texts(subscriber, 1) == ["a"]


@pytest.mark.requirement("subscriber.durable.changing")
@pytest.mark.case("durable-subscriber-03")
def test_another_topic_makes_another_subscription(session: Session) -> None:
    with session.create_durable_subscriber(NEWS, NAME):
        send_texts(session, NEWS, "old")
    subscriber = session.create_durable_subscriber(SPORTS, NAME)
    send_texts(session, NEWS, "news")
    send_texts(session, SPORTS, "sports")
    assert texts_of(receive_all(subscriber)) == ["sports"]
    subscriber.close()
    assert receive_all(session.create_durable_subscriber(NEWS, NAME)) == []


@pytest.mark.requirement("subscriber.durable.changing")
@pytest.mark.parametrize(
    ("selector", "no_local", "is_another"),
    [
        ("weight > 1", False, False),
        ("weight > 2", False, True),
        ("weight  >  1", False, True),
        (None, False, True),
        ("weight > 1", True, True),
    ],
    ids=["same", "other selector", "other spelling", "no selector", "no_local"],
)
def test_another_selector_makes_another_subscription(
    session: Session, selector: str | None, no_local: bool, is_another: bool
) -> None:
    with session.create_durable_subscriber(NEWS, NAME, "weight > 1"):
        message = session.create_text_message("heavy")
        message.set_int_property("weight", 3)
        session.create_producer(NEWS).send(message)
    subscriber = session.create_durable_subscriber(NEWS, NAME, selector, no_local=no_local)
    assert texts_of(receive_all(subscriber)) == ([] if is_another else ["heavy"])


@pytest.mark.requirement("subscriber.durable")
@pytest.mark.case("durable-subscriber-04")
def test_subscription_collects_while_its_subscriber_is_closed(session: Session) -> None:
    for round_number in range(3):
        with session.create_durable_subscriber(NEWS, NAME) as subscriber:
            assert texts_of(receive_all(subscriber)) == ([] if round_number == 0 else ["away"])
            send_texts(session, NEWS, "here")
            assert receive_texts(subscriber, 1) == ["here"]
        send_texts(session, NEWS, "away")


@pytest.mark.requirement("subscriber.durable")
def test_collected_messages_stay_until_they_are_acknowledged(connection: Connection, session: Session) -> None:
    reading = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    reading.create_durable_subscriber(NEWS, NAME).close()
    send_texts(session, NEWS, "a", "b")
    for _ in range(2):
        with reading.create_durable_subscriber(NEWS, NAME) as subscriber:
            assert receive_texts(subscriber, 2) == ["a", "b"]
        reading.recover()
    with reading.create_durable_subscriber(NEWS, NAME) as subscriber:
        receive(subscriber).acknowledge()
    assert texts_of(receive_all(reading.create_durable_subscriber(NEWS, NAME))) == ["b"]


@pytest.mark.requirement("subscriber.durable.unsubscribe")
@pytest.mark.case("durable-subscriber-05")
def test_unsubscribed_subscription_can_be_made_again_and_is_empty(session: Session) -> None:
    session.create_durable_subscriber(NEWS, NAME).close()
    send_texts(session, NEWS, "a")
    session.unsubscribe(NAME)
    send_texts(session, NEWS, "b")
    subscriber = session.create_durable_subscriber(NEWS, NAME)
    assert receive_all(subscriber) == []
    send_texts(session, NEWS, "c")
    assert receive_texts(subscriber, 1) == ["c"]


@pytest.mark.requirement("subscriber.durable.unsubscribe")
def test_unsubscribing_is_refused_while_a_subscriber_is_active(session: Session, other_session: Session) -> None:
    subscriber = session.create_durable_subscriber(NEWS, NAME)
    for unsubscribing in (session, other_session):
        with pytest.raises(IllegalStateException, match="active consumer"):
            unsubscribing.unsubscribe(NAME)
    send_texts(session, NEWS, "a")
    assert receive_texts(subscriber, 1) == ["a"]


@pytest.mark.requirement("subscriber.durable.unsubscribe")
@pytest.mark.parametrize("settled", [True, False], ids=["acknowledged", "released"])
def test_unsubscribing_is_refused_while_a_message_is_not_acknowledged(
    connection: Connection, session: Session, settled: bool
) -> None:
    reading = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    with reading.create_durable_subscriber(NEWS, NAME) as subscriber:
        send_texts(session, NEWS, "a", "b")
        message = receive(subscriber)
    with pytest.raises(IllegalStateException, match="not acknowledged"):
        session.unsubscribe(NAME)
    if settled:
        message.acknowledge()
    else:
        reading.recover()
    session.unsubscribe(NAME)


@pytest.mark.requirement("subscriber.durable.unsubscribe")
@pytest.mark.parametrize("end", [methodcaller("commit"), methodcaller("rollback")])
def test_unsubscribing_is_refused_while_a_message_is_in_a_transaction(
    connection: Connection, session: Session, end: Callable[[Session], None]
) -> None:
    reading = connection.create_session(transacted=True)
    with reading.create_durable_subscriber(NEWS, NAME) as subscriber:
        send_texts(session, NEWS, "a", "b")
        assert receive_texts(subscriber, 1) == ["a"]
    with pytest.raises(IllegalStateException, match="not acknowledged or committed"):
        session.unsubscribe(NAME)
    end(reading)
    session.unsubscribe(NAME)


@pytest.mark.requirement("subscriber.durable.unsubscribe")
def test_unsubscribing_an_unknown_name_is_an_error(session: Session) -> None:
    with pytest.raises(InvalidDestinationException, match="'stranger'"):
        session.unsubscribe("stranger")


@pytest.mark.requirement("subscriber.durable.clientId")
def test_each_client_has_its_own_names(jmsql_factory: ConnectionFactory) -> None:
    def client(client_id: str) -> Connection:
        return dataclasses.replace(jmsql_factory, client_id=client_id).create_connection()

    with client("anna") as anna, client("otto") as otto:
        readers = {connection: connection.create_session() for connection in (anna, otto)}
        for session in readers.values():
            session.create_durable_subscriber(NEWS, NAME).close()
        send_texts(readers[anna], NEWS, "a")
        readers[anna].unsubscribe(NAME)
        with pytest.raises(InvalidDestinationException):
            readers[anna].unsubscribe(NAME)
        otto.start()
        assert texts_of(receive_all(readers[otto].create_durable_subscriber(NEWS, NAME))) == ["a"]


@pytest.mark.requirement("subscriber.durable.clientId", "subscriber.durable")
def test_subscription_is_found_again_by_client_identifier_and_name(jmsql_factory: ConnectionFactory) -> None:
    factory = dataclasses.replace(jmsql_factory, client_id="anna")
    for expected in ([], ["a"], ["a"]):
        with factory.create_connection() as connection:
            connection.start()
            session = connection.create_session()
            assert texts_of(receive_all(session.create_durable_subscriber(NEWS, NAME))) == expected
        with jmsql_factory.create_connection() as publishing:
            send_texts(publishing.create_session(), NEWS, "a")


@pytest.mark.requirement("subscriber.durable.clientId")
def test_client_identifier_is_needed(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session()
        with pytest.raises(IllegalStateException, match="client_id"):
            session.create_durable_subscriber(NEWS, NAME)


@pytest.mark.requirement("subscriber.durable.clientId")
def test_name_is_needed(session: Session) -> None:
    with pytest.raises(ValueError, match="at least one character"):
        session.create_durable_subscriber(NEWS, "")
