"""Counting what many queues and subscriptions hold takes as long as reading it, whatever the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from jmsql.client._sync.link.opening import open_runner
from jmsql.store.administration.overview import measure
from tests.integration.store.plans import PlannedStatement

QUEUES = 500
MESSAGES = 20
"""In each queue and each subscription; every other one was delivered before, half of these are claimed."""

FILL = f"""
    insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, {QUEUES}) as n;
    insert into jmsql_internal.topic (name) values ('prices');
    with made as (insert into jmsql_internal.queue (name) select null
    from generate_series(1, {QUEUES}) as n returning queue_id)
    insert into jmsql_internal.subscription (queue_id, topic_id, name, durable, shared, no_local)
        select m.queue_id, t.topic_id, 'subscription ' || m.queue_id, true, true, false
        from made m, jmsql_internal.topic t;
    insert into jmsql_internal.message (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_timestamp,
        properties)
        select q.queue_id, 'TextMessage', 5, 2, n, '{{"JMSXGroupID": "a"}}'
        from jmsql_internal.queue q, generate_series(1, {MESSAGES}) as n;
    insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, delivery_count, claim_id, connection_id)
        select queue_id, inverse_priority, sequence, 1, case when jms_timestamp % 4 = 0 then 7 end, 1
        from jmsql_internal.message where jms_timestamp % 2 = 0;
    """


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a store whose tables of messages were analyzed while they were empty, and have filled since."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        tables = ("message", "delivery", "delayed_message")
        for table in tables:
            connection.execute(f"alter table jmsql_internal.{table} set (autovacuum_enabled = false)")
        connection.execute("vacuum (analyze)")
        connection.execute(FILL)
        connection.execute("analyze jmsql_internal.queue, jmsql_internal.subscription, jmsql_internal.topic")
        yield connection
        for table in tables:
            connection.execute(f"alter table jmsql_internal.{table} reset (autovacuum_enabled)")


@pytest.mark.parametrize(
    "statement",
    [
        "select * from jmsql.queues",
        "select * from jmsql.subscriptions",
        "select * from jmsql.messages",
        "select * from jmsql.message_groups",
    ],
)
def test_reading_a_view_takes_a_few_pages_for_each_message(database: psycopg.Connection[Any], statement: str) -> None:
    plan = PlannedStatement(database, "view", statement).run({})

    messages = 2 * QUEUES * MESSAGES
    assert plan.buffers <= 12 * messages
    assert plan.most_rows <= messages


@pytest.mark.parametrize("view", ["queues", "messages"])
def test_reading_one_queue_leaves_the_others_alone(database: psycopg.Connection[Any], view: str) -> None:
    plan = PlannedStatement(database, "view", f"select * from jmsql.{view} where queue = 'queue 7'").run({})

    assert plan.buffers <= 12 * MESSAGES + 50
    assert plan.most_rows <= QUEUES


def test_the_views_and_the_metrics_count_the_same(database: psycopg.Connection[Any], jmsql_clean_url: str) -> None:
    database.execute("update jmsql_internal.message set jms_expiration = 1 where jms_timestamp = 4")
    database.execute("update jmsql_internal.delivery set next_attempt = 'infinity' where claim_id is null")
    database.execute(
        """insert into jmsql_internal.delayed_message (queue_id, message_type, inverse_priority, jms_delivery_mode,
                                              jms_delivery_time, jms_timestamp, jms_expiration)
           select queue_id, 'TextMessage', 5, 2, 4e12, 0, e from jmsql_internal.queue, unnest(array[1, null]) as e"""
    )

    expected = {"ready": 10, "claimed": 4, "waiting": 5, "delayed": 1, "redelivered": 10}
    numbers = ", ".join(expected)
    for view in ("queues", "subscriptions"):
        counted = database.execute(f"select distinct {numbers}, expired, oldest_sent_at from jmsql.{view}".encode())
        [row] = counted.fetchall()
        assert row[:5] == tuple(expected.values())
        assert row[5] == 2
        assert row[6].timestamp() == 0
    states = database.execute("select state, count(*) from jmsql.messages where queue = 'queue 7' group by state")
    assert dict(states.fetchall()) == {"ready": 10, "claimed": 4, "waiting": 5, "delayed": 1, "expired": 2}
    with open_runner(jmsql_clean_url, "jmsql") as runner:
        found = [each for each in runner.run(measure()) if each.kind != "topic"]
    assert len(found) >= 2 * QUEUES
    for each in found:
        assert {name: getattr(each, name).number for name in expected} == expected | {"delayed": 2}
        assert each.expired == (1, False)
