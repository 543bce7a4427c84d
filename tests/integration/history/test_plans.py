"""To acknowledge with history reads and writes what is acknowledged, and nothing else, however long the queue is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.store.receiving.acknowledge import (
    acknowledgements,
    delete_locked,
    delete_locked_with_history,
)
from jmsql.store.receiving.receive import dequeue_statement
from jmsql.store.statement import Statement
from tests.integration.store.plans import SMALL_TABLES, Plan, PlannedStatement, sql_of

SCHEMA = "jmsql_history_plans"
PRIORITY = 5
LONG = 20_000
BATCH = 100

FILL = f"""
    insert into {SCHEMA}_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body,
        sequence)
        select 1, {PRIORITY}, 2, 'TextMessage', repeat('x', 200), n from generate_series(1, {LONG}) as n;
    insert into {SCHEMA}_internal.delivery (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at)
        select 1, {PRIORITY}, n, 7, 1, now() from generate_series(1, {LONG // 2}) as n;
    """
EMPTY = f"delete from {SCHEMA}_internal.message; delete from {SCHEMA}_internal.delivery"
VACUUM = f"vacuum (analyze) {SCHEMA}_internal.message, {SCHEMA}_internal.delivery, {SCHEMA}_internal.queue"


@pytest.fixture(params=["long", "analyzed when empty"])
def connection(request: pytest.FixtureRequest, jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a schema with a long queue that keeps history, planned for at two moments of its life."""
    jmsql.migrate(jmsql_url, SCHEMA)
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute(f"insert into {SCHEMA}_internal.queue (name, history) values ('orders', true)")
        if request.param != "long":
            connection.execute(FILL)
            connection.execute(EMPTY)
            connection.execute(VACUUM)
        connection.execute(FILL)
        connection.execute(f"select {SCHEMA}_internal.make_history_partition((now() at time zone 'UTC')::date)")
        yield connection
        connection.execute(f"drop schema {SCHEMA}, {SCHEMA}_internal cascade")


def _buffers(plan: Plan) -> int:
    """Return how many pages a statement looked at, those of its last deletion too, which comes after the rest."""
    late = [node for node in plan.nodes if node.get("Subplan Name") == "CTE deleted"]
    return plan.buffers + sum(int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"]) for node in late)


def _check(
    connection: psycopg.Connection[Any],
    recording: Statement[Any],
    plain: Statement[Any],
    parameters: dict[str, object],
    buffers: int,
) -> None:
    """Make sure that a statement reads no table whole, and little more than the one that records nothing."""
    statement = PlannedStatement(connection, f"recording {recording.name}", sql_of(recording, SCHEMA))
    statement.run(parameters)  # makes the plans of what the function does
    plan = statement.run(parameters)
    least = _buffers(PlannedStatement(connection, f"plain {plain.name}", sql_of(plain, SCHEMA)).run(parameters))

    for scan in plan.scans:
        assert scan.table in SMALL_TABLES or "Seq" not in scan.kind, f"{recording.name} reads all of a table: {scan}"
    assert least < _buffers(plan) <= least + buffers, recording.name


def test_recording_reads_and_writes_acknowledged_messages_alone(connection: psycopg.Connection[Any]) -> None:
    claims: dict[str, object] = {
        "queue_id": 1,
        "inverse_priority": PRIORITY,
        "sequences": list(range(1, 1 + BATCH)),
        "claim_ids": [7] * BATCH,
    }
    plain, recording = (
        acknowledgements[name, "close_together", False] for name in ("acknowledge", "acknowledge_with_history")
    )
    _check(connection, recording, plain, claims, 12 * BATCH)

    rows = connection.execute(
        f"select ctid::text from {SCHEMA}_internal.message order by sequence desc limit {BATCH}"
    ).fetchall()
    locked: dict[str, object] = {
        "addresses": [address for (address,) in rows],
        "queue_ids": [1],
        "deliveries": None,
        "connection_id": 1,
    }
    _check(connection, delete_locked_with_history, delete_locked, locked, 12 * BATCH)

    one: dict[str, object] = {
        "queue_id": 1,
        "lowest": [0] * PRIORITY + [LONG // 2 + 1] + [0] * (9 - PRIORITY),
        "limit": 1,
        "connection_id": 1,
    }
    _check(connection, dequeue_statement(None, record=True), dequeue_statement(None), one, 60)
