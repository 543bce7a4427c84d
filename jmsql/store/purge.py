"""Deleting the messages of a queue, in small steps."""

from __future__ import annotations

from collections.abc import Iterator

from jmsql.selectors import Selector
from jmsql.store.autocommit_connection import AutocommitConnection
from jmsql.store.errors import jms_errors
from jmsql.store.history_statements import RECORDED, history
from jmsql.store.identifier import Schema
from jmsql.store.inspection import Inspection
from jmsql.store.selection import selector_condition

__all__ = ["Purge"]

_PURGED_AT_ONCE = 5000


class Purge:
    """Deletes the messages of queues.

    Args:
        connection: Where each step commits.
        schema: The name of the schema.
    """

    def __init__(self, connection: AutocommitConnection, schema: str) -> None:
        self._connection = connection
        self._schema_name = schema
        self._schema = Schema(schema)
        self._inspection = Inspection(connection, schema)

    def steps(self, queue: str, selector: Selector | None) -> Iterator[int]:
        """Delete the messages that are in a queue now, but for those that a session holds.

        Yields:
            How many were deleted, after each step. Each step commits.

        Raises:
            InvalidDestinationException: There is no such queue.
        """
        condition, parameters = selector_condition(selector, self._schema_name)
        kept = history(
            self._schema.internal,
            queues="array[%(queue_id)s::integer]",
            addresses="array(select address from free)",
            deliveries="array(select delivery_count from free)",
            outcome="purged",
        )
        # The state is read under the rows' locks: a claim cannot come in between.
        statement = f"""
            with candidate as materialized (
                select m.ctid as address, m.inverse_priority, m.sequence
                from {self._schema.internal}.message m
                where m.queue_id = %(queue_id)s and m.sequence <= %(newest)s
                  and (m.inverse_priority, m.sequence) > (%(inverse_priority)s::smallint, %(sequence)s::bigint)
                  {condition}
                order by m.queue_id, m.inverse_priority, m.sequence
                limit %(limit)s
                for update of m skip locked),
            state as materialized (
                select s.* from {self._schema.internal}.delivery_state(%(queue_id)s,
                    (select array_agg(inverse_priority) from candidate),
                    (select array_agg(sequence) from candidate)) s),
            free as materialized (
                select c.*, s.delivery_count from candidate c left join state s using (inverse_priority, sequence)
                where s.claim_id is null),
            {kept},
            deleted as (
                delete from {self._schema.internal}.message m using free f
                where m.ctid = f.address and {RECORDED}
                returning m.queue_id, m.inverse_priority, m.sequence),
            forgotten as (
                delete from {self._schema.internal}.delivery d using deleted m
                where (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence))
            select c.inverse_priority, c.sequence, (select count(*) from deleted)
            from candidate c order by c.inverse_priority desc, c.sequence desc limit 1"""
        place = {"queue_id": self._inspection.queue_id(queue), "inverse_priority": -1, "sequence": 0}
        with jms_errors("purging"):
            newest = self._connection.rows(f"select last_value from {self._schema.internal}.message_sequence")[0][0]
        while True:
            with jms_errors("purging"):
                rows = self._connection.rows(statement, newest=newest, limit=_PURGED_AT_ONCE, **place, **parameters)
            if not rows:
                break
            place["inverse_priority"], place["sequence"], deleted = rows[0]
            yield deleted
        delayed = f"""
            with deleted as (
                delete from {self._schema.internal}.delayed_message where ctid = any(array(
                    select m.ctid from {self._schema.internal}.delayed_message m
                    where m.queue_id = %(queue_id)s and m.sequence <= %(newest)s {condition}
                    limit %(limit)s
                    for update skip locked))
                returning queue_id)
            select count(*) from deleted"""
        parameters |= {"queue_id": place["queue_id"], "newest": newest, "limit": _PURGED_AT_ONCE}
        while deleted := self._purge_delayed(delayed, parameters):
            yield deleted

    def _purge_delayed(self, statement: str, parameters: dict[str, object]) -> int:
        with jms_errors("purging"):
            return int(self._connection.rows(statement, **parameters)[0][0])
