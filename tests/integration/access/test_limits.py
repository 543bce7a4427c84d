"""Limits of listeners under roles with little access."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jmsql import ConnectionFactory, Queue
from jmsql.testing import wait_for
from jmsql.worker import Application, AtMost, Rate
from tests.integration.access.conftest import Plain

PATIENCE = 60.0
DECLARATION = """
    insert into jmsql_internal.listener_limit (queue_id, selector, rate, per)
    select queue_id, '', 1, 3600 from jmsql_internal.queue where name = 'secrets'
"""


def test_a_receiver_keeps_to_limits_and_declares_none_of_other_queues(
    jmsql_factory: ConnectionFactory, url_of: Callable[[str], str], plain: Plain, owner: psycopg.Connection[Any]
) -> None:
    app = Application(ConnectionFactory(url_of("receiver"), timings=jmsql_factory.timings))
    handled: list[str] = []

    @app.listener("orders", rate=Rate(2, per=3600), at_most=AtMost(1, by="tenant"))
    def handle(text: str) -> None:
        handled.append(text)

    async def run() -> None:
        async with app.running():
            with jmsql_factory.create_context() as context:
                for text in ("one", "two", "three"):
                    context.create_producer().send(Queue("orders"), text)
                context.create_producer().send(Queue("secrets"), "hidden")
            await asyncio.to_thread(wait_for, lambda: len(handled) == 2, PATIENCE)

    asyncio.run(run())
    shown = "select kind, used, is_met, waiting from jmsql.limits order by kind"
    assert owner.execute(shown).fetchall() == [("at_most", 0, False, 0), ("rate", 2, True, 1)]
    assert plain("receiver").execute(shown).fetchall() == [("at_most", 0, False, 0), ("rate", 2, True, 1)]
    assert plain("sender").execute(shown).fetchall() == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        plain("receiver").execute(DECLARATION)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        plain("sender").execute("delete from jmsql_internal.limit_usage")
