"""Savepoints that the application sets in a session's transaction: what a rollback to one undoes, and what not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm, text

from jmsql import Connection, ConnectionFactory, Message, Queue, Session, TransactionRolledBackException
from jmsql.testing import receive_all
from tests.integration.client.server import Server
from tests.texts import receive_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

QUEUE = Queue("savepoints")


class Undone(Exception):
    """Says that the savepoint is to be rolled back."""


Savepoint = Callable[[sqlalchemy.Connection], AbstractContextManager[None]]
"""Sets a savepoint, and rolls back to it if the block raises `Undone`; else releases it."""


@contextmanager
def by_sqlalchemy(database: sqlalchemy.Connection) -> Iterator[None]:
    nested = database.begin_nested()
    try:
        yield
    except Undone:
        nested.rollback()
    else:
        nested.commit()


@contextmanager
def by_statements(database: sqlalchemy.Connection) -> Iterator[None]:
    database.execute(text('savepoint "The order"'))
    try:
        yield
    except Undone:
        database.exec_driver_sql('ROLLBACK WORK TO SAVEPOINT "The order";')
    else:
        database.execute(text('release "The order"'))


@contextmanager
def by_an_orm_session(database: sqlalchemy.Connection) -> Iterator[None]:
    with orm.Session(database, join_transaction_mode="create_savepoint") as session:
        session.execute(text("select 1"))
        try:
            yield
        except Undone:
            session.rollback()
        else:
            session.commit()


@contextmanager
def by_the_driver(database: sqlalchemy.Connection) -> Iterator[None]:
    connection = database.connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    try:
        with connection.transaction():
            yield
    except Undone:
        pass


WAYS = [by_sqlalchemy, by_statements, by_an_orm_session, by_the_driver]
SEEN_BEFORE = [by_sqlalchemy, by_statements, by_an_orm_session]
"""Those of which the session hears before the server does."""


@pytest.fixture
def connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.create_session(transacted=True)


def send(session: Session, *names: str) -> None:
    with session.create_producer(QUEUE) as producer:
        for name in names:
            producer.send(session.create_text_message(name))


def put(connection: Connection, *names: str) -> None:
    with connection.create_session() as session:
        send(session, *names)


def left(connection: Connection) -> list[str]:
    with connection.create_session() as session:
        return texts_of(receive_all(session.create_consumer(QUEUE)))


def deliveries(message: Message | None) -> tuple[str | None, bool, int]:
    assert message is not None
    return message.get_body(str), message.jms_redelivered, message.get_int_property("JMSXDeliveryCount")


def undo(savepoint: AbstractContextManager[None], work: Callable[[], object]) -> None:
    with savepoint:
        work()
        raise Undone


@pytest.mark.parametrize("way", WAYS)
class TestSending:
    def test_a_send_goes_the_way_of_its_savepoint(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        send(session, "before")
        undo(way(session.database), lambda: send(session, "undone"))
        with way(session.database):
            send(session, "kept")
        send(session, "after")
        session.commit()
        assert left(connection) == ["before", "kept", "after"]

    def test_a_connection_kept_from_an_earlier_transaction_may_set_savepoints_too(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        database = session.database
        session.commit()
        send(session, "before")
        undo(way(database), lambda: send(session, "undone"))
        session.commit()
        assert left(connection) == ["before"]

    def test_an_asynchronous_send_goes_the_way_of_its_savepoint(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        producer = session.create_producer(QUEUE)
        told: list[Message] = []

        def send_asynchronously(name: str) -> None:
            producer.send(
                session.create_text_message(name), completion_listener=lambda message, _: told.append(message)
            )

        database = session.database
        send_asynchronously("before")
        undo(way(database), lambda: send_asynchronously("undone"))
        session.commit()
        assert len(told) == 2
        assert left(connection) == ["before"]


@pytest.mark.parametrize("way", WAYS)
class TestReceiving:
    def test_messages_received_before_the_savepoint_are_acknowledged(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        put(connection, "one", "two", "three")
        consumer = session.create_consumer(QUEUE)
        assert receive_texts(consumer, 1) == ["one"]
        undo(way(session.database), lambda: session.database.execute(text("select 1")))
        session.commit()
        assert left(connection) == ["two", "three"]

    def test_messages_received_inside_are_delivered_again_in_the_same_transaction(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        put(connection, "one", "two")
        consumer = session.create_consumer(QUEUE)
        assert deliveries(consumer.receive(0)) == ("one", False, 1)
        undo(way(session.database), lambda: consumer.receive(0))
        assert deliveries(consumer.receive(0)) == ("two", True, 2)
        session.commit()
        assert left(connection) == []

    def test_messages_received_inside_are_delivered_again_after_the_commit(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        put(connection, "one", "two", "three", "four")
        consumer = session.create_consumer(QUEUE)
        database = session.database
        database.execute(text("select 1"))  # else the driver's is no savepoint, but a transaction
        undo(way(database), lambda: [consumer.receive(0), consumer.receive(0)])
        session.commit()
        assert [deliveries(message) for message in receive_all(connection.create_session().create_consumer(QUEUE))] == [
            ("one", True, 2),
            ("two", True, 2),
            ("three", False, 1),
            ("four", False, 1),
        ]

    def test_one_of_two_consumers_gets_a_message_that_a_savepoint_released(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        put(connection, *(str(number) for number in range(20)))
        consumer = session.create_consumer(QUEUE)
        database = session.database
        kept = receive_texts(consumer, 1)
        undo(way(database), lambda: [consumer.receive(0) for _ in range(5)])
        other = connection.create_session(transacted=True)
        theirs = texts_of(receive_all(other.create_consumer(QUEUE)))
        ours = texts_of(receive_all(consumer))
        session.commit()
        other.commit()
        assert sorted(kept + theirs + ours + left(connection), key=int) == [str(number) for number in range(20)]

    def test_messages_fetched_ahead_inside_a_savepoint_are_not_delivered_from_memory(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        database = session.database
        consumer = session.create_consumer(QUEUE)
        for _ in range(2):  # so that it expects many
            put(connection, *(str(number) for number in range(50)))
            assert len(receive_all(consumer)) == 50
            session.commit()
        put(connection, *(str(number) for number in range(50)))
        database.execute(text("select 1"))
        undo(way(database), lambda: consumer.receive(0))
        claimant = connection.create_session()
        theirs = texts_of(receive_all(claimant.create_consumer(QUEUE)))
        ours = texts_of(receive_all(consumer))
        session.commit()
        assert sorted(theirs + ours, key=int) == [str(number) for number in range(50)]

    def test_a_rollback_after_it_counts_each_delivery_once(
        self, connection: Connection, session: Session, way: Savepoint
    ) -> None:
        put(connection, "one", "two")
        consumer = session.create_consumer(QUEUE)
        database = session.database
        assert receive_texts(consumer, 1) == ["one"]
        undo(way(database), lambda: consumer.receive(0))
        assert consumer.receive(0) is not None
        session.rollback()
        assert [deliveries(message) for message in receive_all(connection.create_session().create_consumer(QUEUE))] == [
            ("one", True, 2),
            ("two", True, 3),
        ]


@pytest.mark.parametrize("way", SEEN_BEFORE)
def test_another_consumer_sees_at_once_that_it_was_delivered(
    connection: Connection, session: Session, way: Savepoint
) -> None:
    put(connection, "one")
    consumer = session.create_consumer(QUEUE)
    undo(way(session.database), lambda: consumer.receive(0))
    received = connection.create_session().create_consumer(QUEUE).receive(60)
    assert deliveries(received) == ("one", True, 2)
    session.commit()
    assert left(connection) == []


def test_savepoints_within_savepoints(connection: Connection, session: Session) -> None:
    put(connection, "one", "two", "three")
    consumer = session.create_consumer(QUEUE)
    database = session.database
    outer = database.begin_nested()
    assert receive_texts(consumer, 1) == ["one"]
    inner = database.begin_nested()
    assert receive_texts(consumer, 1) == ["two"]
    inner.rollback()
    outer.commit()
    send(session, "four")
    session.commit()
    assert left(connection) == ["two", "three", "four"]


def test_a_send_after_a_failed_statement_is_undone_with_its_savepoint(connection: Connection, session: Session) -> None:
    database = session.database
    nested = database.begin_nested()
    database.execute(text("set local statement_timeout = '1ms'"))
    with pytest.raises(sqlalchemy.exc.OperationalError):
        database.execute(text("select pg_sleep(1)"))
    send(session, "in a failed transaction")
    nested.rollback()
    send(session, "after")
    session.commit()
    assert left(connection) == ["after"]


def test_a_rollback_among_several_commands_is_noticed(connection: Connection, session: Session) -> None:
    put(connection, "one", "two")
    consumer = session.create_consumer(QUEUE)
    session.database.exec_driver_sql("savepoint step; select 1")
    assert receive_texts(consumer, 1) == ["one"]
    session.database.exec_driver_sql("rollback to savepoint step; select 1")
    assert deliveries(consumer.receive(0)) == ("one", True, 2)
    assert receive_texts(consumer, 1) == ["two"]
    session.commit()
    assert left(connection) == []


def test_messages_of_a_shared_transaction_are_inserted_together(session: Session, server: Server) -> None:
    database = session.database
    send(session, *map(str, range(50)))
    database.execute(text("select 1"))
    send(session, *map(str, range(50)))
    session.commit()
    assert server.rows("select count(*) from jmsql_internal.message group by cmin::text") == [(50,), (50,)]


def test_a_commit_does_not_acknowledge_messages_that_were_taken_away(
    connection: Connection, session: Session, server: Server
) -> None:
    put(connection, "one")
    consumer = session.create_consumer(QUEUE)
    assert consumer.receive(0) is not None
    # What no other transaction can do while it is locked, this one does itself, before the session deletes it.
    assert session._transaction.database is not None
    session._transaction.database.begin().connection.execute(text("delete from jmsql_internal.message"))
    send(session, "its consequence")
    with pytest.raises(TransactionRolledBackException, match="1 of 1 messages were taken away"):
        session.commit()
    assert receive_texts(consumer, 1) == ["one"]
    session.commit()
    assert server.rows("select count(*) from jmsql.messages") == [(0,)]
