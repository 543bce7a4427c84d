"""Roles that had access before privileges were on columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

import jmsql

SCHEMA = "jmsql_upgraded"
BEFORE = "0022"
ROLES = {"send": "jmsql_test_upgraded_sender", "administer": "jmsql_test_upgraded_clerk"}


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A schema as it was then, in which two roles have access and somebody has forged what was possible."""
    jmsql.migrate(jmsql_clean_url, SCHEMA, BEFORE)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        for action, role in ROLES.items():
            database.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
            database.execute(f"select {SCHEMA}.permit(%s, array[%s], null)".encode(), [role, action])
        database.execute(
            f"""
            insert into {SCHEMA}.queue (name) values ('orders');
            insert into {SCHEMA}.queue (name, connection_id) values ('DLQ', 7);
            insert into {SCHEMA}.topic (name) values ('prices');
            insert into {SCHEMA}.subscription (queue_id, topic_id, durable, shared, no_local)
                select q.queue_id, t.topic_id, false, false, false from {SCHEMA}.queue q, {SCHEMA}.topic t
                where q.name = 'orders';
            insert into {SCHEMA}.message (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_expiration,
                                          jms_timestamp, properties)
                select queue_id, 'TextMessage', 5, 2, 9223372036854775807, -5, '[1]' from {SCHEMA}.queue
                where name = 'orders'
            """.encode()
        )
        yield database
        database.execute(f"drop schema {SCHEMA} cascade".encode())
        for role in ROLES.values():
            database.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


def may(database: psycopg.Connection[Any], action: str, table: str, privilege: str) -> bool:
    row = database.execute(
        "select has_table_privilege(%s, %s, %s)", [ROLES[action], f"{SCHEMA}.{table}", privilege]
    ).fetchone()
    return bool(row and row[0])


def test_privileges_are_those_of_now_and_what_was_forged_is_mended(
    jmsql_clean_url: str, database: psycopg.Connection[Any]
) -> None:
    assert may(database, "send", "message", "delete")
    assert may(database, "administer", "queue", "trigger")
    jmsql.migrate(jmsql_clean_url, SCHEMA)
    for table in ("message", "delivery", "subscription", "connection", "consumer", "subscriber"):
        for privilege in ("update", "delete", "truncate", "trigger", "references"):
            assert not may(database, "send", table, privilege), (table, privilege)
        assert may(database, "send", table, "select")
    for privilege in ("truncate", "trigger", "references"):
        assert not may(database, "administer", "queue", privilege)
    assert may(database, "administer", "message", "delete")
    assert database.execute(f"select from {SCHEMA}.subscription".encode()).fetchall() == []
    assert sorted(
        database.execute(f"select name, connection_id from {SCHEMA}.queue where name is not null".encode()).fetchall()
    ) == [("DLQ", None), ("orders", None)]
    [(sent_at, expires_at, properties)] = database.execute(
        f"select sent_at, expires_at, properties from {SCHEMA}.messages".encode()
    ).fetchall()
    assert (sent_at.year, expires_at.year, properties) == (1970, 9999, {})
