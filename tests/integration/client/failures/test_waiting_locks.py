"""An administrator waits to lock tables until a session's transaction ends, which no call of that session holds up."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

from jmsql import Connection, ConnectionFactory, JMSException, MessageConsumer, Queue, Session, TemporaryQueue, Topic
from jmsql.admin import Administration
from jmsql.testing import FAST_TIMINGS, wait_for

ORDERS = Queue("orders")
PRICES = Topic("prices")

PATIENCE = 0.2
"""Seconds for which a statement beside an open transaction waits for a lock."""

LIMIT = "40s"
"""How long the administrator waits: much longer than any call that does not wait for the administrator."""

TABLES = """
    select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'jmsql_internal' and c.relkind in ('r', 'p') and not c.relispartition
    """
WAITING = """
    select count(*) from pg_locks where not granted and mode = 'AccessExclusiveLock'
    and database = (select oid from pg_database where datname = current_database())
    """


class Administrator:
    """Waits for each table of jmsql's, and lets it go as soon as it has it."""

    def __init__(self, url: str) -> None:
        self._url = url
        with psycopg.connect(url) as connection:
            self.tables = [name for (name,) in connection.execute(TABLES)]
        self._threads = ThreadPoolExecutor(len(self.tables))
        self._locked: list[Future[None]] = []

    def begin(self) -> None:
        """Wait for all tables, which the caller's transaction has read."""
        self._locked = [self._threads.submit(self._lock, table) for table in self.tables]
        with psycopg.connect(self._url, autocommit=True) as connection:
            wait_for(lambda: connection.execute(WAITING).fetchone() == (len(self.tables),))

    def _lock(self, table: str) -> None:
        with psycopg.connect(self._url, options=f"-c statement_timeout={LIMIT}") as connection:
            name = sql.Identifier("jmsql_internal", table)
            connection.execute(sql.SQL("lock table {} in access exclusive mode").format(name))

    def end(self) -> None:
        """Return once each table was locked; fail if the administrator has given one up."""
        self._threads.shutdown()
        for locked in self._locked:
            locked.result()


@contextmanager
def administrator(url: str) -> Iterator[Administrator]:
    found = Administrator(url)
    yield found
    found.end()


@dataclasses.dataclass
class Client:
    """A client whose transacted session has received one message of two, and has a subscriber."""

    connection: Connection
    session: Session
    consumer: MessageConsumer
    subscriber: MessageConsumer
    temporary: TemporaryQueue

    def send(self) -> None:
        self.session.create_producer(Queue("another")).send(self.session.create_message())

    def publish(self) -> None:
        self.session.create_producer(Topic("another")).send(self.session.create_message())

    def roll_back_to_savepoint(self) -> None:
        self.session.database.execute(sqlalchemy.text("savepoint before"))
        self.consumer.receive(timeout=0)
        self.session.database.execute(sqlalchemy.text("rollback to before"))
        self.consumer.receive(timeout=0)

    def receive(self) -> None:
        assert self.consumer.receive(timeout=5) is not None


STEPS: dict[str, Callable[[Client], Any]] = {
    "rollback": lambda client: client.session.rollback(),
    "close the session": lambda client: client.session.close(),
    "close the connection": lambda client: client.connection.close(),
    "commit": lambda client: client.session.commit(),
    "receive": Client.receive,
    "receive by a policy": Client.receive,
    "roll back by a policy": lambda client: client.session.rollback(),
    "roll back to a savepoint": Client.roll_back_to_savepoint,
    "close a consumer": lambda client: client.consumer.close(),
    "close a subscriber": lambda client: client.subscriber.close(),
    "browse": lambda client: list(client.session.create_browser(ORDERS)),
    "make a consumer": lambda client: client.session.create_consumer(Queue("another")),
    "make a subscriber": lambda client: client.session.create_consumer(Topic("another")),
    "make a durable subscriber": lambda client: client.session.create_durable_consumer(PRICES, "name"),
    "unsubscribe": lambda client: client.session.unsubscribe("ended"),
    "send": Client.send,
    "publish": Client.publish,
    "make a temporary queue": lambda client: client.session.create_temporary_queue(),
    "delete a temporary queue": lambda client: client.temporary.delete(),
}
"""Calls with an open transaction."""

REFUSED = {*list(STEPS)[list(STEPS).index("browse") :], "receive by a policy"}
"""Calls that need another connection, and ask for the end of the transaction."""


@pytest.mark.parametrize("name", STEPS)
def test_no_call_waits_for_a_session_that_waits_for_its_transaction(jmsql_clean_url: str, name: str) -> None:
    step = STEPS[name]
    timings = dataclasses.replace(FAST_TIMINGS, lock_timeout=PATIENCE)
    factory = ConnectionFactory(jmsql_clean_url, client_id="client", timings=timings)
    with Administration(factory) as administration:
        administration.create_queue(ORDERS.name, maximum_deliveries=5 if "policy" in name else None)
    with ExitStack() as stack:
        connection = stack.enter_context(factory.create_connection())
        connection.start()
        session = connection.create_session(transacted=True)
        session.create_durable_consumer(PRICES, "ended").close()
        for _ in range(2):
            session.create_producer(ORDERS).send(session.create_message())
        session.commit()
        client = Client(
            connection,
            session,
            session.create_consumer(ORDERS),
            session.create_consumer(PRICES),
            session.create_temporary_queue(),
        )
        admin = stack.enter_context(administrator(jmsql_clean_url))
        assert client.consumer.receive(timeout=5) is not None
        for table in admin.tables:
            session.database.execute(sqlalchemy.text(f"select from jmsql_internal.{table} limit 0"))
        admin.begin()
        if name not in REFUSED:
            step(client)
        else:
            with pytest.raises(JMSException, match="End the transaction") as refused:
                step(client)
            assert refused.value.error_code == "55P03"
            assert "lock table" in str(refused.value)
        session.close()
    with factory.create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(ORDERS)
        received = consumer.receive(timeout=60)
        assert received is not None
        assert received.jms_redelivered == (name != "commit")


def test_a_rollback_is_counted_once_other_transactions_of_the_client_have_ended(jmsql_clean_url: str) -> None:
    timings = dataclasses.replace(FAST_TIMINGS, lock_timeout=PATIENCE)
    with ConnectionFactory(jmsql_clean_url, timings=timings).create_connection() as connection:
        connection.start()
        first, second = (connection.create_session(transacted=True) for _ in range(2))
        for session, queue in ((first, ORDERS), (second, Queue("others"))):
            session.create_producer(queue).send(session.create_message())
            session.commit()
            assert session.create_consumer(queue).receive(timeout=5) is not None
        with administrator(jmsql_clean_url) as admin:
            for table in admin.tables:
                second.database.execute(sqlalchemy.text(f"select from jmsql_internal.{table} limit 0"))
            admin.begin()
            first.rollback()
            second.rollback()
        with psycopg.connect(jmsql_clean_url, autocommit=True) as observer:
            counts = "select sum(delivery_count) from jmsql_internal.delivery"
            wait_for(lambda: observer.execute(counts).fetchone() == (2,))
