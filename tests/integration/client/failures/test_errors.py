"""What goes wrong at the server reaches the caller as the JMS exception for it, with its cause and what to do."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    Queue,
    ResourceAllocationException,
    TransactionRolledBackException,
)
from jmsql.embedded import start_server
from jmsql.testing import receive_all, wait_for
from tests.integration.client.failures.refusal import SECRET, refused
from tests.integration.client.server import Server, with_parameters
from tests.prepared_data import prepare_data

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

QUEUE = Queue("orders")
CLERK = "clerk"


# Connecting

Connect = Callable[[ConnectionFactory], object]
CONNECT = pytest.mark.parametrize(
    "connect",
    [
        lambda factory: factory.create_connection(),
        lambda factory: factory.create_context(),
        lambda factory: factory.create_context(session_mode=AcknowledgeMode.TRANSACTED),
    ],
    ids=["connection", "context", "transacted context"],
)


@CONNECT
@pytest.mark.parametrize("url", ["postgresql://postgres@localhost:1/postgres", "postgresql://x@/x?host=/nowhere"])
def test_server_that_is_down(connect: Connect, url: str) -> None:
    factory = ConnectionFactory(url)
    refused(lambda: connect(factory), ResourceAllocationException, "08001", "cannot be reached; is it running")
    refused(lambda: jmsql.migrate(url), ResourceAllocationException, "08001", "cannot be reached; is it running")


@pytest.mark.parametrize("host", ["256.256.256.256", "no..name"])  # for which no server of names is asked
def test_host_that_is_unknown(host: str) -> None:
    factory = ConnectionFactory(f"postgresql://postgres@{host}/postgres")
    with pytest.raises(ResourceAllocationException, match=r"cannot be reached.*failed to resolve") as raised:
        factory.create_connection()
    assert raised.value.error_code == "08001"


def test_parameter_that_libpq_refuses() -> None:
    factory = ConnectionFactory("postgresql://postgres@localhost:1/postgres?sslmode=never")
    with pytest.raises(JMSException, match=r"does not accept a parameter of the URL.*sslmode"):
        factory.create_connection()


@CONNECT
def test_control_connection_to_a_server_that_is_down(jmsql_clean_url: str, connect: Connect) -> None:
    factory = ConnectionFactory(jmsql_clean_url, control_url="postgresql://postgres@localhost:1/postgres")
    refused(lambda: connect(factory), ResourceAllocationException, "08001", "cannot be reached")


@CONNECT
def test_database_that_is_missing(jmsql_clean_url: str, connect: Connect) -> None:
    url = sqlalchemy.make_url(jmsql_clean_url).set(database="nowhere").render_as_string(hide_password=False)
    factory = ConnectionFactory(url)
    refused(lambda: connect(factory), ResourceAllocationException, "3D000", "does not exist; create it first")
    refused(lambda: jmsql.migrate(url), ResourceAllocationException, "3D000", "does not exist; create it first")


@CONNECT
def test_schema_that_is_missing(jmsql_clean_url: str, connect: Connect) -> None:
    factory = ConnectionFactory(jmsql_clean_url, schema="nowhere")
    refused(
        lambda: connect(factory), JMSException, "3F000", "no schema 'nowhere': run `jmsql migrate --schema nowhere`"
    )


@CONNECT
@pytest.mark.parametrize(("version", "advice"), [("0000", "run `jmsql migrate`"), ("9999", "upgrade jmsql")])
def test_schema_of_another_version(
    jmsql_clean_url: str, server: Server, connect: Connect, version: str, advice: str
) -> None:
    (found,) = server.rows("select version_num from jmsql.schema_version")
    server.rows("update jmsql.schema_version set version_num = %s", version)
    try:
        factory = ConnectionFactory(jmsql_clean_url)
        refused(lambda: connect(factory), JMSException, "3F000", f"has version {version}.*{advice}")
    finally:
        server.rows("update jmsql.schema_version set version_num = %s", *found)


@CONNECT
def test_url_parameter_that_libpq_does_not_know(jmsql_clean_url: str, connect: Connect) -> None:
    factory = ConnectionFactory(with_parameters(jmsql_clean_url, no_such_parameter="1"))
    with pytest.raises(JMSException, match="no_such_parameter"):
        connect(factory)


# A server that demands passwords


@pytest.fixture(scope="module")
def strict_url() -> Iterator[sqlalchemy.URL]:
    """A server of the test's own with an ordinary role, whom it asks for a password."""
    directory = Path(tempfile.mkdtemp(prefix="jmsql-errors-"))
    directory.chmod(0o711)
    prepare_data(directory / "server")
    with start_server(directory / "server", durable=False) as server:
        with psycopg.connect(server.url, autocommit=True) as superuser:
            superuser.execute(f"create role {CLERK} login password '{SECRET}'")
        yield sqlalchemy.make_url(server.url)
    shutil.rmtree(directory)


