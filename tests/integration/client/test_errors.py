"""What goes wrong at the server reaches the caller as the JMS exception for it, with its cause and what to do."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy import orm

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
    Session,
    TransactionRolledBackException,
)
from jmsql.embedded import start_server
from jmsql.testing import drain
from tests.background import Background
from tests.integration.client.server import Server, with_parameters
from tests.texts import receive, receive_texts, send_texts, texts_of

QUEUE = Queue("orders")
CLERK, PASSWORD = "clerk", "s3cr3t-m4rk3r"


def refused(call: Callable[[], object], kind: type[JMSException], code: str | None, advice: str) -> None:
    """Make a call that fails, and see that its exception says everything and shows no password."""
    with pytest.raises(JMSException, match=advice) as failure:
        call()
    assert type(failure.value) is kind
    assert failure.value.error_code == code
    cause: BaseException | None = failure.value
    while isinstance(cause, JMSException):
        assert PASSWORD not in str(cause)
        cause, last = cause.linked_exception, cause
        assert cause is None or isinstance(cause, JMSException | psycopg.Error | sqlalchemy.exc.SQLAlchemyError), last


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
    refused(lambda: connect(factory), JMSException, "3F000", "no schema 'nowhere': run `jmsql migrate`")


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
    with start_server(directory / "server", durable=False) as server:
        jmsql.migrate(server.url)
        with psycopg.connect(server.url, autocommit=True) as superuser:
            superuser.execute(f"create role {CLERK} login password '{PASSWORD}'")
        yield sqlalchemy.make_url(server.url)
    shutil.rmtree(directory)


@pytest.fixture
def superuser(strict_url: sqlalchemy.URL) -> Iterator[psycopg.Connection]:
    url = strict_url.render_as_string(hide_password=False)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection
        connection.execute(
            f"revoke all on all tables in schema jmsql from {CLERK};"
            f"revoke all on all sequences in schema jmsql from {CLERK};"
            f"revoke all on schema jmsql from {CLERK};"
            f"alter role {CLERK} connection limit -1"
        )


@pytest.fixture
def clerk(strict_url: sqlalchemy.URL, superuser: psycopg.Connection) -> ConnectionFactory:
    assert not superuser.closed  # it takes back what a test grants
    url = strict_url.set(username=CLERK, password=PASSWORD).render_as_string(hide_password=False)
    return ConnectionFactory(url)


def grant(superuser: psycopg.Connection, tables: str) -> None:
    superuser.execute(f"grant usage on schema jmsql to {CLERK}")
    superuser.execute(f"grant {tables} on all tables in schema jmsql to {CLERK}")
    superuser.execute(f"grant usage on all sequences in schema jmsql to {CLERK}")


@CONNECT
@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param({"username": CLERK, "password": PASSWORD + "!"}, id="wrong password"),
        pytest.param({"username": CLERK, "password": None}, id="no password"),
        pytest.param({"username": "stranger", "password": PASSWORD}, id="unknown user"),
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
def test_role_without_any_privilege(clerk: ConnectionFactory, connect: Connect) -> None:
    refused(lambda: connect(clerk), JMSSecurityException, "42501", "lacks the privilege.*schema jmsql")


def test_role_that_may_look_and_no_more(superuser: psycopg.Connection, clerk: ConnectionFactory) -> None:
    grant(superuser, "select")
    refused(clerk.create_connection, JMSSecurityException, "42501", "lacks the privilege.*table connection")


def test_role_that_may_not_send(superuser: psycopg.Connection, clerk: ConnectionFactory) -> None:
    grant(superuser, "select, insert, update, delete")
    superuser.execute(f"revoke insert, delete on jmsql.message from {CLERK}")
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


# A server that goes away


def test_server_that_stops_while_sessions_are_in_use(caplog: pytest.LogCaptureFixture) -> None:
    directory = Path(tempfile.mkdtemp(prefix="jmsql-errors-"))
    directory.chmod(0o711)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        server = stack.enter_context(start_server(directory / "server", durable=False))
        jmsql.migrate(server.url)
        connection = stack.enter_context(ConnectionFactory(server.url).create_connection())
        connection.start()
        sessions = {
            mode: connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode) for mode in AcknowledgeMode
        }
        consumers = {}
        for mode, session in sessions.items():
            send_texts(session, Queue(mode.name), "a", "b")
            consumers[mode] = session.create_consumer(Queue(mode.name))
        held = {mode: receive(consumer) for mode, consumer in consumers.items()}
        server.stop()

        for mode, session in sessions.items():
            producer = session.create_producer(Queue(mode.name))
            calls: list[Callable[[], object]] = [
                lambda session=session, mode=mode: list(session.create_browser(Queue(mode.name))),  # type: ignore[misc]
                lambda session=session: session.create_consumer(Queue("new")),  # type: ignore[misc]
                lambda session=session: session.create_producer(Queue("new")),  # type: ignore[misc]
            ]
            if mode is AcknowledgeMode.TRANSACTED:
                producer.send(session.create_message())
                calls += [lambda session=session: session.database, session.commit]  # type: ignore[misc]
            else:
                calls += [lambda producer=producer: producer.send(Session.create_message(session))]  # type: ignore[misc]  # noqa: B023
            if mode is AcknowledgeMode.CLIENT:
                calls += [held[mode].acknowledge, session.recover]
            if mode in {AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED}:
                calls.append(lambda mode=mode: consumers[mode].receive(timeout=0))  # type: ignore[misc]
            for call in calls:
                with pytest.raises(JMSException, match=r"PostgreSQL|server|rolled back") as failure:
                    call()
                assert failure.value.error_code is not None
            if session.transacted:
                session.rollback()
        connection.close()
    assert "Traceback" not in caplog.text


# Limits on time

LIMITS = pytest.mark.parametrize(
    ("limit", "code"), [("lock_timeout", "55P03"), ("statement_timeout", "57014")], ids=["lock", "statement"]
)


@pytest.fixture
def limited(jmsql_factory: ConnectionFactory, limit: str) -> Iterator[Connection]:
    """A connection whose statements wait for others no longer than a moment."""
    url = with_parameters(str(jmsql_factory.url), options=f"-c{limit}=50ms")
    factory = ConnectionFactory(url, schema=jmsql_factory.schema, control_url=jmsql_factory.url)
    with factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def blocker(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """An administrator's transaction, which can lock tables."""
    with psycopg.connect(jmsql_clean_url) as connection:
        yield connection
        connection.rollback()


