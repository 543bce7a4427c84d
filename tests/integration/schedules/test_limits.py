"""Schedules that feed a listener with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from jmsql.worker import Application, Rate
from tests.integration.worker.conftest import PATIENCE

TICKS = 4


@pytest.mark.parametrize(
    ("overlap", "sent", "waiting"),
    [(True, TICKS, 2), (False, 3, 1)],  # without overlap the message that waits for the limit stands for later ticks
)
async def test_messages_of_a_schedule_wait_for_the_limit_and_no_tick_is_lost(
    jmsql_factory: ConnectionFactory,
    sql: psycopg.Connection[Any],
    set_due: Callable[[str, str], None],
    overlap: bool,
    sent: int,
    waiting: int,
) -> None:
    app = Application(jmsql_factory)
    handled: list[str] = []

    @app.listener("reports", concurrency=3, at_most=1, rate=Rate(2, per=3600))
    def handle(body: str) -> None:
        handled.append(body)

    app.schedule("report", "0 3 1 1 *", handle, "go", overlap=overlap)

    def state() -> Any:
        return sql.execute(
            "select s.sent + s.overlapped_ticks, s.sent, (select count(*) from jmsql.messages where queue = 'reports')"
            " from jmsql.schedules s where s.schedule = 'report'"
        ).fetchone()

    def is_reached(expected: tuple[int, int, int], calls: int) -> bool:
        return len(handled) == calls and state() == expected

    async with app.running():
        for ticks in range(1, TICKS + 1):
            set_due("report", "0")
            handles, now_sent = min(ticks, 2), min(ticks, sent)
            expected = ticks, now_sent, now_sent - handles
            await asyncio.to_thread(wait_for, partial(is_reached, expected, handles), PATIENCE)
    assert handled == ["go", "go"]
    assert sql.execute("select used from jmsql.limits where kind = 'rate'").fetchone() == (2,)
    assert state() == (TICKS, sent, waiting)
