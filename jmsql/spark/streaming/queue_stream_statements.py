"""Every SQL statement of the streaming reads of Spark, made once for each schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jmsql.spark.reading.browse_statements import column_expressions, select_list
from jmsql.store.candidates import by_key
from jmsql.store.identifier import Schema

__all__ = ["SourceStatements", "source_statements"]


class SourceStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = self._schema = Schema(schema_name)
        self._expressions = column_expressions(schema)
        batch = "source_id = %(source_id)s and batch = %(batch)s"
        claimed = "d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s"

        self.create_source = f"""
            insert into {schema.internal}.spark_source (queue_id, first_sequence, first_timestamp)
            values (%(queue_id)s, %(first_sequence)s, %(first_timestamp)s) returning source_id::text"""
        self.find_message = f"""
            select sequence from {schema.internal}.message
            where queue_id = %(queue_id)s and jms_message_id::text = %(message_id)s"""
        self.begin_epoch = f"""
            update {schema.internal}.spark_source set epoch = epoch + 1, used_at = now() where source_id = %(source_id)s
            returning epoch, queue_id, first_sequence, first_timestamp"""
        self.lock_source = f"""
            select epoch, acknowledged from {schema.internal}.spark_source where source_id = %(source_id)s for update"""
        self.subscription_is_durable = f"""
            select s.durable from {schema.internal}.subscription s where s.queue_id = %(queue_id)s"""
        self.last_sequence = (
            f"select case when is_called then last_value else 0 end from {schema.internal}.message_sequence"
        )

        self.finished = f"""
            select batch, claim_id from {schema.internal}.spark_batch
            where source_id = %(source_id)s and batch <= %(batch)s order by batch"""
        self.keep_history = f"""
            select {schema.internal}.keep_history(array_agg(m.address), array_agg(d.delivery_count), 'acknowledged',
                null)
            from {schema.internal}.delivery d cross join {by_key(schema.internal, "message", "m", "d")}
            where {claimed} and exists (
                select from {schema.internal}.queue q where q.queue_id = %(queue_id)s and q.history)"""
        self.acknowledge = f"""
            with acknowledged as (
                delete from {schema.internal}.delivery d where {claimed}
                returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count),
            deleted as (
                delete from {schema.internal}.message where ctid = any(array(
                    select m.address from acknowledged a cross join {by_key(schema.internal, "message", "m", "a")})))
            select count(*), count(*) filter (where delivery_count > 0) from acknowledged"""
        self.forget_batch = f"delete from {schema.internal}.spark_batch where {batch}"
        self.set_acknowledged = f"""
            update {schema.internal}.spark_source set acknowledged = greatest(acknowledged, %(batch)s), used_at = now()
            where source_id = %(source_id)s"""

        self.next_batch = f"""
            select min(batch) from {schema.internal}.spark_batch
            where source_id = %(source_id)s and batch > %(batch)s"""
        self.new_claim = f"select nextval('{schema.internal}.claim_sequence')"
        self.create_batch = f"""
            insert into {schema.internal}.spark_batch (source_id, batch, claim_id, messages, bytes)
            values (%(source_id)s, %(batch)s, %(claim_id)s, %(messages)s, %(bytes)s)"""

        self.find_batch = f"select claim_id, messages, frozen from {schema.internal}.spark_batch where {batch}"
        # No longer the driver's own: its death does not free them. The number is new, since upkeep may be about to
        # release, by the old one, what a dead driver had claimed.
        self.freeze_claims = f"""
            update {schema.internal}.delivery d set connection_id = null, claim_id = %(frozen_claim_id)s
            where {claimed}"""
        self.freeze_batch = f"""
            update {schema.internal}.spark_batch set frozen = true, claim_id = %(claim_id)s, messages = %(messages)s
            where {batch}"""
        self.parts = f"""
            select count(*), min(key), max(key)
            from (
                select array[d.inverse_priority, d.sequence] as key,
                       ntile(%(partitions)s) over (order by d.inverse_priority, d.sequence) as part
                from {schema.internal}.delivery d where {claimed}) as claimed
            group by part order by part"""

        self.backlog = f"""
            select count(*), coalesce(sum(pg_column_size(m.*)), 0)::bigint,
                   coalesce(greatest(({schema.internal}.current_milliseconds() - min(m.jms_timestamp)) / 1000.0, 0),
                       0)::float8
            from {schema.internal}.message m
            left join {by_key(schema.internal, "delivery", "d", "m")} on true
            where m.queue_id = %(queue_id)s and d.claim_id is null"""

    def read(self, columns: Sequence[str]) -> str:
        """Read the columns of the messages of a claim, from a key to another."""
        return f"""
            select {select_list(self._expressions, columns)}
            from (
                select m.*, d.delivery_count
                from {self._schema.internal}.delivery d cross join {by_key(self._schema.internal, "message", "m", "d")}
                where d.queue_id = %(queue_id)s and d.claim_id = %(claim_id)s
                  and (d.inverse_priority, d.sequence) >= (%(first_priority)s::smallint, %(first_sequence)s::bigint)
                  and (d.inverse_priority, d.sequence) <= (%(last_priority)s::smallint, %(last_sequence)s::bigint)) m"""


@cache
def source_statements(schema_name: str) -> SourceStatements:
    """Return the statements for a schema."""
    return SourceStatements(schema_name)
