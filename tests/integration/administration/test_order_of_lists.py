"""Lists whose rows a page shows again and again: their order does not follow from the places of the rows on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jmsql.store.administration import diagnosis, inspection, looks, now, overview, results, running
from jmsql.store.statement import Query, Steps
from jmsql.store.wire._sync.runner import PsycopgRunner

MESSAGE_ID = "00000000-0000-4000-8000-000000000000"
TABLES = ("connection", "queue", "subscription", "consumer", "delivery", "reported_progress", "result")
# Each two rows are alike in what one thinks of first: their time, and the name of a destination or client.
ROWS = f"""
    insert into jmsql_internal.connection (host, process_id, heartbeat_at)
    select 'here', 1, clock_timestamp() from generate_series(1, 2);
    insert into jmsql_internal.topic (name) values ('prices');
    insert into jmsql_internal.queue (name, paused) select 'orders ' || n, true from generate_series(1, 3) n;
    insert into jmsql_internal.queue (name) select null from generate_series(1, 3);
    insert into jmsql_internal.subscription (queue_id, topic_id, selector, durable, shared, no_local)
    select q.queue_id, t.topic_id, 'number = ' || q.queue_id, false, false, false
    from jmsql_internal.queue q, jmsql_internal.topic t where q.name is null;
    insert into jmsql_internal.consumer (connection_id, queue_id, selector, consumers, listeners)
    select c.connection_id, q.queue_id, 'number = ' || n, 1, 'handler ' || n
    from jmsql_internal.connection c, jmsql_internal.queue q, generate_series(1, 2) n;
    insert into jmsql_internal.message (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_message_id)
    select q.queue_id, 'TextMessage', 5, 2, '{MESSAGE_ID}' from jmsql_internal.queue q, generate_series(1, 2);
    insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at)
    select m.queue_id, 5, m.sequence, m.sequence, c.connection_id, now()
    from jmsql_internal.message m
    join jmsql_internal.connection c on c.connection_id % 2 = m.sequence % 2;
    insert into jmsql_internal.reported_progress
    select d.queue_id, 5, d.sequence, d.claim_id, d.sequence % 1000 / 1000.0, '', now() from jmsql_internal.delivery d;
    insert into jmsql_internal.result (message_id, queue_id, deliveries, finished_at, kept_until, state)
    select '{MESSAGE_ID}', q.queue_id, 1, now(), now() + interval '1 hour', 'done' from jmsql_internal.queue q"""


def claims() -> Steps[list[diagnosis.ClaimHolder]]:
    """Return who holds messages, but not for how long, which grows."""
    return [each._replace(seconds=0.0) for each in (yield from diagnosis.claims())]


LISTS: dict[str, Callable[[int], Query[Any] | Steps[Any]]] = {
    "subscriptions": lambda _: inspection.subscriptions,
    "consumers of a queue": lambda queue_id: looks.consumers(queue_id, 100),
    "holders": lambda _: looks.holders(100),
    "destinations": lambda queue_id: looks.destinations(range(queue_id, queue_id + 6)),
    "consumers": lambda _: now.consumers_now(100),
    "progress": lambda _: running.running(100),
    "paused": lambda _: overview.notable,
    "results of a message": lambda _: results.whole_results(MESSAGE_ID),
    "claims": lambda _: claims(),
}
"""Each with the number of the first queue."""


def turn_around(sql: psycopg.Connection[Any]) -> None:
    """Store the rows of the tables in the reverse order."""
    sql.execute("set local session_replication_role = replica")
    for table in TABLES:
        sql.execute(
            f"create temporary table turned on commit drop as select * from jmsql_internal.{table} order by ctid desc; "
            f"delete from jmsql_internal.{table}; "
            f"insert into jmsql_internal.{table} overriding system value select * from turned; drop table turned"
        )


@pytest.mark.parametrize("name", LISTS)
def test_a_list_has_the_same_order_wherever_its_rows_are_stored(name: str, jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as sql, sql.transaction(force_rollback=True):
        for statement in ROWS.split(";"):
            sql.execute(statement)
        [(queue_id,)] = sql.execute("select min(queue_id) from jmsql_internal.queue where paused").fetchall()
        runner = PsycopgRunner(sql, "jmsql")
        before = runner.run(LISTS[name](queue_id))
        assert before
        turn_around(sql)
        assert runner.run(LISTS[name](queue_id)) == before
