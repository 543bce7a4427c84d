"""Sends of one id, or one key, in transactions side by side: every order of their steps, and every end."""

from __future__ import annotations

import pytest

import jmsql
import jmsql.asyncio
from jmsql import Connection
from tests.integration.once.interleaving import Backends, schedules
from tests.integration.once.interleaving import Connection as Database

COUNTS = [(2, 24), (3, 16), (8, 5)]
"""How many transactions there are, and how many schedules are tried, of all or of those that chance gives."""

BODIES = "select text_body from jmsql_internal.message m join jmsql_internal.queue q using (queue_id) where q.name = %s"


@pytest.mark.parametrize(("number", "most"), COUNTS)
async def test_of_sends_with_one_deduplication_id_one_counts_if_any_commits(
    jmsql_clean_url: str, connection: Connection, number: int, most: int
) -> None:
    async with Backends(jmsql_clean_url, number) as backends:
        for place, (order, ends) in enumerate(schedules(number, most, seed=number)):
            name = f"orders-{place}"
            jmsql.send(connection, name, "to have the queue")

            async def send(database: Database, sender: int, name: str = name) -> None:
                await jmsql.asyncio.send(database, name, str(sender), deduplication_id="payment 17")

            committed = await backends.run(order, ends, send)
            bodies = [body for (body,) in await backends.rows(BODIES, name)]
            bodies.remove("to have the queue")
            assert len(bodies) == bool(committed), (order, ends, bodies)
            assert set(bodies) <= set(map(str, committed)), (order, ends, bodies)


@pytest.mark.parametrize("body", ["first", "latest"])
@pytest.mark.parametrize("waits", [False, True], ids=["none waits", "one waits"])
@pytest.mark.parametrize(("number", "most"), COUNTS)
async def test_of_sends_with_one_key_one_waits_if_any_commits(
    jmsql_clean_url: str, connection: Connection, number: int, most: int, waits: bool, body: str
) -> None:
    async with Backends(jmsql_clean_url, number) as backends:
        for place, (order, ends) in enumerate(schedules(number, most, seed=number)):
            name = f"customers-{place}"
            jmsql.send(connection, name, "before", coalesce="customer 5" if waits else "customer 6")

            async def send(database: Database, sender: int, name: str = name) -> None:
                await jmsql.asyncio.send(
                    database,
                    name,
                    str(sender),
                    coalesce="customer 5",
                    coalesce_body=body,  # type: ignore[arg-type]
                )

            committed = await backends.run(order, ends, send)
            bodies = [each for (each,) in await backends.rows(BODIES, name)]
            if not waits:
                bodies.remove("before")
            assert len(bodies) == bool(committed or waits), (order, ends, bodies)
            if committed and body == "latest":
                assert bodies == [str(committed[-1])], (order, ends)