@pytest.fixture
def superuser(strict_url: sqlalchemy.URL) -> Iterator[psycopg.Connection]:
    url = strict_url.render_as_string(hide_password=False)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection
        connection.execute(
            f"revoke all on all tables in schema jmsql, jmsql_internal from {CLERK};"
            f"revoke all on all sequences in schema jmsql, jmsql_internal from {CLERK};"
            f"revoke all on schema jmsql, jmsql_internal from {CLERK};"
            f"alter role {CLERK} connection limit -1"
        )


@pytest.fixture
def clerk(strict_url: sqlalchemy.URL, superuser: psycopg.Connection) -> ConnectionFactory:
    assert not superuser.closed  # it takes back what a test grants
    url = strict_url.set(username=CLERK, password=SECRET).render_as_string(hide_password=False)
    return ConnectionFactory(url)


def grant(superuser: psycopg.Connection, tables: str) -> None:
    superuser.execute(f"grant usage on schema jmsql, jmsql_internal to {CLERK}")
    superuser.execute(f"grant {tables} on all tables in schema jmsql, jmsql_internal to {CLERK}")
    superuser.execute(f"grant usage on all sequences in schema jmsql, jmsql_internal to {CLERK}")


@CONNECT
@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param({"username": CLERK, "password": SECRET + "!"}, id="wrong password"),
        pytest.param({"username": CLERK, "password": None}, id="no password"),
        pytest.param({"username": "stranger", "password": SECRET}, id="unknown user"),
    ],
)
def test_credentials_that_are_wrong(
    strict_url: sqlalchemy.URL, connect: Connect, credentials: dict[str, str | None]
) -> None:
    url = strict_url.set(username=credentials["username"])
    url = sqlalchemy.URL.create(
        url.drivername, url.username, credentials["password"], url.host, url.port, url.database, url.query
    )
    factory = ConnectionFactory(url.render_as_string(hide_password=False))
    refused(lambda: connect(factory), JMSSecurityException, "28000", "PostgreSQL (refused|does not know) the user")


@CONNECT
def test_role_that_may_not_log_in(superuser: psycopg.Connection, clerk: ConnectionFactory, connect: Connect) -> None:
    superuser.execute(f"alter role {CLERK} nologin")
    try:
        refused(lambda: connect(clerk), JMSSecurityException, "28000", "needs LOGIN.*is not permitted to log in")
    finally:
        superuser.execute(f"alter role {CLERK} login")


@CONNECT
def test_role_without_any_privilege(clerk: ConnectionFactory, connect: Connect) -> None:
    refused(lambda: connect(clerk), JMSSecurityException, "42501", "lacks the privilege.*schema jmsql")


def test_role_that_may_look_and_no_more(superuser: psycopg.Connection, clerk: ConnectionFactory) -> None:
    grant(superuser, "select")
    refused(clerk.create_connection, JMSSecurityException, "42501", "lacks the privilege.*table connection")


def test_role_for_which_policies_are_off(superuser: psycopg.Connection, clerk: ConnectionFactory) -> None:
    grant(superuser, "select, insert, update, delete")
    superuser.execute("alter table jmsql_internal.message enable row level security")  # as the first grant does
    superuser.execute(f"alter role {CLERK} set row_security = off")
    try:
        with clerk.create_connection() as connection, connection.create_session() as session:
            message = session.create_message()
            producer = session.create_producer(QUEUE)
            refused(lambda: producer.send(message), JMSSecurityException, "42501", "row_security is off for the role")
    finally:
        superuser.execute("alter table jmsql_internal.message disable row level security")
        superuser.execute(f"alter role {CLERK} reset row_security")


