"""A schema with messages in every state, upgraded to a revision of a later release: at rest, and under clients."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import alembic.command
import psycopg
import pytest
import sqlalchemy
from psycopg import sql

import jmsql
from jmsql import AcknowledgeMode, ConnectionFactory, Queue, Session, TextMessage, Timings, Topic
from jmsql.store.connections.engine import open_engine
from jmsql.store.identifier import in_schema
from jmsql.store.schema import migration
from jmsql.store.schema.version import newest_version
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.server import with_parameters
from tests.leadership import SUSPEND_MAINTENANCE
from tests.schema_revisions import alembic_configuration, become_next_release

THIS = newest_version()
ROLE = "jmsql_test_upgraded"
ORDERS = Queue("orders")
PRICES = Topic("prices")
CLIENTS = "clients of the upgraded schema"

# What a client writes without being asked, and what says which version there is.
UNSTEADY = {"connection", "consumer", "leadership", "schema_version", "subscriber", "destination_counters"}
HOT_TABLES = ("message", "delayed_message", "delivery", "body", "queue", "topic", "connection", "removal")
"""The tables that clients lock all the time: under load, a migration never gets two of them."""


class Database:
    """The schema `upgraded`, as its owner sees it."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement that is written for the schema `jmsql`."""
        cursor = self.connection.execute(in_schema(statement, "upgraded").encode(), parameters or None)
        return cursor.fetchall() if cursor.description is not None else []

    def contents(self) -> dict[str, Counter[str]]:
        """Return each row of each table as text, but for those that clients write by themselves."""
        tables = self.rows(
            "select relname from pg_class where relnamespace = 'jmsql_internal'::regnamespace and relkind in ('r', 'p')"
            " and not relispartition"
        )
        return {
            table: Counter(row for (row,) in self.rows(f"select to_jsonb(t)::text from jmsql_internal.{table} t"))
            for (table,) in tables
            if table not in UNSTEADY
        }


@pytest.fixture
def database(jmsql_url: str) -> Iterator[Database]:
    """The schema of this release, with a role that may send to `orders` and receive from it."""
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login password 'upgraded'").format(sql.Identifier(ROLE)))
        try:
            jmsql.migrate(jmsql_url, "upgraded")
            database = Database(connection)
            database.rows("select jmsql.create_queue('orders')")
            database.rows(f"select jmsql.grant_access('orders', '{ROLE}', 'send', 'receive')")
            yield database
        finally:
            connection.execute("drop schema if exists upgraded, upgraded_internal cascade")
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(ROLE)))


@pytest.fixture
def factory(database: Database, jmsql_url: str, jmsql_timings: Timings) -> ConnectionFactory:
    """The owner's clients of this release."""
    url = with_parameters(jmsql_url, application_name=CLIENTS)
    return ConnectionFactory(url, schema="upgraded", timings=jmsql_timings)


@pytest.fixture
def factory_of_role(factory: ConnectionFactory) -> ConnectionFactory:
    """Clients of the role."""
    assert factory.url is not None
    url = sqlalchemy.make_url(factory.url).set(username=ROLE, password="upgraded")
    return replace(factory, url=url.render_as_string(hide_password=False))


class BecomeNextRelease(Protocol):
    """Has the test go on as the next release."""

    def __call__(self, *, table: str = "message") -> None: ...


@pytest.fixture
def become_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BecomeNextRelease:
    return partial(become_next_release, tmp_path, monkeypatch)


def bodies(session: Session, destination: Queue | Topic, subscription: str | None = None) -> list[str | None]:
    """Receive all that is there, in a transaction that commits."""
    if subscription is None:
        consumer = session.create_consumer(destination)
    else:
        assert isinstance(destination, Topic)
        consumer = session.create_shared_durable_consumer(destination, subscription)
    with consumer:
        found = [message.get_body(str) for message in receive_all(consumer)]
    session.commit()
    return sorted(found, key=str)


