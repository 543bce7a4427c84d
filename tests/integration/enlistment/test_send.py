"""The send of one call in the transactions of applications of every kind."""

from __future__ import annotations

import psycopg
import pytest

import jmsql
import jmsql.asyncio
from jmsql.testing import drain
from tests.integration.enlistment.callers import ASYNCHRONOUS, KINDS, Kind, resolved


@pytest.mark.parametrize("name", KINDS)
async def test_it_is_part_of_the_callers_transaction(name: str, psycopg_url: str, engine: object) -> None:
    assert engine is not None  # it makes the application's table
    kind: Kind = KINDS[name]
    send = jmsql.asyncio.send if name in ASYNCHRONOUS else jmsql.send
    async with kind(f"{psycopg_url}{'&' if '?' in psycopg_url else '?'}application_name=the-application") as caller:
        await caller.begin()
        await resolved(send(caller.transaction, "orders", "taken back"))
        await caller.rollback()
        await caller.begin()
        identifier = await resolved(send(caller.transaction, "orders", {"number": 1}, priority=7))
        with psycopg.connect(psycopg_url, autocommit=True) as database:
            consumer = jmsql.enlist(database).create_consumer("orders")
            assert drain(consumer) == []
            await caller.commit()
            (message,) = drain(consumer)
    assert (message.jms_message_id, message.jms_priority, message.get_body(dict)) == (identifier, 7, {"number": 1})


async def test_an_object_of_the_other_api_is_refused(jmsql_factory: jmsql.ConnectionFactory) -> None:
    with (
        jmsql_factory.create_context() as context,
        pytest.raises(TypeError, match=r"not jmsql\.JMSContext\. Those .* use with jmsql\.enlist"),
    ):
        await jmsql.asyncio.send(context, "orders", "text")
