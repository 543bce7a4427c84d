"""Plans of statements, as PostgreSQL makes and runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from jmsql.store.statement import Query, Statement

SMALL_TABLES = frozenset({"queue", "pending_transaction"})
"""Tables that statements may read as a whole."""

# An index keeps all the pages it ever had. These are made at once, as in years by queues in which a few messages stay.
_BLOAT = """
    insert into {schema}.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, sequence, jms_expiration, properties)
        select 2, 5, 2, 'TextMessage', n, n, jsonb_build_object('JMSXGroupID', 'group ' || n)
        from generate_series(1, 4000) as n;
    insert into {schema}.delivery
        (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at, dead_letter_queue_id)
        select 2, 5, n, n, 7, 1, now(), 1 from generate_series(1, 4000) as n;
    insert into {schema}.delayed_message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_delivery_time)
        select 2, 5, 2, 'TextMessage', n from generate_series(1, 4000) as n;
    do $$
    declare
        name text;
    begin
        for name in select indexrelid::regclass from pg_index
                    where indrelid in (
                        '{schema}.message'::regclass, '{schema}.delivery'::regclass,
                        '{schema}.delayed_message'::regclass) loop
            execute format('alter index %s set (fillfactor = 10)', name);
            execute format('reindex index %s', name);
            execute format('alter index %s reset (fillfactor)', name);
        end loop;
    end
    $$;
    delete from {schema}.message;
    delete from {schema}.delivery;
    delete from {schema}.delayed_message;
    """

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def sql_of(statement: Statement[Any] | Query[Any], schema: str) -> str:
    """Return the SQL of a statement for a schema."""
    statement = statement.statement if isinstance(statement, Query) else statement
    return statement.encoded(schema).decode()


def bloat_indexes(connection: psycopg.Connection[Any], schema: str) -> None:
    """Give the tables of messages indexes that are larger than the tables, and nothing else."""
    connection.execute(sql.SQL(_BLOAT).format(schema=sql.Identifier(f"{schema}_internal")))


class Scan(NamedTuple):
    """How a plan reads a table."""

    kind: str
    table: str
    index_name: str | None
    condition: str


@dataclass(frozen=True)
class Plan:
    """A plan that was run."""

    root: dict[str, Any]

    @property
    def nodes(self) -> Iterator[dict[str, Any]]:
        """All its nodes."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.get("Plans", []))
            yield node

    @property
    def buffers(self) -> int:
        """How many pages it looked at."""
        return int(self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"])

    @property
    def scans(self) -> Iterator[Scan]:
        """How it reads tables."""
        for node in self.nodes:
            if "Scan" in node["Node Type"] and "Relation Name" in node:
                condition = node.get("Index Cond", node.get("TID Cond", ""))
                yield Scan(node["Node Type"], node["Relation Name"], node.get("Index Name"), condition)

    @property
    def most_rows(self) -> float:
        """The most rows that came out of any node, or that any node read and dropped."""
        counts = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
        return max(sum(_times(node["Actual Loops"], node.get(name, 0)) for name in counts) for node in self.nodes)


class PlannedStatement:
    """A statement with the generic plan that it keeps, however the tables change.

    Args:
        connection: Where it is prepared.
        name: What to call it.
        statement: The statement, with psycopg's placeholders.
    """

    def __init__(self, connection: psycopg.Connection[Any], name: str, statement: str) -> None:
        self._connection = connection
        self._name = sql.Identifier(name)
        self._parameters = list(dict.fromkeys(_PLACEHOLDER.findall(statement)))
        text = _PLACEHOLDER.sub(lambda found: f"${self._parameters.index(found[1]) + 1}", statement).replace("%%", "%")
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.execute(sql.SQL("prepare {} as {}").format(self._name, sql.SQL(text)))

    def plan(self, parameters: Mapping[str, object]) -> None:
        """Make the plan that it keeps, which preparing alone does not."""
        self._explain("explain (format json)", parameters)

    def run(self, parameters: Mapping[str, object]) -> Plan:
        """Run the statement, undo what it did, and return its plan."""
        return Plan(self._explain("explain (analyze, buffers, format json)", parameters))

    def _explain(self, explain: LiteralString, parameters: Mapping[str, object]) -> dict[str, Any]:
        values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in self._parameters)
        arguments = sql.SQL("({})").format(values) if self._parameters else sql.SQL("")
        statement = sql.SQL("{} execute {} {}").format(sql.SQL(explain), self._name, arguments)
        # Past psycopg, which would deallocate what was prepared with the rollback.
        self._connection.pgconn.exec_(b"begin")
        try:
            row = self._connection.execute(statement).fetchone()
        finally:
            self._connection.pgconn.exec_(b"rollback")
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return plan


def _times(loops: int, average: float) -> float:
    """Return how many rows that were at least; before PostgreSQL 18 the average of the loops is rounded."""
    is_rounded = loops > 1 and isinstance(average, int)
    return loops * max(0.0, average - 0.5) if is_rounded else loops * average
