"""Deduplication ids and keys to coalesce in the transactions of applications of every kind."""

from __future__ import annotations

import psycopg
import pytest

import jmsql
import jmsql.asyncio as jms
from jmsql.testing import receive_all
from tests.integration.client.server import with_parameters
from tests.integration.enlistment.callers import ASYNCHRONOUS, KINDS, NAME, Kind, resolved


@pytest.mark.parametrize("autocommit", [False, True], ids=["transaction", "autocommit"])
@pytest.mark.parametrize("name", KINDS)
async def test_they_are_part_of_the_callers_transaction(
    name: str, autocommit: bool, psycopg_url: str, engine: object
) -> None:
    assert engine is not None  # it makes the application's table
    kind: Kind = KINDS[name]
    send = jms.send if name in ASYNCHRONOUS else jmsql.send
    async with kind(with_parameters(psycopg_url, application_name=NAME), autocommit=autocommit) as caller:
        if not autocommit:
            await caller.begin()
            await resolved(send(caller.transaction, "orders", "taken back", deduplication_id="a"))
            await resolved(send(caller.transaction, "orders", "taken back", coalesce="b"))
            await caller.rollback()
            await caller.begin()
            async with caller.savepoint(taken_back=True):
                await resolved(send(caller.transaction, "orders", "taken back", deduplication_id="a"))
        first = await resolved(send(caller.transaction, "orders", "one", deduplication_id="a"))
        assert await resolved(send(caller.transaction, "orders", "two", deduplication_id="a")) == first
        second = await resolved(send(caller.transaction, "orders", "three", coalesce="b"))
        assert await resolved(send(caller.transaction, "orders", "four", coalesce="b")) == second
        third = await resolved(send(caller.transaction, "orders", "five", coalesce="b", coalesce_body="latest"))
        assert third != second
        if not autocommit:
            await caller.commit()
    with psycopg.connect(psycopg_url, autocommit=True) as database:
        messages = receive_all(jmsql.enlist(database).create_consumer("orders"))
    assert [(message.jms_message_id, message.get_body(str)) for message in messages] == [
        (first, "one"),
        (third, "five"),
    ]
