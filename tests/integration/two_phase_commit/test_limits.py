"""Messages of prepared transactions for a listener with a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from jmsql.worker import Application, Rate
from jmsql.xa import XASession
from tests.integration.two_phase_commit.global_transactions import XID

PATIENCE = 60.0


@pytest.mark.parametrize("commits", [True, False])
async def test_messages_count_for_a_limit_once_their_prepared_transaction_is_committed(
    factory: ConnectionFactory, xa_session: XASession, jmsql_clean_url: str, commits: bool
) -> None:
    app = Application(factory)
    handled: list[str] = []

    @app.listener("orders", concurrency=3, at_most=1, rate=Rate(3, per=3600))
    def handle(body: str) -> None:
        handled.append(body)

    def prepare_and_end() -> None:
        xa_session.tpc_begin(xa_session.xid(*XID))
        for body in ("prepared 1", "prepared 2", "prepared 3"):
            jmsql.send(xa_session, "orders", body)
        xa_session.tpc_prepare()

    def is_used(sql: psycopg.Connection[Any], starts: int, waiting: int) -> bool:
        row = sql.execute(
            "select (select coalesce(sum(used), 0) from jmsql.limits where kind = 'rate'),"
            " (select count(*) from jmsql.messages where queue = 'orders')"
        ).fetchone()
        return row == (starts, waiting)

    with psycopg.connect(jmsql_clean_url, autocommit=True) as sql:
        async with app.running():
            await asyncio.to_thread(prepare_and_end)
            with factory.create_connection() as connection:
                await asyncio.to_thread(jmsql.send, connection, "orders", "beside")
            await asyncio.to_thread(wait_for, lambda: is_used(sql, 1, 0), PATIENCE)
            assert handled == ["beside"]
            await asyncio.to_thread(xa_session.tpc_commit if commits else xa_session.tpc_rollback)
            used, waiting = (3, 1) if commits else (1, 0)
            await asyncio.to_thread(wait_for, lambda: is_used(sql, used, waiting), PATIENCE)
    assert handled == (["beside", "prepared 1", "prepared 2"] if commits else ["beside"])
