"""Messages that are sent in transactions of applications, whose clocks are wrong: they go by the server's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
from jmsql.store.statement import Result
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.timings import InternalTimings
from tests.clocks import DELIVERY_DELAY, HOUR, TIME_TO_LIVE, WRONG, require_servers_time, set_clock
from tests.integration.enlistment.callers import KINDS, ORDERS, Kind, received, resolved
from tests.slowness import scaled


@WRONG
@pytest.mark.parametrize("autocommit", [False, True], ids=["in a transaction", "in autocommit mode"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_headers_are_by_the_servers_clock(
    kind: Kind, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch, wrong_by: float, autocommit: bool
) -> None:
    set_clock(monkeypatch, wrong_by)
    messages = [jmsql.TextMessage("now"), jmsql.TextMessage("later")]
    url = f"{jmsql_clean_url}&application_name=shop"
    async with kind(url, autocommit=autocommit) as caller:
        await caller.begin()
        for message, delay in zip(messages, (0.0, DELIVERY_DELAY), strict=True):
            producer = caller.context.create_producer(time_to_live=TIME_TO_LIVE, delivery_delay=delay)
            await resolved(producer.send(ORDERS, message))
        if not autocommit:
            await caller.commit()
        require_servers_time(jmsql_clean_url, *messages)
        await caller.begin()
        taken = await received(await caller.consumer())
        assert taken is not None
        assert taken.get_body(str) == "now"
        assert (taken.jms_timestamp, taken.jms_expiration) == (messages[0].jms_timestamp, messages[0].jms_expiration)
        if not autocommit:
            await caller.commit()


def test_a_clock_that_jumps_is_noticed_on_the_same_connection(
    engine: sqlalchemy.Engine, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [jmsql.TextMessage(str(number)) for number in range(4)]
    with orm.Session(engine) as database:
        for message, wrong_by in zip(messages, (0, HOUR, -HOUR, 0), strict=True):
            set_clock(monkeypatch, wrong_by)
            jmsql.enlist(database).create_producer(time_to_live=TIME_TO_LIVE).send(ORDERS, message)
            database.commit()
    require_servers_time(jmsql_clean_url, *messages, count=len(messages))


def test_the_server_is_asked_by_the_first_send_of_a_connection_and_once_in_an_interval(
    psycopg_url: str, engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine is not None  # it makes the backend's tables
    asked: list[object] = []
    execute = PsycopgRunner.execute

    def counting(runner: PsycopgRunner, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        if b"clock_timestamp" in statement:
            asked.append(statement)
        return execute(runner, statement, parameters)

    monkeypatch.setattr(PsycopgRunner, "execute", counting)
    timings = InternalTimings(clock_interval=scaled(0.3))
    for connections in range(1, 3):
        with psycopg.connect(psycopg_url) as connection:
            for _ in range(3):
                jmsql.enlist(connection).create_producer().send(ORDERS, "an order")
            assert len(asked) == connections
    with psycopg.connect(psycopg_url) as connection:
        producer = jmsql.enlist(connection, timings=timings).create_producer()
        producer.send(ORDERS, "an order")
        time.sleep(timings.clock_interval)
        producer.send(ORDERS, "an order")
        producer.send(ORDERS, "an order")
    assert len(asked) == 4
