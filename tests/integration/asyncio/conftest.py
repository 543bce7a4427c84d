"""What the tests of `jmsql.asyncio` start from."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator

import pytest

import jmsql.asyncio as jms
from jmsql.testing import wait_for
from tests.integration.client.server import CONTROL, SESSIONS, Server, with_parameters


@pytest.fixture
def aio_factory(jmsql_asyncio_factory: jms.ConnectionFactory) -> jms.ConnectionFactory:
    """One whose connections to PostgreSQL have names that tell what they are for."""
    url = jmsql_asyncio_factory.url
    assert url is not None
    return dataclasses.replace(
        jmsql_asyncio_factory,
        url=with_parameters(url, application_name=SESSIONS),
        control_url=with_parameters(jmsql_asyncio_factory.control_url or url, application_name=CONTROL),
    )


@pytest.fixture
async def aio_connection(aio_factory: jms.ConnectionFactory) -> AsyncIterator[jms.Connection]:
    """A started connection to an empty store."""
    async with aio_factory.create_connection() as connection:
        await connection.start()
        yield connection


@pytest.fixture
async def nothing_left(server: Server) -> AsyncIterator[None]:
    """Fail if tasks, threads or connections to the server are left when the test is over."""
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("jmsql")}
    tasks = asyncio.all_tasks()
    yield

    def left() -> list[object]:
        return [
            *(thread for thread in threading.enumerate() if thread.name.startswith("jmsql") and thread not in threads),
            *(name for name in (SESSIONS, CONTROL) if server.connections(name)),
        ]

    # What is still being opened for a task that was cancelled is closed when it is open.
    async with asyncio.timeout(60):
        while running := asyncio.all_tasks() - tasks - {asyncio.current_task()}:
            await asyncio.wait(running)
    await asyncio.to_thread(wait_for, lambda: not left(), 60)
