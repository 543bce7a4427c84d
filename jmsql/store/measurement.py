"""Measurements of a store: how much waits where, how fast it moves, and which clients hold something.

For `jmsql top` and for metrics, which look again and again. Counting reads all messages of the store, so the pause
between two looks is several times as long as a look takes.
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.engine import POOLED
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema
from jmsql.store.migration import check_schema

__all__ = ["DestinationMeasurement", "Measurement", "StoreMeasurement", "TableMeasurement"]


class DestinationMeasurement(NamedTuple):
    """A queue, a subscription or a topic: what is in it, and what went through it so far.

    `oldest_seconds` is for how long the oldest message could have been delivered; None if there is none. What went
    through is what the clients have counted and written down.
    """

    kind: str
    destination: str
    subscription: str | None
    client_id: str | None
    ready: int
    claimed: int
    waiting: int
    delayed: int
    expired: int
    redelivered: int
    oldest_seconds: float | None
    oldest_claim_seconds: float | None
    consumers: int
    sent: int
    acknowledged: int
    rolled_back: int
    redeliveries: int

    @property
    def depth(self) -> int:
        """How many messages there are, whatever their state."""
        return self.ready + self.claimed + self.waiting + self.delayed + self.expired


class StoreMeasurement(NamedTuple):
    """What concerns the store as a whole.

    `holding_transactions` are those open transactions that have touched messages, `longest_transaction_seconds` is how
    long the oldest of them has been open. `prepared_transactions` wait for the second phase of their commit.
    """

    server_time: float
    connected_clients: int
    gone_clients: int
    holding_transactions: int
    longest_transaction_seconds: float
    prepared_transactions: int
    longest_prepared_seconds: float
    notification_queue_usage: float
    delayed_messages_due: int


class TableMeasurement(NamedTuple):
    """A table through which messages pass, as the statistics see it."""

    table: str
    live_rows: int
    dead_rows: int
    bytes: int


class Measurement:
    """Looks at a store; each look is one statement. A context manager.

    Args:
        url: Where the database is.
        schema: The name of the schema.
        timeout: After how many seconds PostgreSQL gives up a look; through a pooler, never.

    Raises:
        JMSException: The database cannot be reached, or the schema is missing or of another version.
    """

    def __init__(self, url: str, schema: str, timeout: float = 60.0) -> None:
        self._schema_name = schema
        self._schema = Schema(schema)
        self._connection = AutocommitConnection(url)
        try:
            with jms_errors("looking at the schema"):
                check_schema(self._connection.sqlalchemy, schema)
                if not self._connection.sqlalchemy.info[POOLED]:  # there it would be set for others, too
                    milliseconds = str(int(timeout * 1000))
                    self._connection.rows("select set_config('statement_timeout', %(ms)s, false)", ms=milliseconds)
        except BaseException:
            self._connection.close()
            raise

    def destinations(self) -> list[DestinationMeasurement]:
        """Return all destinations that are not temporary, by kind and name.

        Each is counted for itself, as in the view ``queues``: the planner does not know how many messages each has.
        """
        schema = self._schema
        with jms_errors("measuring the destinations"):
            rows = self._connection.rows(
                f"""
                with consumers as materialized (
                    select queue_id, sum(consumers) as consumers from {schema.internal}.consumer group by queue_id),
                measured as (
                    select case when s.queue_id is null then 'queue' else 'subscription' end as kind,
                           coalesce(q.name, o.name) as destination, s.name as subscription, s.client_id,
                           p.all_of_them - p.expired - y.claimed - y.waiting as ready, y.claimed, y.waiting,
                           l.delayed, p.expired, y.redelivered, p.oldest, y.oldest_claim, c.consumers, t.sent,
                           t.acknowledged, t.rolled_back, t.redelivered as redeliveries
                    from {schema.internal}.queue q
                    left join {schema.internal}.subscription s using (queue_id)
                    left join {schema.internal}.topic o on o.topic_id = s.topic_id
                    cross join lateral (
                        select count(*) as all_of_them,
                               count(*) filter (
                                   where m.jms_expiration <= (select {schema.internal}.current_milliseconds()))
                                       as expired,
                               min(greatest(m.jms_timestamp, m.jms_delivery_time)) as oldest
                        from {schema.internal}.message m where m.queue_id = q.queue_id) p
                    cross join lateral (
                        select count(*) as delayed from {schema.internal}.delayed_message m
                        where m.queue_id = q.queue_id) l
                    cross join lateral (
                        select count(*) filter (where d.claim_id is not null and m.is_fresh) as claimed,
                               count(*) filter (where d.claim_id is null and m.is_fresh
                                                  and d.next_attempt > statement_timestamp()) as waiting,
                               count(*) filter (where d.delivery_count > 0) as redelivered,
                               min(d.claimed_at) as oldest_claim
                        from {schema.internal}.delivery d
                        cross join lateral (
                            select (n.jms_expiration <= (select {schema.internal}.current_milliseconds())) is not true
                                   as is_fresh
                            from {schema.internal}.message n
                            where (n.queue_id, n.inverse_priority, n.sequence)
                                = (d.queue_id, d.inverse_priority, d.sequence)
                            offset 0) m
                        where d.queue_id = q.queue_id) y
                    left join consumers c on c.queue_id = q.queue_id
                    left join {schema.internal}.destination_traffic t on t.destination_id = q.queue_id
                    where q.deleted_at is null and coalesce(q.name, o.name) is not null
                      and q.connection_id is null and o.connection_id is null
                    union all
                    select 'topic', o.name, null, null, 0, 0, 0, 0, 0, 0, null, null, 0,
                           t.sent, t.acknowledged, t.rolled_back, t.redelivered
                    from {schema.internal}.topic o
                    left join {schema.internal}.destination_traffic t on t.destination_id = -o.topic_id
                    where o.connection_id is null)
                select kind, destination, subscription, client_id,
                       coalesce(sum(ready), 0)::bigint, coalesce(sum(claimed), 0)::bigint,
                       coalesce(sum(waiting), 0)::bigint, coalesce(sum(delayed), 0)::bigint,
                       coalesce(sum(expired), 0)::bigint, coalesce(sum(redelivered), 0)::bigint,
                       case when min(oldest) is not null
                            then greatest(0, {schema.internal}.current_milliseconds() - min(oldest))::float8 / 1000 end,
                       extract(epoch from clock_timestamp() - min(oldest_claim))::float8,
                       coalesce(sum(consumers), 0)::integer,
                       coalesce(sum(sent), 0)::bigint, coalesce(sum(acknowledged), 0)::bigint,
                       coalesce(sum(rolled_back), 0)::bigint, coalesce(sum(redeliveries), 0)::bigint
                from measured
                group by kind, destination, subscription, client_id
                order by kind, destination, subscription, client_id"""
            )
        return [DestinationMeasurement._make(row) for row in rows]

    def store(self) -> StoreMeasurement:
        """Return what concerns the store as a whole."""
        schema = self._schema
        with jms_errors("measuring the store"):
            [row] = self._connection.rows(
                f"""
                with held as (
                    select distinct on (l.pid) l.pid, a.xact_start
                    from pg_catalog.pg_locks l
                    join pg_catalog.pg_stat_activity a using (pid)
                    where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid()
                      and l.relation in ('{schema.internal}.message'::regclass,
                          '{schema.internal}.delayed_message'::regclass)
                      and l.mode in ('RowShareLock', 'RowExclusiveLock')
                      and l.database = (
                        select d.oid from pg_catalog.pg_database d where d.datname = current_database())),
                client as (select {schema.internal}.is_connected(connection_id) as connected
                from {schema.internal}.connection),
                waiting as (
                    select extract(epoch from clock_timestamp() - x.prepared)::float8 as seconds
                    from pg_catalog.pg_prepared_xacts x where x.database = current_database())
                select extract(epoch from clock_timestamp())::float8,
                       (select count(*) from client where connected), (select count(*) from client where not connected),
                       (select count(*) from held),
                       coalesce((select extract(epoch from clock_timestamp() - min(xact_start)) from held), 0)::float8,
                       (select count(*) from waiting), (select coalesce(max(seconds), 0) from waiting),
                       pg_notification_queue_usage(),
                       (select count(*) from {schema.internal}.delayed_message
                        where jms_delivery_time < {schema.internal}.current_milliseconds() - 5000)"""
            )
        return StoreMeasurement._make(row)

    def dead_letters(self) -> list[tuple[str, int]]:
        """Return how many dead letters there are in each queue that has some, or is named for them."""
        schema = self._schema
        with jms_errors("counting the dead letters"):
            rows = self._connection.rows(
                f"""select q.name, (select count(*) from {schema}.dead_letters d where d.queue = q.name)
                    from {schema.internal}.queue q
                    where q.name = 'DLQ' or q.queue_id in (select dead_letter_queue_id from {schema.internal}.queue)
                    order by q.name"""
            )
        return [(name, number) for name, number in rows]

    def tables(self) -> list[TableMeasurement]:
        """Return the tables through which messages pass."""
        with jms_errors("measuring the tables"):
            rows = self._connection.rows(
                """select c.relname::text, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(c.oid)
                   from pg_class c
                   join pg_stat_all_tables s on s.relid = c.oid
                   where c.relnamespace = %(schema)s::regnamespace
                     and c.relname in ('message', 'delivery', 'delayed_message')
                   order by c.relname""",
                schema=self._schema.internal,
            )
        return [TableMeasurement._make(row) for row in rows]

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
