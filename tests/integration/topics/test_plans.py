"""Statements of topics take as much as they bring, among many topics, subscriptions and messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psycopg
import pytest

import jmsql
from jmsql.store.destinations.lookup import find_topic
from jmsql.store.destinations.subscriptions import find_named, lock_named
from jmsql.store.maintenance.maintenance import forget_deleted, purge_deleted
from jmsql.store.rows.columns import SEND_COLUMNS
from jmsql.store.sending.send import publish_statement
from tests.integration.store.plans import PlannedStatement, sql_of

SCHEMA = "jmsql_topic_plans"
TOPICS = 1000
SUBSCRIPTIONS = 5
"""How many each topic has; the first has a selector of its own, the second another."""
QUEUES = TOPICS * SUBSCRIPTIONS + 1
"""Those of the subscriptions, and one that is being deleted. They are few enough to be looked through."""
MESSAGES = 20_000
DELETED = 100

FILL = f"""
    insert into {SCHEMA}_internal.connection (host, process_id) values ('here', 1);
    insert into {SCHEMA}_internal.topic (name) select 'topic ' || n from generate_series(1, {TOPICS}) n;
    insert into {SCHEMA}_internal.queue (name) select null from generate_series(1, {TOPICS * SUBSCRIPTIONS});
    insert into {SCHEMA}_internal.subscription (queue_id, topic_id, client_id, name, selector, durable, shared,
        no_local)
        select n, (n - 1) / {SUBSCRIPTIONS} + 1, 'client', 'name ' || n,
               case n % {SUBSCRIPTIONS} when 1 then 'weight > 1' when 2 then 'weight > 2' end, true, false, n % 2 = 0
        from generate_series(1, {TOPICS * SUBSCRIPTIONS}) n;
    insert into {SCHEMA}_internal.subscriber (queue_id, connection_id, consumers)
        select queue_id, 1, 1 from {SCHEMA}_internal.subscription;
    insert into {SCHEMA}_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body)
        select n % 50 + 1, 5, 2, 'TextMessage', repeat('x', 200) from generate_series(1, {MESSAGES}) n;
    insert into {SCHEMA}_internal.queue (name, deleted_at) values (null, now());
    insert into {SCHEMA}_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, text_body)
        select {QUEUES}, 5, 2, 'TextMessage', 'deleted' from generate_series(1, {DELETED}) n;
    """
ANALYZE = "; ".join(
    f"analyze {SCHEMA}_internal.{table}"
    for table in ("topic", "queue", "subscription", "subscriber", "message", "delivery", "delayed_message", "body")
)
MESSAGE: dict[str, object] = {
    **{name: [None] for name, _ in SEND_COLUMNS},
    "inverse_priority": [5],
    "jms_message_id": [str(uuid.UUID(int=1))],
    "jms_delivery_mode": [2],
    "message_type": ["TextMessage"],
    "text_body": ["hello"],
    "topic": "topic 500",
    "connection_id": 1,
    "client_id": "another",
}
PUBLISH = publish_statement(("weight > 1", "weight > 2"), flush=True)
NAMED: dict[str, object] = {"durable": True, "client_id": "client", "name": "name 500"}


@dataclass(frozen=True)
class Case:
    """A statement, what it is run with, and what it may take."""

    statement: str
    parameters: Mapping[str, object]
    buffers: int
    rows: int


CASES = {
    "publish": Case(sql_of(PUBLISH, SCHEMA), {**MESSAGE, **PUBLISH.parameters}, 200, 5),
    "find a topic": Case(sql_of(find_topic("topic 500"), SCHEMA), {"name": "topic 500"}, 10, 1),
    "find a subscription": Case(sql_of(find_named, SCHEMA), {**NAMED, "connection_id": 0}, 150, 5),
    "lock a subscription": Case(sql_of(lock_named, SCHEMA), NAMED, 20, 1),
    "purge deleted queues": Case(sql_of(purge_deleted, SCHEMA), {"limit": 5000}, 2000, QUEUES),
    "forget deleted queues": Case(sql_of(forget_deleted, SCHEMA), {}, 200, QUEUES),
}


@pytest.fixture(scope="module", params=[False, True], ids=["never analyzed", "analyzed"])
def planned(request: pytest.FixtureRequest, jmsql_url: str) -> Iterator[dict[str, PlannedStatement]]:
    jmsql.migrate(jmsql_url, SCHEMA)
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute(
            f"delete from {SCHEMA}_internal.queue; alter table {SCHEMA}_internal.queue alter queue_id restart"
        )
        connection.execute(FILL)
        if request.param:
            connection.execute(ANALYZE)
        yield {name: PlannedStatement(connection, name, case.statement) for name, case in CASES.items()}
        connection.execute(f"drop schema {SCHEMA}, {SCHEMA}_internal cascade")


@pytest.mark.parametrize("name", list(CASES))
def test_a_statement_takes_as_much_as_it_brings(planned: dict[str, PlannedStatement], name: str) -> None:
    case = CASES[name]
    plan = planned[name].run(case.parameters)
    described = [
        (node["Node Type"], node.get("Relation Name"), node["Actual Rows"], node.get("Rows Removed by Filter"))
        for node in plan.nodes
    ]
    assert round(plan.most_rows) <= case.rows, described
    assert plan.buffers <= case.buffers, described
    assert {scan.table for scan in plan.scans if "Seq" in scan.kind} <= {"queue", "pg_database"}, described
