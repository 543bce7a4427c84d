"""Results and states under roles with little access."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, JobFailed
from jmsql.worker import Application, Reject
from tests.integration.access.conftest import Plain

PATIENCE = 60.0


def test_a_receiver_keeps_results_that_browsing_roles_see(
    jmsql_factory: ConnectionFactory, url_of: Callable[[str], str], plain: Plain
) -> None:
    worker = ConnectionFactory(url_of("receiver"), timings=jmsql_factory.timings)
    app = Application(worker)

    @app.listener("orders", keep_result=timedelta(days=1))
    def handle(text: str) -> str:
        if text == "refused":
            raise Reject("never")
        return text.upper()

    @app.listener("orders", selector="other", transacted=False, keep_result=timedelta(days=1))
    def handle_other(text: str) -> str:
        return text.upper()

    async def run(connection: jmsql.Connection) -> tuple[str, str, str]:
        async with app.running():
            done = jmsql.send(connection, "orders", "a")
            other = jmsql.send(connection, "orders", "b", properties={"other": True})
            refused = jmsql.send(connection, "orders", "refused")
            for message_id, text in ((done, "A"), (other, "B")):
                assert await asyncio.to_thread(jmsql.result(connection, message_id).get, PATIENCE) == text
            with pytest.raises(JobFailed):
                await asyncio.to_thread(jmsql.result(connection, refused).get, PATIENCE)
        return done, other, refused

    with jmsql_factory.create_connection() as connection:
        done, other, refused = asyncio.run(run(connection))
        secret = jmsql.send(connection, "secrets", "hidden")
    seen = {
        kind: [jmsql.status(plain(kind), message_id) for message_id in (done, other, refused, secret)]
        for kind in ("receiver", "browser", "sender", "administrator")
    }
    ended = ["done", "done", "failed"]
    assert seen == {
        "receiver": [*ended, "unknown"],
        "browser": [*ended, "unknown"],
        "sender": ["unknown"] * 4,
        "administrator": [*ended, "waiting"],
    }


@pytest.mark.parametrize("kind", ["sender", "receiver", "browser"])
def test_no_role_writes_results_of_queues_that_it_may_not_receive_from(
    kind: str, jmsql_factory: ConnectionFactory, plain: Plain, owner: psycopg.Connection[Any]
) -> None:
    with jmsql_factory.create_connection() as connection:
        jmsql.send(connection, "secrets", "hidden")
    row = owner.execute("select queue_id from jmsql_internal.queue where name = 'secrets'").fetchone()
    owner.execute(
        "insert into jmsql_internal.result (message_id, queue_id, deliveries, finished_at, kept_until, state) "
        "values (gen_random_uuid(), %s, 1, now(), 'infinity', 'done')",
        row,
    )
    thief = plain(kind)
    assert thief.execute("select from jmsql.results").fetchall() == []
    for statement in (
        "insert into jmsql_internal.result values (gen_random_uuid(), %s, 1, now(), now(), now(), now(), 'done')",
        "insert into jmsql_internal.result_keeping (queue_id, seconds) values (%s, 1)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            thief.execute(statement.encode(), row)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        thief.execute("delete from jmsql_internal.result")
