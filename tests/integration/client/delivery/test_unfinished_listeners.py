"""Listeners whose call runs nothing, since it only makes a coroutine or a generator: no message counts as received."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import jmsql.asyncio
from jmsql import AcknowledgeMode, Connection, JMSException, Message, Queue, Session
from jmsql.connection_consumers import ThreadServerSessionPool
from jmsql.testing import wait_for
from tests.texts import send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection", "other_shared_connection")


async def hear(*arguments: object) -> None:
    raise AssertionError("not run")


def generate(*arguments: object) -> Iterator[None]:
    yield pytest.fail("not run")


async def generate_awaited(*arguments: object) -> AsyncIterator[None]:
    yield pytest.fail("not run")


class Listening:
    async def on_message(self, message: Message) -> None:
        await hear(message)

    async def on_exception(self, *arguments: object) -> None:
        await hear(*arguments)

    on_completion = on_exception


class CalledAsynchronously:
    async def __call__(self, *arguments: object) -> None:
        await hear(*arguments)


LISTENERS: list[Any] = [hear, functools.partial(hear), Listening(), CalledAsynchronously(), generate, generate_awaited]


@pytest.mark.parametrize("listener", LISTENERS, ids=lambda each: type(each).__name__)
def test_threads_take_no_coroutine_function_for_a_listener(
    connection: Connection, session: Session, queue: Queue, listener: Any
) -> None:
    consumer = session.create_consumer(queue)
    settings: list[Callable[[], object]] = [
        lambda: consumer.set_message_listener(listener),
        lambda: session.set_message_listener(listener),
        lambda: connection.set_exception_listener(listener),
        lambda: ThreadServerSessionPool(connection, 1, lambda _: listener),
        lambda: jmsql.JMSContext(session).create_producer().set_async(listener),
    ]
    for setting in settings:
        with pytest.raises(TypeError, match=r"is a (coroutine|generator) function"):
            setting()
    assert consumer.message_listener is None
    assert connection.exception_listener is None


@pytest.mark.parametrize("function", [hear, generate, generate_awaited])
@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO])
def test_message_whose_listener_has_run_nothing_is_not_acknowledged(
    mode_session: Session, others: Session, queue: Queue, function: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def listen(message: Message) -> object:
        calls.append(message)
        return function(message)

    send_texts(others, queue, "a")
    consumer = mode_session.create_consumer(queue)
    consumer.message_listener = listen
    wait_for(lambda: len(calls) >= 2)
    assert calls[1].jms_redelivered
    consumer.close()
    assert texts_of(others.create_browser(queue)) == ["a"]
    assert "TypeError" in caplog.text


def test_completion_listener_that_has_run_nothing_is_logged(
    session: Session, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        session.create_producer(queue).send(session.create_text_message("a"), completion_listener=lambda *_: hear())
        wait_for(lambda: "which a thread cannot await" in caplog.text)


def test_a_connection_consumer_s_pool_may_be_of_either_kind(connection: Connection, queue: Queue) -> None:
    """An `async def start` would leave the session loaded, and its messages locked."""

    class Pool:
        async def get_server_session(self) -> object:
            raise AssertionError("not run")

    errors: list[JMSException] = []
    connection.exception_listener = errors.append
    send_texts(connection.create_session(), queue, "a")
    with connection.create_connection_consumer(queue, None, Pool(), 1):  # type: ignore[arg-type]
        wait_for(lambda: errors)
    assert "which a thread cannot await" in str(errors[0])


def test_wait_for_takes_no_coroutine_for_true() -> None:
    with pytest.raises(TypeError, match="which a thread cannot await"):
        wait_for(hear)  # type: ignore[unused-coroutine]
