"""Client identifiers: JMS 1.1 chapter 4.3.2."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from operator import methodcaller

import pytest

from jmsql import Connection, ConnectionFactory, IllegalStateException, InvalidClientIDException, Queue
from jmsql.testing import receive_all

pytestmark = pytest.mark.routes


@pytest.fixture
def new_connection(jmsql_factory: ConnectionFactory) -> Iterator[Connection]:
    with jmsql_factory.create_connection() as connection:
        yield connection


@pytest.mark.requirement("connection.method.setClientID")
@pytest.mark.case("connection-client-id-07")
def test_client_id_can_be_set_on_a_new_connection(new_connection: Connection) -> None:
    assert new_connection.client_id is None
    new_connection.client_id = "first"
    assert new_connection.client_id == "first"


@pytest.mark.requirement("connection.method.setClientID")
@pytest.mark.case("connection-client-id-07")
@pytest.mark.parametrize("again", ["first", "second"])
def test_client_id_can_be_set_once(new_connection: Connection, again: str) -> None:
    new_connection.client_id = "first"
    with pytest.raises(IllegalStateException, match="'first' already"):
        new_connection.client_id = again
    assert new_connection.client_id == "first"


@pytest.mark.requirement("connection.clientID.administered")
@pytest.mark.case("connection-client-id-07")
def test_administered_client_id_cannot_be_replaced(jmsql_factory: ConnectionFactory) -> None:
    factory = dataclasses.replace(jmsql_factory, client_id="administered")
    with factory.create_connection() as connection:
        assert connection.client_id == "administered"
        with pytest.raises(IllegalStateException, match="'administered' already"):
            connection.client_id = "mine"
        assert connection.client_id == "administered"


@pytest.mark.requirement("connection.method.setClientID")
@pytest.mark.case("connection-client-id-02")
def test_client_id_of_a_closed_connection_cannot_be_set(new_connection: Connection) -> None:
    new_connection.close()
    with pytest.raises(IllegalStateException, match="closed"):
        new_connection.client_id = "late"


def register_exception_listener(connection: Connection) -> None:
    connection.exception_listener = print


def start_and_stop(connection: Connection) -> None:
    connection.start()
    connection.stop()


@pytest.mark.requirement("connection.method.setClientID")
@pytest.mark.parametrize(
    "use",
    [
        pytest.param(methodcaller("create_session"), marks=pytest.mark.case("connection-client-id-03")),
        pytest.param(register_exception_listener, marks=pytest.mark.case("connection-client-id-04")),
        pytest.param(methodcaller("start"), marks=pytest.mark.case("connection-client-id-05")),
        pytest.param(methodcaller("stop"), marks=pytest.mark.case("connection-client-id-06")),
        pytest.param(start_and_stop, marks=pytest.mark.case("connection-client-id-06")),
    ],
)
def test_client_id_comes_first(new_connection: Connection, use: Callable[[Connection], object]) -> None:
    use(new_connection)
    with pytest.raises(IllegalStateException, match="before anything else"):
        new_connection.client_id = "late"
    assert new_connection.client_id is None


@pytest.mark.requirement("connection.clientID.duplicate")
@pytest.mark.case("connection-client-id-01")
def test_client_id_in_use_is_refused(jmsql_factory: ConnectionFactory, new_connection: Connection) -> None:
    new_connection.client_id = "mine"
    session, queue = new_connection.create_session(), Queue("orders")
    session.create_producer(queue).send(session.create_text_message("kept"))
    with jmsql_factory.create_connection() as second:
        with pytest.raises(InvalidClientIDException, match="in use"):
            second.client_id = "mine"
        second.client_id = "another"
    with pytest.raises(InvalidClientIDException, match="in use"):
        dataclasses.replace(jmsql_factory, client_id="mine").create_connection()
    new_connection.start()
    assert [message.get_body(str) for message in receive_all(session.create_consumer(queue))] == ["kept"]


@pytest.mark.requirement("connection.clientID.duplicate")
@pytest.mark.case("connection-client-id-01")
def test_client_id_is_free_once_its_connection_is_closed(jmsql_factory: ConnectionFactory) -> None:
    factory = dataclasses.replace(jmsql_factory, client_id="mine")
    for _ in range(2):
        with factory.create_connection() as connection:
            assert connection.client_id == "mine"
