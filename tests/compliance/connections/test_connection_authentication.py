"""Connecting with a user and a password: JMS 1.1 chapter 4.3.1. The server demands passwords (SCRAM)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from jmsql import ConnectionFactory, Destination, JMSException, JMSSecurityException, Queue, Topic, migrate
from jmsql.embedded import start_server
from tests.compliance.apis import Api
from tests.texts import receive_texts, send_texts

USER, PASSWORD = "clerk", "the right password"


@pytest.fixture(scope="module")
def server_url() -> Iterator[sqlalchemy.URL]:
    """A server with one ordinary role, which owns a database with the schema. Only its superuser needs no password."""
    directory = Path(tempfile.mkdtemp(prefix="jmsql-authentication-"))
    directory.chmod(0o711)
    with start_server(directory / "server", durable=False) as server:
        with psycopg.connect(server.url, autocommit=True) as superuser:
            superuser.execute(f"create role {USER} login password '{PASSWORD}'")
            superuser.execute(f"create database shop owner {USER}")
        url = sqlalchemy.make_url(server.url).set(database="shop")
        migrate(url.set(username=USER, password=PASSWORD).render_as_string(hide_password=False))
        yield url
    shutil.rmtree(directory)


@pytest.fixture
def factory(api: Api, server_url: sqlalchemy.URL) -> ConnectionFactory:
    return api.factory(ConnectionFactory(server_url.set(username="nobody-in-particular").render_as_string()))


@pytest.mark.requirement("connection.authentication")
@pytest.mark.case("connection-authentication-01", "connection-authentication-02")
@pytest.mark.parametrize(
    ("user", "password"),
    [(USER, "a wrong password"), ("stranger", PASSWORD), (USER, "")],
    ids=["wrong password", "unknown user", "empty password"],
)
def test_wrong_credentials_are_refused(factory: ConnectionFactory, user: str, password: str) -> None:
    with pytest.raises(JMSSecurityException, match=user) as refusal:
        factory.create_connection(user, password)
    assert isinstance(refusal.value.linked_exception, Exception)
    assert not password or password not in str(refusal.value)


@pytest.mark.requirement("connection.authentication")
@pytest.mark.parametrize(
    "destination",
    [
        pytest.param(Queue("orders"), marks=pytest.mark.case("connection-authentication-03")),
        pytest.param(Topic("news"), marks=pytest.mark.case("connection-authentication-04")),
    ],
    ids=str,
)
def test_right_credentials_give_a_connection(factory: ConnectionFactory, destination: Destination) -> None:
    with factory.create_connection(USER, PASSWORD) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(destination)
        send_texts(session, destination, "authenticated")
        assert receive_texts(consumer, 1) == ["authenticated"]


@pytest.mark.requirement("connection.authentication")
@pytest.mark.case("connection-authentication-03")
def test_credentials_of_the_url_serve_where_none_are_given(api: Api, server_url: sqlalchemy.URL) -> None:
    url = server_url.set(username=USER, password=PASSWORD).render_as_string(hide_password=False)
    with api.factory(ConnectionFactory(url)).create_connection() as connection:
        assert connection.metadata.jms_provider_name == "jmsql"


@pytest.mark.requirement("connection.authentication")
@pytest.mark.case("connection-authentication-01")
def test_password_of_the_url_is_not_tried_for_another_user(api: Api, server_url: sqlalchemy.URL) -> None:
    url = server_url.set(username="stranger", password=PASSWORD).render_as_string(hide_password=False)
    with pytest.raises(JMSException):
        api.factory(ConnectionFactory(url)).create_connection(USER)
