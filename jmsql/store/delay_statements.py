"""Every SQL statement on messages that wait for their delivery time, made once for each schema."""

from __future__ import annotations

from functools import cache

from jmsql.store.identifier import quote_identifier
from jmsql.store.send_statements import DELAYED_COLUMNS, insert_messages

__all__ = ["DelayStatements", "delay_statements"]


class DelayStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        schema = quote_identifier(schema_name)
        columns = ["queue_id", "body_id", *(name for name, _ in DELAYED_COLUMNS[1:])]

        self.send = insert_messages(schema, "delayed_message", DELAYED_COLUMNS, flush=True)
        self.send_without_flush = insert_messages(schema, "delayed_message", DELAYED_COLUMNS, flush=False)

        self.milliseconds_to_next = f"""
            select d.due - {schema}.current_milliseconds() from {schema}.delayed_message d
            order by d.due, d.sequence limit 1"""
        # The planner takes a range with two ends for short, and one with a single end for worth a sort.
        # In the order of delivery time, then of sending: they get new sequences, and queue up behind what is there.
        # What has expired meanwhile goes the same way, and is then removed as any other message is.
        self.move_due = f"""
            with due as materialized (
                select d.ctid as address, d.* from {schema}.delayed_message d
                where d.due between 0 and (select {schema}.current_milliseconds()) - 1
                order by d.due, d.sequence
                limit %(limit)s
                for update skip locked),
            deleted as (
                delete from {schema}.delayed_message where ctid = any(array(select address from due))),
            moved as (
                insert into {schema}.message ({", ".join(columns)})
                select {", ".join("d." + name for name in columns)}
                from due d
                join {schema}.queue q using (queue_id)
                where q.deleted_at is null
                order by d.due, d.sequence)
            select queue_id, count(*) from due group by queue_id"""
        self.purge_deleted = f"""
            delete from {schema}.delayed_message where ctid = any(array(
                select d.ctid from {schema}.queue q
                join {schema}.delayed_message d using (queue_id)
                where q.deleted_at is not null
                limit %(limit)s
                for update of d skip locked))"""


@cache
def delay_statements(schema_name: str) -> DelayStatements:
    """Return the statements for a schema."""
    return DelayStatements(schema_name)
