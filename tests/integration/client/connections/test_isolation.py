"""Where database or role have another default than READ COMMITTED, jmsql's own connections do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, IllegalStateException, JMSException, Queue
from jmsql.store.connections.engine import connect, open_engine
from jmsql.testing import receive_all
from tests.integration.client.server import with_parameters
from tests.integration.pooler.pgbouncer import PgBouncer
from tests.texts import receive, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

QUEUE = Queue("isolation")
LEVELS = ["repeatable read", "serializable"]


@pytest.fixture
def level(request: pytest.FixtureRequest, jmsql_clean_url: str) -> Iterator[str]:
    """The isolation level that is the database's default meanwhile."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        database = sql.Identifier(connection.info.dbname)
        statement = "alter database {} set default_transaction_isolation = {}"
        connection.execute(sql.SQL(statement).format(database, sql.Literal(request.param)))
        yield request.param
        connection.execute(sql.SQL("alter database {} reset default_transaction_isolation").format(database))


@pytest.fixture
def connection(level: str, jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.mark.parametrize("level", LEVELS, indirect=True)
class TestDefaultOfTheDatabase:
    def test_a_transaction_does_not_deliver_messages_claimed_since_it_began(self, connection: Connection) -> None:
        transacted = connection.create_session(transacted=True)
        consumer = transacted.create_consumer(QUEUE)
        with connection.create_session() as sender:
            send_texts(sender, QUEUE, "one", "two")
        transacted.database.execute(text("select count(*) from pg_class"))  # takes a snapshot, if it is the only one
        claimant = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        claimed = receive(claimant.create_consumer(QUEUE))
        received = receive_all(consumer)
        claimed.acknowledge()
        transacted.commit()
        assert sorted([str(claimed.get_body(str)), *texts_of(received)]) == ["one", "two"]

    @pytest.mark.parametrize("mode", list(AcknowledgeMode))
    def test_no_session_is_above_read_committed(self, connection: Connection, mode: AcknowledgeMode) -> None:
        with connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) as session:
            database = session._transaction.database
            assert database is not None
            current = text("select current_setting('transaction_isolation')")
            assert database.begin().connection.scalar(current) == "read committed"
            database.rollback()
            assert database.begin().connection.scalar(current) == "read committed", "nor after the pool has reset it"

    @pytest.mark.parametrize("autocommit", [False, True])
    def test_no_connection_beside_the_sessions_is_above_read_committed(
        self, level: str, jmsql_clean_url: str, autocommit: bool
    ) -> None:
        current = "select current_setting('transaction_isolation')"
        with connect(jmsql_clean_url, autocommit=autocommit) as connection:
            assert connection.execute(current).fetchone() == ("read committed",)
        with psycopg.connect(jmsql_clean_url) as other:
            assert other.execute(current).fetchone() == (level,), "without jmsql's function it would be"

    def test_options_of_the_url_do_not_change_it(self, level: str, jmsql_clean_url: str) -> None:
        options = f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
        engine = open_engine(with_parameters(jmsql_clean_url, options=options))
        current = text("select current_setting('transaction_isolation')")
        with engine.connect() as connection:
            assert connection.scalar(current) == "read committed"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            assert connection.scalar(current) == "read committed"
        engine.dispose()

    def test_through_a_pooler_the_error_says_how_to_connect(
        self, level: str, jmsql_factory: ConnectionFactory, jmsql_clean_url: str, pooler: PgBouncer
    ) -> None:
        factory = replace(jmsql_factory, url=pooler.url(jmsql_clean_url), control_url=None)
        with pytest.raises(JMSException, match=f"{level}.*alter role"):
            factory.create_connection()
        pooler.forget(jmsql_clean_url)


def test_a_transaction_that_the_application_made_stricter_receives_nothing(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.start()
        with connection.create_session() as sender:
            send_texts(sender, QUEUE, "one")
        session = connection.create_session(transacted=True)
        consumer = session.create_consumer(QUEUE)
        session.database.execute(text("set transaction isolation level repeatable read"))
        with pytest.raises(IllegalStateException, match="repeatable read"):
            consumer.receive(timeout=0)
        session.rollback()
        assert texts_of([receive(consumer)]) == ["one"]
        session.commit()
