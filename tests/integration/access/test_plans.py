"""What a role asks that policies restrict is planned once, and read by keys, as for any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.late_messages import ScanStart
from jmsql.store.receiving.receive import ask_to_dequeue, dequeue, lock
from jmsql.store.receiving.redelivery import Release, release_claimed
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.statement import Query
from tests.integration.store.plans import PlannedStatement, sql_of

PRIORITY = 5
LONG = 5000
FILL = f"""
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body, sequence)
        select %(queue_id)s, {PRIORITY}, 2, 'TextMessage', repeat('x', 200), n from generate_series(1, {LONG}) as n;
    """
CLAIM = f"""
    insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at)
        select %(queue_id)s, {PRIORITY}, n, 7, 1, now() from generate_series(1, {LONG // 2}) as n;
    """
LOWEST = [0] * PRIORITY + [LONG // 2 + 1] + [0] * (9 - PRIORITY)
RECIPIENT = Recipient(restricted=True)


def _key(queue_id: int, sequence: int = 1) -> MessageKey:
    return MessageKey(queue_id, PRIORITY, sequence)


STATEMENTS: dict[str, Callable[[int], Query[Any]]] = {
    "lock": lambda queue_id: lock(queue_id, None, ScanStart(LOWEST), 1),
    "dequeue": lambda queue_id: dequeue(queue_id, None, ScanStart(LOWEST), 1, restricted=True),
    "ask to dequeue": lambda queue_id: ask_to_dequeue(queue_id, LOWEST, 1),
    "forget deliveries": lambda queue_id: RECIPIENT.forget_deliveries([_key(queue_id)]),
    "acknowledge": lambda queue_id: RECIPIENT.acknowledge([(_key(queue_id), 7)]),
    "acknowledge with the commit": lambda queue_id: RECIPIENT.acknowledge_last([(_key(queue_id), 7)]),
    "acknowledge what lies far apart": lambda queue_id: RECIPIENT.acknowledge(
        [(_key(queue_id), 7), (_key(queue_id, LONG // 3), 7)]
    ),
    "release": lambda queue_id: release_claimed([Release(_key(queue_id), 7)], restricted=True),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_single_messages_are_planned_once_and_read_by_key(
    name: str, jmsql_clean_url: str, url_of: Callable[[str], str]
) -> None:
    with (
        psycopg.connect(url_of("receiver"), autocommit=True) as restricted,
        psycopg.connect(jmsql_clean_url, autocommit=True) as owner,
    ):
        row = owner.execute("select queue_id from jmsql_internal.queue where name = 'orders'").fetchone()
        assert row is not None
        owner.execute(FILL, {"queue_id": row[0]})
        owner.execute(CLAIM, {"queue_id": row[0]})
        query = STATEMENTS[name](row[0])
        statement = PlannedStatement(restricted, name, sql_of(query, "jmsql"))
        restricted.execute("set plan_cache_mode = auto")

        plans = [statement.run(query.parameters) for _ in range(12)]

        kept = "select generic_plans from pg_prepared_statements where name = %s"
        assert restricted.execute(kept, (name,)).fetchall() == [(7,)]
        # All other tables are small or empty here, and read as a whole where the server knows that.
        scans = [scan for scan in plans[-1].scans if scan.table in {"message", "delivery"}]
        assert not [scan for scan in scans if "Seq" in scan.kind]
        assert plans[-1].most_rows <= 60


def test_functions_that_avoid_sequential_scans_are_never_compiled(owner: psycopg.Connection[Any]) -> None:
    """Before PostgreSQL 18, a table without a fitting index then costs so much that each call compiles its plan."""
    rows = owner.execute(
        """
        select p.oid::regprocedure::text, 'jit=off' = any(p.proconfig) from pg_proc p
        where p.pronamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
          and 'enable_seqscan=off' = any(p.proconfig)
        """
    ).fetchall()
    assert len(rows) > 10
    assert [name for name, is_interpreted in rows if not is_interpreted] == []