def test_role_that_may_not_send(superuser: psycopg.Connection, clerk: ConnectionFactory) -> None:
    grant(superuser, "select, insert, update, delete")
    superuser.execute(f"revoke insert, delete on jmsql_internal.message from {CLERK}")
    with clerk.create_connection() as connection:
        connection.start()
        session, transacted = connection.create_session(), connection.create_session(transacted=True)
        producer, consumer = session.create_producer(QUEUE), session.create_consumer(QUEUE)
        message = session.create_message()
        refused(lambda: producer.send(message), JMSSecurityException, "42501", "lacks the privilege.*table message")
        refused(lambda: consumer.receive(timeout=0), JMSSecurityException, "42501", "lacks the privilege")
        transacted.create_producer(QUEUE).send(message)
        refused(transacted.commit, TransactionRolledBackException, "42501", "lacks the privilege")
        assert list(session.create_browser(QUEUE)) == []


@CONNECT
def test_role_that_has_too_many_connections(
    superuser: psycopg.Connection, clerk: ConnectionFactory, connect: Connect
) -> None:
    grant(superuser, "select, insert, update, delete")
    superuser.execute(f"alter role {CLERK} connection limit 0")
    refused(lambda: connect(clerk), ResourceAllocationException, "53300", "no connection left.*too many connections")


def test_a_running_client_reads_a_changed_password_from_the_password_file(
    strict_url: sqlalchemy.URL, superuser: psycopg.Connection, tmp_path: Path
) -> None:
    superuser.execute(f"alter role {CLERK} superuser")
    passwords = tmp_path / "passwords"
    passwords.touch(0o600)
    passwords.write_text(f"*:*:*:{CLERK}:{SECRET}")
    host, port = strict_url.query["host"], strict_url.query["port"]
    url = f"postgresql://{CLERK}@/{strict_url.database}?host={host}&port={port}&passfile={passwords}"
    try:
        with ConnectionFactory(url).create_connection() as connection:
            connection.start()
            send_and_receive(connection)
            superuser.execute(f"alter role {CLERK} password 'another'")
            passwords.write_text(f"*:*:*:{CLERK}:another")
            superuser.execute("select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'clerk'")
            send_and_receive(connection)
            wait_for(lambda: has_control_connection(superuser))
    finally:
        superuser.execute(f"alter role {CLERK} nosuperuser password '{SECRET}'")


def send_and_receive(connection: Connection) -> None:
    with connection.create_session() as session, session.create_consumer(QUEUE) as consumer:
        session.create_producer(QUEUE).send(session.create_text_message("order"))
        assert consumer.receive_body(str, timeout=60) == "order"


def has_control_connection(superuser: psycopg.Connection) -> bool:
    found = superuser.execute(
        "select from jmsql_internal.connection c join pg_stat_activity a on a.pid = c.server_process_id"
    )
    return found.fetchone() is not None


# A server that cannot store more


@pytest.fixture
def full_disk(server: Server) -> Iterator[None]:
    """Inserting a message fails as it does on a disk without space."""
    server.rows(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "raise exception using errcode = 'disk_full', message = 'could not extend file: No space left on device'; "
        "end $$"
    )
    server.rows("create trigger refuse before insert on jmsql_internal.message execute function refuse()")
    yield
    server.rows("drop function refuse() cascade")


@pytest.mark.usefixtures("full_disk")
def test_disk_without_space(connection: Connection) -> None:
    session, transacted = connection.create_session(), connection.create_session(transacted=True)
    producer = session.create_producer(QUEUE)
    advice = "out of a resource.*No space left on device"
    refused(lambda: producer.send(session.create_message()), ResourceAllocationException, "53100", advice)
    transacted.create_producer(QUEUE).send(transacted.create_message())
    refused(transacted.commit, TransactionRolledBackException, "53100", advice)
    assert receive_all(session.create_consumer(QUEUE)) == []


# Destinations


def test_queue_that_was_deleted(connection: Connection, server: Server) -> None:
    session, transacted = connection.create_session(), connection.create_session(transacted=True)
    producer, second = session.create_producer(QUEUE), transacted.create_producer(QUEUE)
    server.rows("delete from jmsql_internal.queue where name = %s", QUEUE.name)
    producer.send(session.create_message())
    assert len(server.rows("select from jmsql_internal.queue where name = %s", QUEUE.name)) == 1, "it is made again"
    server.rows("delete from jmsql_internal.queue where name = %s", QUEUE.name)
    second.send(session.create_message())
    with pytest.raises(TransactionRolledBackException, match="not exist: orders") as failure:
        transacted.commit()
    assert isinstance(failure.value.linked_exception, InvalidDestinationException)
