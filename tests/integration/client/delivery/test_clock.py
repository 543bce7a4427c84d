"""Messages of a client whose clock is wrong, however it sends them: they go by the server's."""

from __future__ import annotations

import threading

import pytest

import jmsql.asyncio as jms
from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, TextMessage
from tests.clocks import DELIVERY_DELAY, TIME_TO_LIVE, WRONG, require_servers_time, set_clock
from tests.texts import receive_texts

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=lambda mode: mode.name)
PATIENCE = 60.0


@pytest.fixture
def messages() -> list[TextMessage]:
    """One to be sent at once, and one with a delivery delay."""
    return [TextMessage("now"), TextMessage("later")]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch, wrong_by: float) -> None:
    """Let the clock be wrong before the client connects."""
    set_clock(monkeypatch, wrong_by)


@WRONG
@MODES
@pytest.mark.parametrize("named", [False, True], ids=["by the producer", "with each send"])
@pytest.mark.usefixtures("before")
def test_sent_by_a_producer(
    connection: Connection, jmsql_clean_url: str, messages: list[TextMessage], mode: AcknowledgeMode, named: bool
) -> None:
    queue = Queue("orders")
    with connection.create_session(mode) as session:
        producer = session.create_producer(None if named else queue)
        for message, delay in zip(messages, (0.0, DELIVERY_DELAY), strict=True):
            producer.delivery_delay = delay
            producer.send(message, queue if named else None, time_to_live=TIME_TO_LIVE)
        if session.transacted:
            session.commit()
        require_servers_time(jmsql_clean_url, *messages)
        connection.start()
        assert receive_texts(session.create_consumer(queue), 1) == ["now"]
        if session.transacted:
            session.commit()


@WRONG
@MODES
@pytest.mark.usefixtures("before")
def test_sent_asynchronously(
    connection: Connection, jmsql_clean_url: str, messages: list[TextMessage], mode: AcknowledgeMode
) -> None:
    sent = threading.Semaphore(0)
    with connection.create_session(mode) as session:
        producer = session.create_producer(Queue("orders"))
        producer.time_to_live = TIME_TO_LIVE
        for message, delay in zip(messages, (0.0, DELIVERY_DELAY), strict=True):
            producer.delivery_delay = delay
            producer.send(message, completion_listener=lambda _, error: sent.release())
        assert all(sent.acquire(timeout=PATIENCE) for _ in messages)
        if session.transacted:
            session.commit()
    require_servers_time(jmsql_clean_url, *messages)


@WRONG
@MODES
@pytest.mark.usefixtures("before")
def test_sent_by_a_context(
    factory: ConnectionFactory, jmsql_clean_url: str, messages: list[TextMessage], mode: AcknowledgeMode
) -> None:
    with factory.create_context(session_mode=mode) as context:
        for message, delay in zip(messages, (0.0, DELIVERY_DELAY), strict=True):
            producer = context.create_producer(time_to_live=TIME_TO_LIVE, delivery_delay=delay)
            producer.send(Queue("orders"), message)
        if context.transacted:
            context.commit()
    require_servers_time(jmsql_clean_url, *messages)


@WRONG
@MODES
@pytest.mark.usefixtures("before")
async def test_sent_by_a_task(
    jmsql_asyncio_factory: jms.ConnectionFactory,
    jmsql_clean_url: str,
    messages: list[TextMessage],
    mode: AcknowledgeMode,
) -> None:
    async with jmsql_asyncio_factory.create_context(session_mode=mode) as context:
        for message, delay in zip(messages, (0.0, DELIVERY_DELAY), strict=True):
            producer = context.create_producer(time_to_live=TIME_TO_LIVE, delivery_delay=delay)
            await producer.send(Queue("orders"), message)
        if context.transacted:
            await context.commit()
    require_servers_time(jmsql_clean_url, *messages)


@WRONG
def test_of_a_client_whose_clock_jumps(
    factory: ConnectionFactory,
    jmsql_clean_url: str,
    messages: list[TextMessage],
    monkeypatch: pytest.MonkeyPatch,
    wrong_by: float,
) -> None:
    with factory.create_context() as context:
        producer = context.create_producer(time_to_live=TIME_TO_LIVE)
        producer.send(Queue("orders"), messages[0])
        set_clock(monkeypatch, wrong_by)
        producer.send(Queue("orders"), messages[1])
    require_servers_time(jmsql_clean_url, *messages)
