"""Every SQL statement of the upkeep, which one control connection does for all, made once for each schema."""

from __future__ import annotations

from functools import cache

from jmsql.store.candidates import by_key
from jmsql.store.columns import SEND_COLUMNS
from jmsql.store.history_statements import RECORDED, history
from jmsql.store.identifier import Schema

__all__ = ["UpkeepStatements", "upkeep_statements"]


class UpkeepStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = Schema(schema_name)
        names = [name for name, _ in SEND_COLUMNS[1:]]
        columns = ", ".join(names)
        own = {
            "jms_expiration": "null",
            "properties": f"""{schema.internal}.dead_letter_properties(
                    e.properties, e.queue_id, 'expired', coalesce(s.delivery_count, 0), s.first_failed_at, s.last_error,
                    e.jms_expiration)""",
        }
        moved = ", ".join(own.get(name, f"e.{name}") for name in names)

        # Of the transaction: a client that is frozen in it holds up others no longer than that.
        self.limit_idleness = "select set_config('idle_in_transaction_session_timeout', %(timeout)s, true)"
        # A client's row is seen only once its lock is held. The names of what is to be done besides come along.
        self.forget_dead_connections = f"""
            with forgotten as (
                delete from {schema.internal}.connection c
                where c.connection_id <> %(connection_id)s
                  and (c.heartbeat_at is null
                       or c.heartbeat_at < statement_timestamp() - {schema.internal}.heartbeat_timeout())
                  and not exists (
                    select from pg_catalog.pg_locks l
                    where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.mode = 'ExclusiveLock'
                      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
                      and l.classid::bigint = (c.lock_key >> 32) & 4294967295
                      and l.objid::bigint = c.lock_key & 4294967295
                      and l.pid = c.server_process_id))
            select name from {schema.internal}.maintenance_task order by name"""
        self.forget_orphans = f"""
            delete from {schema.internal}.delivery d
            where d.claim_id is null
              and not exists (
                select from {schema.internal}.message m
                where (m.queue_id, m.inverse_priority, m.sequence) = (d.queue_id, d.inverse_priority, d.sequence)
                offset 0)"""
        kept = history(
            schema.internal,
            queues="array(select queue_id from free)",
            addresses="array(select address from free)",
            deliveries="array(select delivery_count from free)",
            outcome="expired",
        )
        self.reap_expired = f"""
            with expired as materialized (
                select m.ctid as address, m.*, q.expiry_queue_id
                from {schema.internal}.message m
                join {schema.internal}.queue q using (queue_id)
                where m.jms_expiration between 0 and (select {schema.internal}.current_milliseconds())
                  and not exists (
                    select from {schema.internal}.delivery d
                    where (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
                      and d.claim_id is not null
                    offset 0)
                order by m.jms_expiration
                limit %(limit)s
                for update of m skip locked),
            state as materialized (
                select d.* from (select queue_id, array_agg(inverse_priority) as inverse_priorities,
                                        array_agg(sequence) as sequences from expired group by queue_id) e
                cross join lateral {schema.internal}.delivery_state(e.queue_id, e.inverse_priorities, e.sequences) d),
            free as materialized (
                select e.*, s.delivery_count
                from expired e
                left join state s using (queue_id, inverse_priority, sequence)
                where s.claim_id is null),
            {kept},
            deleted as (
                delete from {schema.internal}.message m using free e
                where m.ctid = e.address and {RECORDED}
                returning m.queue_id, m.inverse_priority, m.sequence),
            forgotten as (
                delete from {schema.internal}.delivery where ctid = any(array(
                    select d.address from deleted m cross join {by_key(schema.internal, "delivery", "d", "m")}))),
            moved as (
                insert into {schema.internal}.message (queue_id, body_id, {columns})
                select e.expiry_queue_id, e.body_id, {moved}
                from expired e
                join deleted d using (queue_id, inverse_priority, sequence)
                left join state s using (queue_id, inverse_priority, sequence)
                join {schema.internal}.queue q
                  on q.queue_id = e.expiry_queue_id and q.name is not null and q.connection_id is null
                order by e.sequence)
            select count(*) from deleted"""

        self.restore_pages = f"select name from {schema.internal}.restore_pages() as name"

        self.find_abandoned = f"""
            select s.queue_id from {schema.internal}.subscription s
            where not s.durable and not exists (select from {schema.internal}.subscriber c
            where c.queue_id = s.queue_id)"""
        self.forget_temporary = f"""
            with topics as (
                delete from {schema.internal}.topic t
                where t.connection_id is not null
                  and not exists (select from {schema.internal}.connection c where c.connection_id = t.connection_id)
                  and not exists (select from {schema.internal}.subscription s where s.topic_id = t.topic_id))
            update {schema.internal}.queue q set connection_id = null
            where q.connection_id is not null
              and not exists (select from {schema.internal}.connection c where c.connection_id = q.connection_id)"""
        self.purge_deleted = f"""
            with candidate as materialized (
                select found.*
                from {schema.internal}.queue q
                cross join lateral (
                    select m.ctid as address, m.queue_id, m.inverse_priority, m.sequence, d.address as delivery
                    from {schema.internal}.message m
                    left join {by_key(schema.internal, "delivery", "d", "m")} on true
                    where m.queue_id = q.queue_id and d.claim_id is null
                    order by m.queue_id, m.inverse_priority, m.sequence
                    limit %(limit)s
                    for update of m skip locked) found
                where q.deleted_at is not null
                limit %(limit)s),
            forgotten as (
                delete from {schema.internal}.delivery where ctid = any(array(select delivery from candidate)))
            delete from {schema.internal}.message where ctid = any(array(select address from candidate))"""
        # A transaction that is older than the deletion may still send to the queue. It is not always to be seen: see
        # `find_lost`.
        self.forget_deleted = f"""
            delete from {schema.internal}.queue q
            where q.deleted_at is not null
              and (select m.sequence from {schema.internal}.message m where m.queue_id = q.queue_id
                   order by m.queue_id, m.inverse_priority, m.sequence limit 1) is null
              and not exists (select from {schema.internal}.delayed_message d where d.queue_id = q.queue_id)
              and not exists (select from pg_catalog.pg_stat_activity a
                              where a.datname = current_database() and a.xact_start <= q.deleted_at
                                and a.pid <> pg_backend_pid())"""

        # What was sent by a transaction that saw the queue, and committed after the queue was forgotten. The queues'
        # numbers are read from the indexes by leaps.
        self.find_lost = f"""
            with recursive {_queue_ids(schema, "message")}, {_queue_ids(schema, "delayed_message")}
            insert into {schema.internal}.queue (queue_id, deleted_at) overriding system value
            select found.queue_id, statement_timestamp()
            from (select queue_id from message_queue union select queue_id from delayed_message_queue) as found
            where found.queue_id is not null
              and not exists (select from {schema.internal}.queue q where q.queue_id = found.queue_id)
            on conflict do nothing"""

        # In windows of the key, so that a run takes little time however many there are.
        self.forget_bodies = f"""
            with looked_at as materialized (
                select body_id from {schema.internal}.body where body_id > %(after)s::bigint
                order by body_id limit %(limit)s),
            in_history as materialized (
                select distinct h.body_id from {schema.internal}.message_history h
                where h.body_id > %(after)s::bigint and h.body_id <= (select max(body_id) from looked_at)),
            forgotten as (
                delete from {schema.internal}.body b using looked_at l
                where b.body_id = l.body_id
                  and not exists (select from {schema.internal}.message m where m.body_id = b.body_id)
                  and not exists (select from {schema.internal}.delayed_message d where d.body_id = b.body_id)
                  and not exists (select from in_history h where h.body_id = b.body_id)
                returning b.body_id)
            select coalesce(max(body_id), 0), (select count(*) from forgotten) from looked_at"""


def _queue_ids(schema: Schema, table: str) -> str:
    """Return the part of a recursive query that finds the numbers of the queues with rows in a table."""
    rows = f"{schema.internal}.{table}"
    return f"""{table}_queue (queue_id) as (
                select min(queue_id) from {rows}
                union all
                select (select min(m.queue_id) from {rows} m where m.queue_id > q.queue_id)
                from {table}_queue q where q.queue_id is not null)"""


@cache
def upkeep_statements(schema_name: str) -> UpkeepStatements:
    """Return the statements for a schema."""
    return UpkeepStatements(schema_name)
