"""Destinations that are not made by their use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import psycopg
import pytest

from jmsql import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    Queue,
    Session,
    Topic,
    TransactionRolledBackException,
    enlist,
)
from jmsql.admin import Administration
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

Use = Callable[[Session], object]
USES: dict[str, Use] = {
    "sending to a queue": lambda session: session.create_producer(Queue("nowhere")),
    "sending to a queue named with the message": lambda session: session.create_producer().send(
        session.create_text_message(), Queue("nowhere")
    ),
    "receiving from a queue": lambda session: session.create_consumer(Queue("nowhere")),
    "browsing a queue": lambda session: session.create_browser(Queue("nowhere")),
    "publishing": lambda session: session.create_producer(Topic("nowhere")),
    "publishing on a topic named with the message": lambda session: session.create_producer().send(
        session.create_text_message(), Topic("nowhere")
    ),
    "subscribing": lambda session: session.create_consumer(Topic("nowhere")),
}


@pytest.fixture
def switched_off(administration: Administration) -> Iterator[None]:
    """The schema wants no destination made by its use."""
    administration.set_automatic_creation(enabled=False)
    yield
    administration.set_automatic_creation(enabled=True)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("transacted", [False, True])
def test_the_schema_refuses_missing_destinations(
    switched_off: None, administration: Administration, other_connection: Connection, use: Use, transacted: bool
) -> None:
    session = other_connection.create_session(transacted)
    with pytest.raises(InvalidDestinationException, match=r"automatic creation is off.*jmsql destination create"):
        use(session)
    assert administration.destinations() == []


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_factory_refuses_missing_destinations(
    jmsql_factory: ConnectionFactory, administration: Administration, use: Use
) -> None:
    factory = dataclasses.replace(jmsql_factory, automatic_creation=False)
    with (
        factory.create_connection() as connection,
        pytest.raises(InvalidDestinationException, match="automatic creation is off"),
    ):
        use(connection.create_session())
    assert administration.destinations() == []


def test_a_transaction_of_the_callers_and_sql(
    switched_off: None, server: Server, jmsql_transaction: psycopg.Connection
) -> None:
    with pytest.raises(InvalidDestinationException, match="automatic creation"):
        enlist(jmsql_transaction).create_producer().send(Queue("nowhere"), "a")
    with pytest.raises(Exception, match="There is no queue"):
        server.rows("select jmsql.send('nowhere', 'a')")


def test_existing_and_temporary_destinations_work(
    switched_off: None, administration: Administration, session: Session
) -> None:
    assert not administration.automatic_creation()
    for destination in (
        administration.create_queue("orders"),
        administration.create_topic("prices"),
        session.create_temporary_queue(),
        session.create_temporary_topic(),
    ):
        consumer = session.create_consumer(destination)
        send_texts(session, destination, "a")
        assert receive_texts(consumer, 1) == ["a"]


@pytest.mark.parametrize("named", [False, True], ids=["by the producer", "with each send"])
def test_a_transaction_is_refused_sends_to_a_queue_that_is_gone(
    jmsql_factory: ConnectionFactory, administration: Administration, *, named: bool
) -> None:
    factory = dataclasses.replace(jmsql_factory, automatic_creation=False)
    queue = Queue("orders")
    administration.create_queue(queue.name)
    with factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        producer = session.create_producer(None if named else queue)
        sent = queue if named else None
        producer.send(session.create_message(), sent)
        administration.delete(queue)
        with pytest.raises(TransactionRolledBackException, match="does not exist"):
            session.commit()
        with pytest.raises(InvalidDestinationException, match="automatic creation is off"):
            producer.send(session.create_message(), sent)
        administration.create_queue(queue.name)
        producer.send(session.create_message(), sent)
        session.commit()
