"""Facts that tell whether messages move: who holds some, who receives, and what waits for a person."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import psycopg

from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.engine import POOLED
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.selector_indexes import SelectorIndex, selector_indexes

__all__ = [
    "ClaimHolder",
    "ClockSkew",
    "FailingDestination",
    "Holders",
    "PreparedTransaction",
    "SelectiveConsumer",
    "TransactionHolder",
    "WaitingQueue",
]


class TransactionHolder(NamedTuple):
    """An open transaction that has sent or received messages, which nobody else sees or gets until it ends."""

    process_id: int
    application_name: str
    user_name: str | None
    state: str | None
    transaction_seconds: float
    state_seconds: float
    query: str | None


class ClaimHolder(NamedTuple):
    """A client that lives and holds messages, with the queue of the one that it has held longest."""

    connection_id: int
    client_id: str | None
    host: str
    process_id: int
    claimed: int
    seconds: float
    destination: str | None


class PreparedTransaction(NamedTuple):
    """A transaction that waits for the second phase of its commit, with all its locks."""

    identifier: str
    owner: str
    seconds: float
    holds_messages: bool

    @property
    def is_global(self) -> bool:
        """Whether a transaction manager has prepared it, by what its identifier looks like."""
        return psycopg.Xid.from_string(self.identifier).format_id is not None


class SelectiveConsumer(NamedTuple):
    """A selector with which a queue is received from, and how many messages the queue has."""

    queue: str
    selector: str
    consumers: int
    depth: int


class WaitingQueue(NamedTuple):
    """A queue with messages that nobody receives, or with dead letters."""

    queue: str
    ready: int
    oldest_seconds: float | None


class FailingDestination(NamedTuple):
    """A destination with messages that have failed with errors and are still there.

    `most_errors` is how often the worst of them failed; `waiting` is how many wait for their next attempt, the last of
    which is in `seconds`.
    """

    destination: str
    messages: int
    most_errors: int
    waiting: int
    seconds: float | None


class ClockSkew(NamedTuple):
    """How many seconds the server's clock is ahead of this machine's, and by how much that may be wrong."""

    seconds: float
    uncertainty: float


class Holders:
    """Asks the server.

    Args:
        connection: A connection in autocommit mode.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema = Schema(schema)

    def is_pooled(self) -> bool:
        """Return whether the connection leads through a pooler."""
        return bool(self._connection.sqlalchemy.info[POOLED])

    def clock_skew(self) -> ClockSkew:
        """Return how far the clocks are apart: the best of three looks."""
        looks = []
        for _ in range(3):
            started = time.time()
            [(server,)] = self._rows("select extract(epoch from clock_timestamp())::float8")
            ended = time.time()
            looks.append(ClockSkew(server - (started + ended) / 2, abs(ended - started) / 2))
        return min(looks, key=lambda look: look.uncertainty)

    def transactions(self) -> list[TransactionHolder]:
        """Return the open transactions that have sent or received messages, the oldest first."""
        rows = self._rows(
            f"""select a.pid, a.application_name, a.usename::text, a.state,
                       extract(epoch from clock_timestamp() - a.xact_start)::float8,
                       extract(epoch from clock_timestamp() - a.state_change)::float8, a.query
                from pg_stat_activity a
                where a.xact_start is not null and a.pid <> pg_backend_pid() and exists (
                    select from pg_locks l
                    where l.pid = a.pid and l.locktype = 'relation' and l.granted
                      and l.mode in ('RowShareLock', 'RowExclusiveLock')
                      and l.database = (select d.oid from pg_database d where d.datname = current_database())
                      and l.relation in ('{self._literal}.message'::regclass,
                                         '{self._literal}.delayed_message'::regclass))
                order by a.xact_start"""
        )
        return [TransactionHolder._make(row) for row in rows]

    def claims(self) -> list[ClaimHolder]:
        """Return the clients that live and hold messages, those that have held one for longest first."""
        rows = self._rows(
            f"""select c.connection_id, c.client_id, c.host, c.process_id, h.claimed,
                       extract(epoch from clock_timestamp() - h.claimed_at)::float8, coalesce(q.name, o.name)
                from (select d.connection_id, count(*) as claimed, min(d.claimed_at) as claimed_at,
                             (array_agg(d.queue_id order by d.claimed_at))[1] as queue_id
                      from {self._schema.internal}.delivery d where d.claim_id is not null group by d.connection_id) h
                join {self._schema.internal}.connection c using (connection_id)
                left join {self._schema.internal}.queue q using (queue_id)
                left join {self._schema.internal}.subscription s using (queue_id)
                left join {self._schema.internal}.topic o on o.topic_id = s.topic_id
                where {self._schema.internal}.is_connected(c.connection_id)
                order by h.claimed_at"""
        )
        return [ClaimHolder._make(row) for row in rows]

    def prepared_transactions(self) -> list[PreparedTransaction]:
        """Return the transactions of this database that wait for their second phase, the oldest first."""
        rows = self._rows(
            f"""select x.gid, x.owner::text, extract(epoch from clock_timestamp() - x.prepared)::float8,
                       exists (select from pg_locks t join pg_locks l using (virtualtransaction)
                               where t.transactionid = x.transaction and t.pid is null and l.pid is null
                                 and l.relation = '{self._literal}.message'::regclass)
                from pg_prepared_xacts x where x.database = current_database()
                order by x.prepared"""
        )
        return [PreparedTransaction._make(row) for row in rows]

    def selective_consumers(self, depth: int) -> list[SelectiveConsumer]:
        """Return the selectors with which queues are received from that have so many messages at the least."""
        rows = self._rows(
            f"""select q.name, c.selector, c.consumers, least(m.depth, %(most)s)
                from (select queue_id, selector, sum(consumers)::integer as consumers
                from {self._schema.internal}.consumer
                      where selector <> '' group by queue_id, selector) c
                join {self._schema.internal}.queue q using (queue_id)
                cross join lateral (
                    select count(*) as depth from (
                        select from {self._schema.internal}.message m
                        where m.queue_id = c.queue_id limit %(most)s) found) m
                where q.name is not null and m.depth >= %(depth)s
                order by q.name, c.selector""",
            depth=depth,
            most=max(depth, 100_000),
        )
        return [SelectiveConsumer._make(row) for row in rows]

    def unattended_queues(self) -> list[WaitingQueue]:
        """Return the queues with messages and without consumers, but for those that letters are put into."""
        rows = self._rows(
            f"""select q.name, m.ready, m.seconds
                from {self._schema.internal}.queue q
                cross join lateral (
                    select count(*) as ready,
                           case when min(f.jms_timestamp) is not null
                                then greatest(
                                    0, {self._schema.internal}.current_milliseconds() - min(f.jms_timestamp))::float8
                                     / 1000 end as seconds
                    from (select m.jms_timestamp from {self._schema.internal}.message m
                          where m.queue_id = q.queue_id
                          order by m.queue_id, m.inverse_priority, m.sequence limit 1000) f) m
                where q.name is not null and q.connection_id is null and q.name <> 'DLQ' and m.ready > 0
                  and not exists (select from {self._schema.internal}.consumer c where c.queue_id = q.queue_id)
                  and q.queue_id not in (select o.dead_letter_queue_id from {self._schema.internal}.queue o
                                         where o.dead_letter_queue_id is not null
                                         union select o.expiry_queue_id from {self._schema.internal}.queue o
                                         where o.expiry_queue_id is not null)
                order by q.name"""
        )
        return [WaitingQueue._make(row) for row in rows]

    def failing(self) -> list[FailingDestination]:
        """Return the destinations with messages whose deliveries have failed with errors, the most of them first."""
        rows = self._rows(
            f"""select coalesce(q.name, o.name), count(*), max(d.error_count),
                       count(*) filter (where d.next_attempt > statement_timestamp()),
                       extract(epoch from max(d.next_attempt) filter (
                           where d.next_attempt > statement_timestamp() and d.next_attempt < 'infinity')
                           - statement_timestamp())::float8
                from (select queue_id, error_count, next_attempt from {self._schema.internal}.delivery
                      where error_count > 0) d
                join {self._schema.internal}.queue q using (queue_id)
                left join {self._schema.internal}.subscription s using (queue_id)
                left join {self._schema.internal}.topic o on o.topic_id = s.topic_id
                where q.deleted_at is null
                group by coalesce(q.name, o.name)
                order by count(*) desc, 1"""
        )
        return [FailingDestination._make(row) for row in rows]

    def dead_letters(self) -> list[WaitingQueue]:
        """Return the queues that have dead letters, with their number."""
        rows = self._rows(
            f"""select queue, count(*), extract(epoch from clock_timestamp() - min(died_at))::float8
                from {self._schema}.dead_letters group by queue order by queue"""
        )
        return [WaitingQueue._make(row) for row in rows]

    def selector_indexes(self) -> list[SelectorIndex]:
        """Return the indexes for selectors."""
        with jms_errors("examining the server"):
            return selector_indexes(self._connection, self._schema)

    @property
    def _literal(self) -> str:
        return self._schema.internal.replace("'", "''")

    def _rows(self, statement: str, **parameters: object) -> list[tuple[Any, ...]]:
        with jms_errors("examining the server"):
            return self._connection.rows(statement, **parameters)