def fill(database: Database, factory: ConnectionFactory) -> None:
    """Leave messages in every state in which no client holds them."""
    database.rows(SUSPEND_MAINTENANCE)  # which would remove what has expired
    database.rows("""select jmsql.create_queue('failing', '{"maximum_deliveries": 2}')""")
    database.rows("""select jmsql.create_queue('kept', '{"history": true}')""")
    with factory.create_connection() as connection:
        connection.client_id = "accounting"
        connection.start()
        session = connection.create_session(transacted=True)
        with (
            session.create_shared_durable_consumer(PRICES, "shared"),
            session.create_durable_subscriber(PRICES, "chosen", "price > 3"),
        ):
            pass
        producer = session.create_producer()
        for number in range(5):
            producer.send(session.create_text_message(f"order {number}"), ORDERS, priority=number)
            price = session.create_text_message(f"price {number}" + "0" * 5_000)  # large: it is stored once
            price.set_int_property("price", number)
            producer.send(price, PRICES)
            grouped = session.create_text_message(f"grouped {number}")
            grouped.set_string_property("JMSXGroupID", f"group {number % 2}")
            producer.send(grouped, Queue("grouped"))
        producer.send(session.create_text_message("expired"), Queue("expired"), time_to_live=0.001)
        producer.send(session.create_text_message("dead"), Queue("failing"))
        producer.send(session.create_text_message("failed once"), Queue("failing"))
        producer.send(session.create_text_message("kept"), Queue("kept"))
        producer.delivery_delay = 3600
        producer.send(session.create_text_message("scheduled"), Queue("scheduled"))
        session.commit()
        assert bodies(session, Queue("kept")) == ["kept"]
        with session.create_consumer(Queue("failing")) as consumer:
            for delivered in (2, 1):
                assert len([consumer.receive(60) for _ in range(delivered)]) == delivered
                session.rollback()
        wait_for(lambda: database.rows("select queue from jmsql.dead_letters") == [("DLQ",)])
    with database.connection.transaction():  # as a task of Spark leaves it before its driver commits
        (queue,) = database.rows("insert into jmsql_internal.queue (name) values ('written') returning queue_id")[0]
        database.rows(
            "insert into jmsql_internal.pending_transaction (write_id, queue_ids, first_sequence, last_sequence)"
            " values ('write', array[%s::integer], 0, 1000000)",
            queue,
        )
        database.rows(
            "insert into jmsql_internal.message"
            " (queue_id, message_type, inverse_priority, jms_delivery_mode, text_body)"
            " values (%s, 'TextMessage', 5, 2, 'written')",
            queue,
        )


def test_messages_in_every_state_survive_an_upgrade(
    database: Database,
    factory: ConnectionFactory,
    factory_of_role: ConnectionFactory,
    jmsql_url: str,
    become_next: BecomeNextRelease,
) -> None:
    fill(database, factory)
    with factory.create_connection() as connection, factory_of_role.create_connection() as another:
        connection.client_id = "accounting"
        connection.start()
        another.start()
        claims = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        claimed = claims.create_consumer(ORDERS, "JMSPriority = 4").receive(60)
        transaction = another.create_session(transacted=True)
        locked = transaction.create_consumer(ORDERS).receive(60)
        transaction.create_producer(ORDERS).send(transaction.create_text_message("sent before, committed after"))
        groups = connection.create_session(transacted=True)
        of_group = groups.create_consumer(Queue("grouped")).receive(60)
        assert isinstance(claimed, TextMessage)
        assert isinstance(locked, TextMessage)
        assert of_group is not None
        before = database.contents()

        become_next(table="schedule")  # open transactions keep `message`
        assert jmsql.migrate(jmsql_url, "upgraded") == THIS

        after = database.contents()
        assert {table: after[table] for table in before} == before
        claimed.acknowledge()
        transaction.commit()
        groups.rollback()
        assert (claimed.text, locked.text) == ("order 4", "order 3")

        session = connection.create_session(transacted=True)
        assert bodies(session, ORDERS) == ["order 0", "order 1", "order 2", "sent before, committed after"]
        assert bodies(session, Queue("grouped")) == [f"grouped {number}" for number in range(5)]
        assert bodies(session, Queue("failing")) == ["failed once"]
        assert bodies(session, Queue("expired")) == bodies(session, Queue("written")) == []
        database.rows("delete from jmsql_internal.pending_transaction")
        assert bodies(session, Queue("written")) == ["written"]
        prices = [f"price {number}" + "0" * 5_000 for number in range(5)]
        assert bodies(session, PRICES, "shared") == prices
        with session.create_durable_subscriber(PRICES, "chosen", "price > 3") as subscriber:
            assert [message.get_body(str) for message in receive_all(subscriber)] == prices[4:]
        session.commit()
        assert database.rows("select body from jmsql.history where destination = 'kept'") == [("kept",)]
        assert database.rows("select jmsql.retry('DLQ')") == [(1,)]
        assert bodies(session, Queue("failing")) == ["dead"]
        assert database.rows("select text_body from jmsql_internal.delayed_message") == [("scheduled",)]