def lock(blocker: psycopg.Connection, *tables: str) -> None:
    for table in tables:
        blocker.execute(sql.SQL("lock table {} in access exclusive mode").format(sql.Identifier("jmsql", table)))


@LIMITS
@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_statement_that_takes_too_long(
    limited: Connection, blocker: psycopg.Connection, others: Session, mode: AcknowledgeMode, limit: str, code: str
) -> None:
    session = limited.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
    send_texts(others, QUEUE, "a", "b", "c", "d", "e", "f")
    producer, consumer = session.create_producer(QUEUE), session.create_consumer(QUEUE)
    browser = session.create_browser(QUEUE)
    held = receive(consumer)
    session.create_producer(Queue("another")).close()
    if session.transacted:
        session.commit()

    lock(blocker, "message", "delivery", "queue")
    calls: list[Callable[[], object]] = [
        lambda: list(browser),
        lambda: [consumer.receive(timeout=0) for _ in range(3)],
        lambda: session.create_producer(Queue("new")),
        lambda: session.create_consumer(Queue("new")),
    ]
    if not session.transacted:
        calls.append(lambda: producer.send(session.create_message()))
    if mode is AcknowledgeMode.CLIENT:
        calls += [held.acknowledge, session.recover]
    for call in calls:
        if session.transacted:
            session.rollback()
        refused(call, JMSException, code, limit)
    if session.transacted:
        session.rollback()
        producer.send(session.create_message())
        refused(session.commit, TransactionRolledBackException, code, limit)

    blocker.rollback()
    send_texts(session, Queue("another"), "x")
    assert texts_of(drain(others.create_consumer(Queue("another")))) == ["x"]


@LIMITS
def test_control_connection_may_have_a_limit_too(jmsql_clean_url: str, others: Session, limit: str, code: str) -> None:
    url = with_parameters(jmsql_clean_url, options=f"-c{limit}=5s")
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(QUEUE)
        receiving = Background(lambda: receive_texts(consumer, 1))
        receiving.wait_until_it_waits()
        send_texts(others, QUEUE, "a")
        assert receiving.result() == ["a"]


# A server that cannot store more


@pytest.fixture
def full_disk(server: Server) -> Iterator[None]:
    """Inserting a message fails as it does on a disk without space."""
    server.rows(
        "create function refuse() returns trigger language plpgsql as $$ begin "
        "raise exception using errcode = 'disk_full', message = 'could not extend file: No space left on device'; "
        "end $$"
    )
    server.rows("create trigger refuse before insert on jmsql.message execute function refuse()")
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
    assert drain(session.create_consumer(QUEUE)) == []


# Destinations


