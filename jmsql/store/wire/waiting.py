"""Waiting for PostgreSQL under asyncio, in the caller's task and for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from jmsql.concurrency.tasks import Answer

T = TypeVar("T")

_INTERVAL = 1.0
"""Seconds after which a wait looks at its connection, whose socket may have been closed without a word."""


async def wait_for_server(work: Generator[Any, Any, T], socket: int) -> T:
    """Carry a conversation with the server to its end.

    psycopg's own wait may cancel the task that it runs in, to limit its time, as that of release 3.3.0 does.

    Args:
        work: The conversation: yields what it waits for, and is sent what has come.
        socket: The file descriptor of the connection.

    Raises:
        psycopg.Error: As the conversation, or the connection was closed.
    """
    # Nothing here heeds a cancellation: the wait runs behind `finished`, which keeps them away. A conversation that is
    # left half-way would leave answers on the connection, and ends with it.
    loop = asyncio.get_running_loop()
    try:
        wanted = next(work)
        while True:
            future = Answer[Ready](loop=loop)
            timer = loop.call_later(_INTERVAL, _set, future, Ready.NONE)
            if wanted & Wait.R:
                loop.add_reader(socket, _set, future, Ready.R)
            if wanted & Wait.W:
                loop.add_writer(socket, _set, future, Ready.W)
            try:
                ready = await future
            finally:
                timer.cancel()
                if wanted & Wait.R:
                    loop.remove_reader(socket)
                if wanted & Wait.W:
                    loop.remove_writer(socket)
            wanted = work.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
    except OSError as error:
        raise psycopg.OperationalError("the socket of the connection was closed") from error


def _set(future: Answer[Ready], ready: Ready) -> None:
    if not future.done():
        future.set_result(ready)
