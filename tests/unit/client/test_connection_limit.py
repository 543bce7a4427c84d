"""How many connections there are at most while sessions take them, and give them up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from jmsql.client.connection_limit import ConnectionLimit


class Session:
    """Has at most one connection, which it needs until it gives it up."""

    is_transacted = True
    is_spare = False
    link = SimpleNamespace(is_lost=False, occupation="in use by a call")

    def __init__(self) -> None:
        self.connection: str | None = None

    def accept(self, connection: str) -> None:
        self.connection = connection

    def hand_over(self) -> str:
        raise AssertionError("It is not spare.")


async def connect() -> str:
    return "connection"


async def test_a_connection_that_is_still_being_closed_counts() -> None:
    limit = ConnectionLimit[str](lambda _: asyncio.sleep(0))
    limit.most = 1
    first, second = Session(), Session()
    await limit.take(first, connect)
    waiting = asyncio.create_task(limit.take(second, connect))
    await asyncio.sleep(0)
    limit.returning(first)
    await asyncio.sleep(0)
    assert second.connection is None
    limit.returned()
    assert await waiting
    assert second.connection == "connection"


async def test_a_session_may_be_cancelled_at_the_moment_at_which_its_patience_ends() -> None:
    limit = ConnectionLimit[str](lambda _: asyncio.sleep(0))
    limit.most = 1
    await limit.take(Session(), connect)
    waiting = asyncio.create_task(limit.take(Session(), connect, patience=0.0))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(0.0, waiting.cancel)  # in the same turn of the loop
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not limit.waiting
