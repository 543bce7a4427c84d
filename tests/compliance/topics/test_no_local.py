"""A subscriber that does not want what its own connection publishes: JMS 1.1 chapter 6.11."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql import Connection, ConnectionFactory, Message, Session, Topic
from jmsql.domains import TopicSubscriber
from jmsql.testing import receive_all, wait_for
from tests.texts import send_texts, texts_of

NEWS = Topic("news")

pytestmark = [pytest.mark.requirement("subscriber.nolocal"), pytest.mark.routes]


@pytest.fixture
def others(jmsql_factory: ConnectionFactory) -> Iterator[Session]:
    """A session of another connection."""
    with jmsql_factory.create_connection() as connection:
        yield connection.create_session()


def subscribe(session: Session, durable: bool, no_local: bool) -> TopicSubscriber:
    if durable:
        return session.create_durable_subscriber(NEWS, "reader", no_local=no_local)
    consumer = session.create_consumer(NEWS, no_local=no_local)
    assert isinstance(consumer, TopicSubscriber)
    return consumer


@pytest.mark.case("subscriber-no-local-01")
@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
@pytest.mark.parametrize(("no_local", "expected"), [(False, ["own", "theirs"]), (True, ["theirs"])])
@pytest.mark.parametrize("transacted", [False, True])
def test_own_messages_are_left_out_if_so_wished(
    connection: Connection, others: Session, durable: bool, no_local: bool, expected: list[str], transacted: bool
) -> None:
    subscriber = subscribe(connection.create_session(), durable, no_local)
    assert subscriber.no_local is no_local
    send_texts(connection.create_session(transacted), NEWS, "own")
    send_texts(others, NEWS, "theirs")
    assert texts_of(receive_all(subscriber)) == expected


@pytest.mark.case("subscriber-no-local-01")
def test_listener_hears_none_of_its_connections_messages(
    connection: Connection, session: Session, others: Session
) -> None:
    heard: list[Message] = []
    session.create_consumer(NEWS, no_local=True).message_listener = heard.append
    publishing = connection.create_session()
    send_texts(publishing, NEWS, "own")
    send_texts(others, NEWS, "theirs")
    wait_for(lambda: heard)
    assert texts_of(heard) == ["theirs"]


def test_durable_subscription_leaves_out_its_clients_messages_from_while_it_was_closed(
    session: Session, others: Session
) -> None:
    subscribe(session, durable=True, no_local=True).close()
    send_texts(session, NEWS, "own")
    send_texts(others, NEWS, "theirs")
    assert texts_of(receive_all(subscribe(session, durable=True, no_local=True))) == ["theirs"]


def test_other_subscribers_of_the_connection_are_not_concerned(connection: Connection, session: Session) -> None:
    deaf, hearing = session.create_consumer(NEWS, no_local=True), session.create_consumer(NEWS)
    send_texts(session, NEWS, "own")
    assert receive_all(deaf) == []
    assert texts_of(receive_all(hearing)) == ["own"]
