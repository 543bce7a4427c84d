"""Passwords are nowhere to be seen: not in an object's representation, not in a log, not in an exception."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy

import jmsql
from jmsql import AcknowledgeMode, Connection, ConnectionFactory, JMSException, Message, Queue
from jmsql.testing import wait_for
from tests.integration.client.failures.refusal import SECRET
from tests.integration.client.server import CONTROL, SESSIONS, Server, with_parameters
from tests.texts import receive, receive_texts, send_texts

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

KEEPER = "keeper_of_secrets"
PLACES: dict[str, Callable[[sqlalchemy.URL], sqlalchemy.URL]] = {
    "before the host": lambda url: url.set(username=KEEPER, password=SECRET),
    "as a parameter": lambda url: url.set(username=None, password=None).update_query_dict(
        {"user": KEEPER, "password": SECRET}
    ),
}


@pytest.fixture
def keeper(server: Server) -> Iterator[str]:
    """A role that the server asks for its password."""
    server.rows(f"create role {KEEPER} superuser login password '{SECRET}'")
    yield KEEPER
    server.rows(f"drop role {KEEPER}")


@pytest.fixture(params=list(PLACES))
def secret_factory(factory: ConnectionFactory, keeper: str, request: pytest.FixtureRequest) -> ConnectionFactory:
    """One whose URLs hold a password."""
    put = PLACES[request.param]

    def with_secret(url: str | None) -> str:
        return put(sqlalchemy.make_url(str(url))).render_as_string(hide_password=False)

    return ConnectionFactory(
        with_secret(factory.url), schema=factory.schema, control_url=with_secret(factory.control_url)
    )


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All that is logged, by anyone and at any level; nothing in it may be secret."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    for record in caplog.get_records("call"):
        assert SECRET not in record.getMessage()
        assert SECRET not in str(record.exc_text)


def shown(value: object) -> str:
    return f"{value!r} {value}"


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_objects_do_not_show_it(
    secret_factory: ConnectionFactory, server: Server, queue: Queue, mode: AcknowledgeMode
) -> None:
    with secret_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(mode is AcknowledgeMode.TRANSACTED, mode)
        producer, consumer = session.create_producer(queue), session.create_consumer(queue, "JMSPriority > 0")
        send_texts(session, queue, "a")
        message = receive(consumer)
        objects = [
            *(secret_factory, connection, connection.metadata, session, producer, consumer, message),
            session.create_browser(queue),
            *vars(connection).values(),
            *vars(session).values(),
        ]
        if session.transacted:
            objects.append(session.database)
        for each in objects:
            assert SECRET not in shown(each)
    assert SECRET not in shown(connection)
    with secret_factory.create_context() as context:
        for each in (context, context.create_producer(), context.create_consumer(queue)):
            assert SECRET not in shown(each)


@pytest.mark.usefixtures("used_just_now")
def test_losing_connections_does_not_log_it(
    secret_factory: ConnectionFactory, server: Server, queue: Queue, log: pytest.LogCaptureFixture
) -> None:
    told: list[JMSException] = []
    with secret_factory.create_connection() as connection:
        connection.exception_listener = told.append
        connection.start()
        session = connection.create_session()
        session.create_consumer(queue).message_listener = fail_on_any
        own = connection.create_session(transacted=True)
        send_texts(own, queue, "a")
        wait_for(lambda: "the listener's own mistake" in log.text)
        server.terminate(CONTROL)
        server.terminate(SESSIONS)
        wait_for(lambda: told)
        with pytest.raises(JMSException):
            send_texts(own, queue, "b")
        send_texts(own, queue, "c")
    for error in told:
        assert SECRET not in "".join(traceback.format_exception(error))


def fail_on_any(message: Message) -> None:
    raise ValueError("the listener's own mistake")


WRONG_URLS = [
    f"postgresql://postgres:{SECRET}@localhost:1/postgres",
    f"postgresql://postgres@localhost:1/postgres?password={SECRET}",
    f"postgresql://postgres@localhost:1/postgres?sslpassword={SECRET}",
    f"postgresql://postgres:{SECRET}@localhost:notaport/postgres",
    f"postgresql://postgres:{SECRET}@no.such.host.invalid/postgres",
    f"postgresql://postgres:{SECRET}@localhost:1/postgres?no_such_parameter=1",
    f"mysql://root:{SECRET}@localhost/db",
    f"postgres:{SECRET}@localhost",
    f"//{SECRET}",
]


@pytest.mark.parametrize("url", WRONG_URLS)
@pytest.mark.parametrize(
    "connect",
    [
        lambda url: ConnectionFactory(url).create_connection(),
        lambda url: ConnectionFactory(url).create_context(),
        lambda url: ConnectionFactory(url).create_connection("clerk", SECRET),
        jmsql.migrate,
    ],
    ids=["connection", "context", "credentials", "migrate"],
)
def test_errors_do_not_show_it(url: str, connect: Callable[[str], object]) -> None:
    with pytest.raises(JMSException) as failure:
        connect(url)
    assert SECRET not in "".join(traceback.format_exception(failure.value))
    cause: BaseException | None = failure.value
    while cause is not None:
        assert SECRET not in shown(cause)
        cause = cause.__cause__ or cause.__context__


def test_missing_schema_is_told_without_it(secret_factory: ConnectionFactory) -> None:
    factory = ConnectionFactory(secret_factory.url, schema="nowhere")
    with pytest.raises(JMSException, match="nowhere") as failure:
        factory.create_connection()
    assert SECRET not in "".join(traceback.format_exception(failure.value))


def test_credentials_given_replace_those_of_the_url(factory: ConnectionFactory, keeper: str, server: Server) -> None:
    url = with_parameters(str(factory.url), user="nobody", password="wrong")
    with ConnectionFactory(url, schema=factory.schema).create_connection(keeper, SECRET) as connection:
        assert server.rows("select distinct user_name from jmsql_internal.connection") == [(keeper,)]
        assert "nobody" not in repr(connection)


def test_it_serves_nevertheless(secret_factory: ConnectionFactory, queue: Queue) -> None:
    assert secret_factory.url is not None
    assert SECRET in secret_factory.url
    with ConnectionFactory(with_parameters(secret_factory.url, connect_timeout="5")).create_connection() as connection:
        assert isinstance(connection, Connection)
        connection.start()
        session = connection.create_session()
        send_texts(session, queue, "a")
        assert receive_texts(session.create_consumer(queue), 1) == ["a"]
