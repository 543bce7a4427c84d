"""Arguments of the wrong kind are refused where they are given, with a message that names them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Queue,
    Session,
)

pytestmark = pytest.mark.usefixtures("shared_connection")


@pytest.mark.parametrize("mode", [7, -1, "AUTO", None, 1.5])
def test_acknowledge_mode(connection: Connection, mode: Any) -> None:
    with pytest.raises(JMSException, match="AcknowledgeMode"):
        connection.create_session(acknowledge_mode=mode)


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_acknowledge_mode_may_be_jms_s_number(connection: Connection, mode: int) -> None:
    session = connection.create_session(acknowledge_mode=mode)  # type: ignore[arg-type]
    assert session.acknowledge_mode is AcknowledgeMode(mode)


def test_transacted_session_needs_no_acknowledge_mode(connection: Connection) -> None:
    session = connection.create_session(transacted=True, acknowledge_mode=AcknowledgeMode.CLIENT)
    assert session.transacted
    assert session.acknowledge_mode is AcknowledgeMode.TRANSACTED


TIMEOUTS: list[tuple[object, type[Exception]]] = [
    (-1, ValueError),
    (-0.001, ValueError),
    (timedelta(seconds=-1), ValueError),
    (float("nan"), ValueError),
    (float("inf"), ValueError),
    ("1", TypeError),
    ([], TypeError),
    (False, TypeError),
    (True, TypeError),
]


@pytest.mark.parametrize(("timeout", "error"), TIMEOUTS)
def test_timeout_of_a_receive(session: Session, queue: Queue, timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        session.create_consumer(queue).receive(timeout=timeout)


@pytest.mark.parametrize("timeout", [0, 0.0, timedelta(0), timedelta(milliseconds=1), 0.001])
def test_timeout_of_a_receive_is_seconds_or_a_timedelta(session: Session, queue: Queue, timeout: Any) -> None:
    assert session.create_consumer(queue).receive(timeout=timeout) is None


@pytest.mark.parametrize("name", ["", "x" * 256, "nul\0", None, 42, b"orders"])
def test_name_of_a_destination(session: Session, name: Any) -> None:
    calls: list[Callable[[Any], object]] = [session.create_queue, session.create_topic]
    for call in calls:
        with pytest.raises(InvalidDestinationException, match="name"):
            call(name)


@pytest.mark.parametrize("selector", ["a =", "1", "a = 'b", "a like 1", "a" * 100_000])
def test_selector(session: Session, queue: Queue, selector: str) -> None:
    for call in (session.create_consumer, session.create_browser):
        with pytest.raises(InvalidSelectorException):
            call(queue, selector)


@pytest.mark.parametrize("client_id", ["", 42, None, b"mine"])
def test_client_identifier(factory: ConnectionFactory, client_id: Any) -> None:
    with factory.create_connection() as connection:
        with pytest.raises(InvalidClientIDException, match="client identifier"):
            connection.client_id = client_id
        assert connection.client_id is None


@pytest.mark.parametrize("client_id", ["x" * 1000, "nul\0", "\ud800", "名前", "'; --", " "])
def test_client_identifier_is_any_text(factory: ConnectionFactory, client_id: str) -> None:
    with factory.create_connection() as connection, factory.create_connection() as second:
        connection.client_id = client_id
        assert connection.client_id == client_id
        with pytest.raises(InvalidClientIDException, match="in use"):
            second.client_id = client_id


@pytest.mark.parametrize("schema", ["nowhere", "", 'with "quotes"', "x" * 64, "nul\0"])
def test_schema(factory: ConnectionFactory, schema: str) -> None:
    with pytest.raises(JMSException):
        ConnectionFactory(factory.url, schema=schema).create_connection()


@pytest.mark.parametrize("url", [42, b"postgresql://localhost", ["postgresql://localhost"]])
def test_url(url: Any) -> None:
    with pytest.raises(JMSException, match="postgresql://"):
        ConnectionFactory(url).create_connection()