class Traffic:
    """Clients that send and receive numbered messages until they are told to stop.

    Args:
        stack: Closes the connections.
        factory: For the connections of the owner.
        factory_of_role: For that of a role with access to the queue.
    """

    def __init__(self, stack: ExitStack, factory: ConnectionFactory, factory_of_role: ConnectionFactory) -> None:
        self.errors: list[Exception] = []
        self.sent: list[str] = []
        self.received: list[str | None] = []
        self.published = [0, 0]
        self._stop = threading.Event()
        owner = stack.enter_context(factory.create_connection())
        other = stack.enter_context(factory_of_role.create_connection())
        for connection in (owner, other):
            connection.set_exception_listener(self.errors.append)
        sessions = [
            owner.create_session(transacted=True),
            owner.create_session(),
            other.create_session(acknowledge_mode=AcknowledgeMode.CLIENT),
            other.create_session(transacted=True),
        ]
        owner.create_session().create_consumer(ORDERS).set_message_listener(self._note)
        owner.create_session().create_shared_durable_consumer(PRICES, "shared").set_message_listener(self._published)
        consumers = [(session, session.create_consumer(ORDERS)) for session in sessions]
        producers = [owner.create_session(transacted=True), other.create_session()]
        owner.start()
        other.start()
        self._publisher = owner.create_session()
        self._threads = [
            *(Background(partial(self._send, session)) for session in producers),
            *(Background(partial(self._receive, *pair)) for pair in consumers),
            Background(self._publish),
        ]

    def goes_on(self) -> None:
        """Return when each direction has got further."""
        sent, received, published = len(self.sent), len(self.received), self.published[1]
        wait_for(lambda: len(self.sent) > sent + 10 and len(self.received) > received + 10, timeout=60)
        wait_for(lambda: self.published[1] > published + 3, timeout=60)

    def end(self) -> None:
        """Stop sending, and return when all that was sent has been received."""
        self._stop.set()
        for thread in self._threads:
            thread.result(60)
        wait_for(lambda: len(self.received) >= len(self.sent) and self.published[0] <= self.published[1], timeout=60)

    def _send(self, session: Session) -> None:
        producer = session.create_producer(ORDERS)
        for number in itertools.takewhile(lambda _: not self._stop.is_set(), itertools.count()):
            texts = [f"{id(session)} {number} {part}" for part in range(3)]
            for text in texts:
                producer.send(session.create_text_message(text))
            if session.transacted:
                session.commit()
            self.sent += texts

    def _publish(self) -> None:
        producer = self._publisher.create_producer(PRICES)
        while not self._stop.is_set():
            producer.send(self._publisher.create_text_message("price"))
            self.published[0] += 1

    def _published(self, _message: object) -> None:
        self.published[1] += 1

    def _receive(self, session: Session, consumer: jmsql.MessageConsumer) -> None:
        while True:
            message = consumer.receive(0.05)
            if message is None:
                if self._stop.is_set():
                    return
                continue
            self._note(message)
            if session.transacted:
                session.commit()
            else:
                message.acknowledge()

    def _note(self, message: jmsql.Message) -> None:
        self.received.append(message.get_body(str))


