"""Results of handlers, kept when a listener asks for them, and the states of all messages."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import pickle
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import jmsql
import jmsql.asyncio
from jmsql import (
    ConnectionFactory,
    JobFailed,
)
from jmsql.worker import Application, Reject
from tests.integration.worker.conftest import PATIENCE

DAY = timedelta(days=1)
KINDS = pytest.mark.parametrize(
    ("is_async", "transacted"), [(False, True), (False, False), (True, True), (True, False)]
)


@dataclasses.dataclass
class Receipt:
    """What is returned."""

    number: int
    at: dt.date


def handling(
    factory: ConnectionFactory, handle: Callable[[str], object], *, is_async: bool = False, **options: Any
) -> Application:
    """Return an application whose handler keeps what is made of a text."""
    application = Application(factory)

    def handle_text(text: str) -> object:
        return handle(text)

    async def handle_text_asynchronously(text: str) -> object:
        await asyncio.sleep(0)
        return handle(text)

    options = {"keep_result": DAY} | options
    application.listener("orders", **options)(handle_text_asynchronously if is_async else handle_text)
    return application


def fail(text: str) -> object:
    """Refuse a message for good."""
    raise Reject(f"no {text}") from ValueError("out of stock")


@KINDS
async def test_the_result_of_a_message_is_what_its_handler_returns(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    values: dict[str, object] = {
        "nothing": None,
        "text": "t\0\ud800",
        "number": 1.0,
        "document": {"b": [1, 2.5, None, True], "a": "ä"},
        "model": Receipt(7, dt.date(2026, 11, 28)),
        "others": [Decimal("1.50"), uuid.UUID(int=1), {3}],
    }
    as_json = values | {
        "model": {"number": 7, "at": "2026-11-28"},
        "others": ["1.50", str(uuid.UUID(int=1)), [3]],
    }
    application = handling(jmsql_factory, values.get, is_async=is_async, transacted=transacted)
    factory = jmsql.asyncio.ConnectionFactory(jmsql_factory.url, timings=jmsql_factory.timings)
    async with application.running(), await factory.create_connection() as connection:
        for text in values:
            message_id = await jmsql.asyncio.send(connection, "orders", text)
            result = await jmsql.asyncio.result(connection, message_id)
            assert await result.get(PATIENCE) == as_json[text]
            assert (result.state, result.deliveries, result.error, result.destination) == ("done", 1, None, "orders")
            assert result.id == message_id
            assert result.is_finished
            assert result.sent_at is not None
            assert result.started_at is not None
            assert result.finished_at is not None
            assert result.kept_until is not None
            assert result.started_at <= result.finished_at < result.kept_until - timedelta(hours=23)
            assert await jmsql.asyncio.status(connection, message_id.removeprefix("ID:").upper()) == "done"


@KINDS
async def test_a_dead_letter_leaves_its_error(
    jmsql_factory: ConnectionFactory, is_async: bool, transacted: bool
) -> None:
    application = handling(jmsql_factory, fail, is_async=is_async, transacted=transacted)
    with jmsql_factory.create_connection() as connection:
        async with application.running():
            message_id = jmsql.send(connection, "orders", "a")
            result = jmsql.result(connection, message_id)
            with pytest.raises(JobFailed, match=r"has failed after 1 delivery: .*no a") as caught:
                await asyncio.to_thread(result.get, PATIENCE)
    assert (result.state, result.value, result.deliveries, caught.value.state) == ("failed", None, 1, "failed")
    assert caught.value.error is not None
    assert "ValueError: out of stock" in caught.value.error
    again: JobFailed = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.error, again.state) == (str(caught.value), caught.value.error, "failed")


def test_an_expired_message_leaves_that(jmsql_factory: ConnectionFactory) -> None:
    with jmsql_factory.create_connection() as connection:
        never = threading.Event()
        application = handling(jmsql_factory, lambda _: never.wait(PATIENCE))

        async def run() -> str:
            async with application.running():
                jmsql.send(connection, "orders", "first")
                message_id = jmsql.send(connection, "orders", "late", time_to_live=0.05)
                result = jmsql.result(connection, message_id)
                with pytest.raises(JobFailed, match="has expired before"):
                    await asyncio.to_thread(result.get, PATIENCE)
                never.set()
                return str(result.state)

        assert asyncio.run(run()) == "expired"