def test_queue_that_was_deleted(connection: Connection, server: Server) -> None:
    session, transacted = connection.create_session(), connection.create_session(transacted=True)
    producer, second = session.create_producer(QUEUE), transacted.create_producer(QUEUE)
    server.rows("delete from jmsql.queue where name = %s", QUEUE.name)
    refused(lambda: producer.send(session.create_message()), InvalidDestinationException, None, "not exist: orders")
    second.send(session.create_message())
    with pytest.raises(TransactionRolledBackException, match="not exist: orders") as failure:
        transacted.commit()
    assert isinstance(failure.value.linked_exception, InvalidDestinationException)


# The caller's own transactions

Enlist = Callable[[str, ExitStack], object]


def sqlalchemy_connection(url: str, stack: ExitStack) -> sqlalchemy.Connection:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    stack.callback(engine.dispose)
    return stack.enter_context(engine.connect())


def sqlalchemy_session(url: str, stack: ExitStack) -> orm.Session:
    return stack.enter_context(orm.Session(sqlalchemy_connection(url, stack)))


def psycopg_connection(url: str, stack: ExitStack) -> psycopg.Connection:
    return stack.enter_context(psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1)))


TRANSACTIONS = pytest.mark.parametrize(
    "transaction", [sqlalchemy_connection, sqlalchemy_session, psycopg_connection], ids=lambda make: make.__name__
)


def enlisted_calls(context: jmsql.JMSContext) -> list[Callable[[], object]]:
    return [
        lambda: context.create_producer().send(QUEUE, "text"),
        lambda: context.create_consumer(QUEUE).receive(timeout=0),
        lambda: list(context.create_browser(QUEUE)),
    ]


@TRANSACTIONS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisting_where_the_schema_is_missing(jmsql_clean_url: str, transaction: Enlist, number: int) -> None:
    with ExitStack() as stack:
        context = jmsql.enlist(transaction(jmsql_clean_url, stack), schema="nowhere")  # type: ignore[call-overload]
        refused(enlisted_calls(context)[number], JMSException, "42P01", "jmsql migrate")
        refused(
            enlisted_calls(context)[number],
            TransactionRolledBackException,
            "25P02",
            "an earlier statement failed",
        )


@TRANSACTIONS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisting_in_a_connection_that_was_cut(
    jmsql_clean_url: str, server: Server, others: Session, transaction: Enlist, number: int
) -> None:
    with ExitStack() as stack:
        url = with_parameters(jmsql_clean_url, application_name="the-application")
        own = transaction(url, stack)
        context = jmsql.enlist(own)  # type: ignore[call-overload]
        context.create_producer().send(QUEUE, "lost")
        assert server.terminate("the-application") == 1
        with pytest.raises(JMSException, match="connection") as failure:
            enlisted_calls(context)[number]()
        assert failure.value.error_code in {"57P01", "08006"}
        assert isinstance(failure.value.linked_exception, psycopg.Error)
        with pytest.raises(JMSException):
            enlisted_calls(context)[number]()

        if isinstance(own, sqlalchemy.Connection | orm.Session):
            own.rollback()  # as after any error; SQLAlchemy then connects again
            context.create_producer().send(QUEUE, "kept")
            own.commit()
            assert texts_of(drain(others.create_consumer(QUEUE))) == ["kept"]


@TRANSACTIONS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisting_in_what_is_closed(jmsql_clean_url: str, transaction: Enlist, number: int) -> None:
    with ExitStack() as stack:
        closed = transaction(jmsql_clean_url, stack)
        context = jmsql.enlist(closed)  # type: ignore[call-overload]
        if isinstance(closed, orm.Session):
            closed.connection().close()
        else:
            assert isinstance(closed, sqlalchemy.Connection | psycopg.Connection)
            closed.close()
        with pytest.raises(JMSException, match="closed") as failure:
            enlisted_calls(context)[number]()
        assert isinstance(failure.value.linked_exception, psycopg.Error | sqlalchemy.exc.SQLAlchemyError)


@TRANSACTIONS
@LIMITS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisted_statement_that_takes_too_long(
    jmsql_clean_url: str, blocker: psycopg.Connection, transaction: Enlist, limit: str, code: str, number: int
) -> None:
    with ExitStack() as stack:
        url = with_parameters(jmsql_clean_url, options=f"-c{limit}=50ms")
        context = jmsql.enlist(transaction(url, stack))  # type: ignore[call-overload]
        lock(blocker, "message", "queue")
        refused(enlisted_calls(context)[number], JMSException, code, limit)


@pytest.mark.parametrize("nothing", [None, "postgresql://localhost", object()])
def test_what_is_no_transaction_is_not_joined(nothing: object) -> None:
    with pytest.raises(TypeError, match="psycopg 3 connection"):
        jmsql.enlist(nothing)  # type: ignore[call-overload]
