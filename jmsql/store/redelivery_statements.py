"""Every SQL statement on messages that are delivered again, or go to a dead-letter queue, made once for each schema."""

from __future__ import annotations

from functools import cache

from jmsql.policies import DEFAULT_DEAD_LETTER_QUEUE
from jmsql.store.identifier import quote_identifier
from jmsql.store.statements import KEYS, by_key

__all__ = ["POLICY_COLUMNS", "RedeliveryStatements", "redelivery_statements"]

_OUTCOMES = (
    "%(attempts)s::integer[], %(delays)s::float8[], %(errors)s::text[], %(error_counts)s::integer[], "
    "%(dead_letter_queue_ids)s::integer[]"
)
_OUTCOME = "attempts, delay, error, error_count, dead_letter_queue_id"

# What is on its way to a dead-letter queue waits for ever until it is there.
_NEXT_ATTEMPT = """
    case when {outcome}.dead_letter_queue_id is not null then 'infinity'
         when {outcome}.delay > 0 then statement_timestamp() + {outcome}.delay * interval '1 second' end"""

POLICY_COLUMNS = (
    "maximum_deliveries",
    "redelivery_delay",
    "redelivery_multiplier",
    "maximum_redelivery_delay",
    "redelivery_jitter",
    "dead_letter_queue_id",
    "claim_time_limit",
)
"""The settings of a queue, as the fields of `jmsql.store.redelivery.QueuePolicy`."""


class RedeliveryStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
        restricted: Whether the role may not delete; it asks for a removal instead.
    """

    def __init__(self, schema_name: str, *, restricted: bool = False) -> None:
        schema = quote_identifier(schema_name)
        default = f"(select d.queue_id from {schema}.queue d where d.name = '{DEFAULT_DEAD_LETTER_QUEUE}')"
        policy = ", ".join(
            f"coalesce(q.{name}, {default})" if name == "dead_letter_queue_id" else f"q.{name}"
            for name in POLICY_COLUMNS
        )

        self.find_policy = f"select {policy} from {schema}.queue q where q.queue_id = %(queue_id)s"

        # While the caller's open transaction locks the messages, so that nobody else claims them. The commit need not
        # reach the disk, as that of any claim.
        self.record_deliveries = f"""
            with claim as materialized (
                select set_config('synchronous_commit', 'off', true),
                       nextval('{schema}.claim_sequence') as claim_id)
            insert into {schema}.delivery as d
                (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at)
            select k.queue_id, k.inverse_priority, k.sequence, m.group_hash, claim.claim_id, %(connection_id)s,
                   clock_timestamp()
            from claim
            cross join {KEYS}) as k (queue_id, inverse_priority, sequence)
            left join {by_key(schema, "message", "m", "k")} on true
            order by k.queue_id, k.inverse_priority, k.sequence
            on conflict (queue_id, inverse_priority, sequence) do update
            set claim_id = excluded.claim_id, connection_id = excluded.connection_id,
                claimed_at = excluded.claimed_at, next_attempt = null
            returning d.claim_id"""

        forgotten = "r.attempts = 0 and r.delivery_count = 0 and r.dead_letter_queue_id is null"
        if restricted:
            forget = f"""
                insert into {schema}.removal (deliveries)
                select array_agg(r.address) from released r where {forgotten} having count(*) > 0"""
        else:
            forget = f"""
                delete from {schema}.delivery where ctid = any(array(
                    select r.address from released r where {forgotten}))"""
        self.release = f"""
            with commit as materialized (select set_config('synchronous_commit', 'off', true)),
            released as (
                select d.address, d.delivery_count, {", ".join("k." + name for name in _OUTCOME.split(", "))}
                from commit
                cross join {KEYS}, %(claim_ids)s::bigint[], {_OUTCOMES})
                    as k (queue_id, inverse_priority, sequence, claim_id, {_OUTCOME})
                cross join lateral (
                    select d.ctid as address, d.delivery_count from {schema}.delivery d
                    where (d.queue_id, d.inverse_priority, d.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
                      and d.claim_id = k.claim_id
                    for update) d),
            kept as materialized (
                select r.* from released r
                where r.attempts > 0 or r.delivery_count > 0 or r.dead_letter_queue_id is not null),
            forgotten as ({forget})
            update {schema}.delivery d
            set claim_id = null, connection_id = null, claimed_at = null, claim_expires_at = null,
                delivery_count = d.delivery_count + r.attempts,
                error_count = d.error_count + r.error_count,
                next_attempt = {_NEXT_ATTEMPT.format(outcome="r")},
                last_error = coalesce(r.error, d.last_error),
                first_failed_at = coalesce(d.first_failed_at, case when r.attempts > 0 then statement_timestamp() end),
                dead_letter_queue_id = r.dead_letter_queue_id
            from kept r
            where d.ctid = r.address"""

        # Recorded while the caller's open transaction still locks the messages, which it then gives back.
        self.record_attempts = f"""
            insert into {schema}.delivery as d
                (queue_id, inverse_priority, sequence, group_hash, delivery_count, error_count, next_attempt,
                 last_error, first_failed_at, dead_letter_queue_id)
            select k.queue_id, k.inverse_priority, k.sequence, m.group_hash, k.attempts,
                   k.error_count, {_NEXT_ATTEMPT.format(outcome="k")}, k.error,
                   case when k.attempts > 0 then statement_timestamp() end, k.dead_letter_queue_id
            from {KEYS}, {_OUTCOMES}) as k (queue_id, inverse_priority, sequence, {_OUTCOME})
            left join {by_key(schema, "message", "m", "k")} on true
            order by k.queue_id, k.inverse_priority, k.sequence
            on conflict (queue_id, inverse_priority, sequence) do update
            set delivery_count = d.delivery_count + excluded.delivery_count,
                error_count = d.error_count + excluded.error_count,
                next_attempt = excluded.next_attempt,
                last_error = coalesce(excluded.last_error, d.last_error),
                first_failed_at = coalesce(d.first_failed_at, excluded.first_failed_at),
                dead_letter_queue_id = excluded.dead_letter_queue_id"""

        self.extend_claims = f"""
            update {schema}.delivery d
            set claim_expires_at = clock_timestamp() + k.seconds * interval '1 second'
            from {KEYS}, %(claim_ids)s::bigint[], %(seconds)s::float8[])
                as k (queue_id, inverse_priority, sequence, claim_id, seconds)
            cross join {by_key(schema, "delivery", "found", "k")}
            where d.ctid = found.address and d.claim_id = k.claim_id"""

        self.find_errors = f"""
            select k.position, d.error_count
            from {KEYS}) with ordinality as k (queue_id, inverse_priority, sequence, position)
            cross join {by_key(schema, "delivery", "d", "k")}
            where d.error_count > 0"""

        # Claims without a connection are those of Spark's batches, which outlive their driver.
        self.find_lost_claims = f"""
            select d.queue_id, d.inverse_priority, d.sequence, d.group_hash, d.claim_id, d.delivery_count,
                   d.claim_expires_at <= clock_timestamp(), {policy}
            from {schema}.delivery d
            left join {schema}.queue q using (queue_id)
            where d.claim_id is not null
              and (d.claim_expires_at <= clock_timestamp()
                   or d.connection_id is not null
                      and not exists (select from {schema}.connection c where c.connection_id = d.connection_id))
            limit %(limit)s"""

        self.bury = f"select dead_letter_queue, moved from {schema}.bury_dead_letters(%(limit)s)"


@cache
def redelivery_statements(schema_name: str, *, restricted: bool = False) -> RedeliveryStatements:
    """Return the statements for a schema, and for roles that may delete or not."""
    return RedeliveryStatements(schema_name, restricted=restricted)