def test_clients_go_on_while_the_schema_is_upgraded(
    database: Database,
    factory: ConnectionFactory,
    factory_of_role: ConnectionFactory,
    jmsql_url: str,
    become_next: BecomeNextRelease,
) -> None:
    """They keep their connections, whose prepared statements and cached plans are of the schema before."""
    processes = "select pid from pg_stat_activity where application_name = %s and datname = current_database()"
    with ExitStack() as stack:
        traffic = Traffic(stack, factory, factory_of_role)
        traffic.goes_on()
        before = set(database.rows(processes, CLIENTS))
        become_next()
        factory.create_connection().close()  # the next release, with the schema of this one
        traffic.goes_on()
        assert jmsql.migrate(jmsql_url, "upgraded") == THIS
        traffic.goes_on()
        factory_of_role.create_connection().close()
        assert before <= set(database.rows(processes, CLIENTS))
        traffic.end()
    assert traffic.errors == []
    assert Counter(traffic.received) == Counter(traffic.sent)
    assert traffic.published[0] == traffic.published[1]


def test_migration_gives_way_to_transactions_and_tries_again(
    database: Database, jmsql_url: str, become_next: BecomeNextRelease
) -> None:
    """While it waits for a lock, clients wait behind it: so it waits for moments."""
    become_next()
    with psycopg.connect(jmsql_url) as blocker:
        blocker.execute("lock table upgraded.schema_version in exclusive mode")
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(migration, "LONGEST_WAIT", 0.1)
            with pytest.raises(jmsql.JMSException, match=r"for 0\.1 seconds other transactions .* nothing was changed"):
                jmsql.migrate(jmsql_url, "upgraded")
        assert database.rows("select version_num from jmsql.schema_version") == [(THIS,)]
        migration_run = Background(lambda: jmsql.migrate(jmsql_url, "upgraded"))
        refused = "select pg_stat_get_db_xact_rollback(oid) from pg_database where datname = current_database()"
        rollbacks = database.rows(refused)
        wait_for(lambda: database.rows(refused) > rollbacks)
        blocker.rollback()
        assert migration_run.result() == THIS


def test_a_revision_locks_one_of_the_tables_that_clients_use(
    database: Database, jmsql_url: str, become_next: BecomeNextRelease
) -> None:
    become_next()
    locks = """
        select l.relation::regclass::text, l.mode from pg_locks l join pg_class c on c.oid = l.relation
        where l.pid <> pg_backend_pid() and c.relname = any(%s) and l.mode in (
            'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"""
    found: list[tuple[Any, ...]] = []

    with pytest.MonkeyPatch.context() as patches:
        finish = migration._disable_row_security  # the last step of a migration

        def note_locks(schema: str) -> str:
            found.extend(database.rows(locks, list(HOT_TABLES)))
            return finish(schema)

        patches.setattr(migration, "_disable_row_security", note_locks)
        jmsql.migrate(jmsql_url, "upgraded")
    assert {table for table, _ in found} == {"upgraded_internal.message"}


def test_going_back_is_refused_in_a_sentence(database: Database, jmsql_url: str) -> None:
    engine = open_engine(jmsql_url)
    try:
        with engine.begin() as connection, pytest.raises(jmsql.JMSException, match="an older release can run again"):
            alembic.command.downgrade(alembic_configuration(connection, "upgraded"), "base")
    finally:
        engine.dispose()
    assert database.rows("select version_num from jmsql.schema_version") == [(newest_version(),)]
