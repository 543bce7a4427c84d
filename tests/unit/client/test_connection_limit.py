"""How many connections there are at most while sessions take them, and give them up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

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
