"""Functions whose call runs nothing, since it only makes a coroutine or a generator: no message counts as handled."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import jmsql
from jmsql import ConnectionFactory, RedeliveryPolicy
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall
from tests.integration.worker.conftest import PATIENCE, WorkerDatabase
from tests.integration.worker.test_handlers import send

ONCE = RedeliveryPolicy(maximum_deliveries=1)

ran: list[str] = []


async def work(body: str) -> None:
    await asyncio.sleep(0)
    ran.append(body)


def generate(body: str) -> Iterator[str]:
    ran.append(body)
    yield body


async def generate_awaited(body: str) -> AsyncIterator[str]:
    ran.append(body)
    yield body


def wrapped(function: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a plain wrapper, as many a decorator makes it."""

    @functools.wraps(function)
    def wrapper(body: str) -> Any:
        return function(body)

    return wrapper


def wrapped_without_await(function: Callable[[str], Awaitable[None]]) -> Callable[[str], Any]:
    @functools.wraps(function)
    async def wrapper(body: str) -> Any:
        return function(body)

    return wrapper


class CalledAsynchronously:
    async def __call__(self, body: str) -> None:
        await work(body)


REFUSED: dict[str, tuple[Callable[[str], Any], str]] = {
    "wrapped": (wrapped(work), "'coroutine'"),
    "generator": (wrapped(generate), "a generator"),
    "awaited_generator": (wrapped(generate_awaited), "a generator"),
    "partial": (functools.partial(wrapped(work)), "'coroutine'"),
}
AWAITED: dict[str, Callable[[str], Any]] = {
    "coroutine": work,
    "without_await": wrapped_without_await(work),
    "object": CalledAsynchronously(),
    "partial_object": functools.partial(CalledAsynchronously()),
}


async def test_a_message_whose_handler_has_run_nothing_is_not_taken_for_handled(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    ran.clear()
    app = Application(jmsql_factory)
    for name, (handler, _) in REFUSED.items():
        app.listener(name, redelivery=ONCE)(handler)
    for name, handler in AWAITED.items():
        app.listener(name, redelivery=ONCE)(handler)
    for name in (*REFUSED, *AWAITED):
        send(jmsql_factory, name, name)
    async with app.running():
        await asyncio.to_thread(
            wait_for, lambda: len(dead(database)) + len(ran) == len(REFUSED) + len(AWAITED), PATIENCE
        )
    assert sorted(ran) == sorted(AWAITED)
    errors = dead(database)
    assert errors.keys() == REFUSED.keys()
    for name, (_, why) in REFUSED.items():
        assert why in errors[name], errors[name]


def dead(database: WorkerDatabase) -> dict[str, str]:
    return dict(database.rows("select body, error from jmsql.dead_letters"))


@pytest.mark.parametrize("handler", [generate, generate_awaited, functools.partial(generate)])
def test_a_generator_function_is_no_handler(handler: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="must be a function or coroutine function"):
        Application().listener("orders")(handler)


# Functions around a call


async def test_functions_of_after_commit_are_awaited_where_the_handler_is(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    ran.clear()

    @contextmanager
    def around(call: HandlerCall) -> Iterator[None]:
        text = call.message.get_body(str) or ""
        function = wrapped(work) if text == "hidden" else work
        call.after_commit(functools.partial(function, text))
        yield

    app = Application(jmsql_factory, around=around)
    handled = []

    @app.listener("awaited", redelivery=ONCE)
    async def handle_awaited(body: str) -> None:
        handled.append(body)

    @app.listener("blocking", redelivery=ONCE)
    def handle(body: str) -> None:
        handled.append(body)

    for name, text in (("awaited", "awaited"), ("awaited", "hidden"), ("blocking", "blocking"), ("blocking", "hidden")):
        send(jmsql_factory, name, text)
    async with app.running():
        await asyncio.to_thread(
            wait_for,
            lambda: len(ran) == 2 and "called after the transaction failed" in caplog.text and dead(database),
            PATIENCE,
        )
    assert sorted(ran) == ["awaited", "hidden"]  # both of the coroutine function
    assert sorted(handled) == ["awaited", "hidden", "hidden"]
    assert "work is a coroutine function" in dead(database)["blocking"]


async def test_around_cannot_provide_a_coroutine(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    @contextmanager
    def around(call: HandlerCall) -> Iterator[None]:
        call.provide(jmsql.Queue, work("provided"))
        yield

    app = Application(jmsql_factory, around=around, provides=[jmsql.Queue])

    @app.listener("orders", redelivery=ONCE)
    def handle(body: str, queue: jmsql.Queue) -> None:
        raise AssertionError("not called")

    send(jmsql_factory, "orders", "a")
    async with app.running():
        await asyncio.to_thread(wait_for, lambda: dead(database), PATIENCE)
    assert "around=… provides a coroutine for Queue. Await it" in dead(database)["a"]
