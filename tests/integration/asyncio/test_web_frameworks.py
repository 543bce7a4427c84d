"""The web applications that the page about asyncio shows, as their frameworks run them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psycopg
import pytest
from aiohttp.test_utils import TestClient, TestServer
from psycopg.rows import scalar_row

from jmsql.testing import wait_for
from tests.documentation import programs, run

SHOWN_URL = "postgresql://shop@db/shop"
PATIENCE = 60.0


def application(framework: str, url: str) -> Any:
    """The application of the page's program for a framework."""
    [program] = [each for each in programs("docs/asyncio.md") if f"from {framework}" in each.text]
    return run(program, {SHOWN_URL: url})["app"]


@asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application that runs, as a server of ASGI runs it."""
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop") as client,
    ):
        yield client


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database, with a table of shipments."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("create table shipment (goods text)")
        yield connection
        connection.execute("drop table shipment")


async def until_shipped(database: psycopg.Connection[Any], goods: str) -> None:
    cursor = database.cursor(row_factory=scalar_row)
    await asyncio.to_thread(
        wait_for, lambda: cursor.execute("select goods from shipment").fetchall() == [goods], PATIENCE
    )


async def test_an_application_of_fastapi_asks_and_answers(jmsql_clean_url: str) -> None:
    async with client_of(application("fastapi", jmsql_clean_url)) as client:
        assert (await client.get("/quote/kite")).json() == "kite: 12.50"


async def test_an_application_of_starlette_ships_its_orders(
    jmsql_clean_url: str, database: psycopg.Connection[Any]
) -> None:
    async with client_of(application("starlette", jmsql_clean_url)) as client:
        assert (await client.post("/orders", content="a kite")).status_code == httpx2.codes.ACCEPTED
        await until_shipped(database, "a kite")


async def test_an_application_of_aiohttp_ships_its_orders(
    jmsql_clean_url: str, database: psycopg.Connection[Any]
) -> None:
    async with TestClient(TestServer(application("aiohttp", jmsql_clean_url))) as client:
        async with client.post("/orders", data="a kite") as response:
            assert response.status == httpx2.codes.ACCEPTED
        await until_shipped(database, "a kite")
