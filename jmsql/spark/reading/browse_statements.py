"""Every SQL statement that reads messages for Spark without consuming them, made once for each schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from jmsql.selectors import Selector
from jmsql.spark.reading.comparisons import Comparison, filter_condition
from jmsql.store.candidates import by_key, has_not_expired
from jmsql.store.columns import body_columns
from jmsql.store.identifier import Schema, quote_identifier
from jmsql.store.selected_statement import SelectedStatement
from jmsql.store.selection import selector_condition

__all__ = [
    "BrowseStatements",
    "browse_statements",
    "column_expressions",
    "compared_expressions",
    "select_list",
    "snapshot_statements",
]


def column_expressions(schema: Schema) -> dict[str, str]:
    """Return the SQL of each column that Spark can read of a message `m` with its `delivery_count`.

    Args:
        schema: The schema, quoted.
    """
    bodies = body_columns(schema.internal)
    return {
        "destination": "%(destination)s::text",
        "sequence": "m.sequence",
        "priority": "(9 - m.inverse_priority)::integer",
        "type": "m.message_type::text",
        "message_id": "'ID:' || m.jms_message_id::text",
        # Who reads makes times of the milliseconds, in a hundredth of the time that it takes here.
        "sent_at": "m.jms_timestamp",
        "expires_at": "m.jms_expiration",
        "delivery_time": "m.jms_delivery_time",
        "delivery_mode": "case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end",
        "correlation_id": "m.jms_correlation_id",
        "reply_to": "m.jms_reply_to",
        "jms_type": "m.jms_type",
        "properties": "m.properties::text",
        "property_types": "m.property_types::text",
        "text_body": bodies["text_body"],
        "json_body": f"({bodies['json_body']})::text",
        "body_types": f"({bodies['body_types']})::text",
        "bytes_body": bodies["bytes_body"],
        "delivery_count": "coalesce(m.delivery_count, 0)",
        "body": f"coalesce({bodies['text_body']}, ({bodies['json_body']})::text)",
    }


def select_list(expressions: Mapping[str, str], columns: Sequence[str]) -> str:
    """Return what a read selects: some columns, under their names."""
    return ", ".join(f"{expressions[name]} as {quote_identifier(name)}" for name in columns)


def compared_expressions(schema: Schema, expressions: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL of each column as it is compared with values, given that of each column as it is read."""
    times = {
        name: f"{schema.internal}.to_timestamp({expressions[name]})"
        for name in ("sent_at", "expires_at", "delivery_time")
    }
    return {**expressions, **times}


class BrowseStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        self._schema_name = schema_name
        schema = self._schema = Schema(schema_name)
        self._expressions = column_expressions(schema)
        self.find_subscription = f"""
            select s.queue_id from {schema.internal}.subscription s join {schema.internal}.topic t using (topic_id)
            where t.name = %(topic)s and s.name = %(subscription)s and s.client_id is not distinct from %(client_id)s
            order by s.durable desc limit 1"""
        # The ends of each priority are read from the key.
        ends = " union all ".join(
            f"""select (select m.sequence from {schema.internal}.{table} m
                        where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                        order by m.queue_id {order}, m.inverse_priority {order}, m.sequence {order} limit 1)
                from generate_series(0, 9) as p (inverse_priority)"""
            for table, order in (("message", "asc"), ("message", "desc"))
        )
        self.ends = f"""
            select min(sequence), max(sequence)
            from ({ends} union all
                  select sequence from {schema.internal}.delayed_message
                  where queue_id = %(queue_id)s) as ends (sequence)"""

    def read(
        self, columns: Sequence[str], selector: Selector | None, filters: Sequence[Comparison] = ()
    ) -> SelectedStatement:
        """Read the columns of the messages of a queue with sequences in a range, that are there to be delivered."""
        schema = self._schema
        condition, parameters = selector_condition(selector, self._schema_name)
        filtered = filter_condition(compared_expressions(schema, self._expressions), filters)
        wanted = select_list(self._expressions, columns)
        # Few queues have deliveries that are under way or have failed. For the others, no message is looked up there.
        has_deliveries = f"(select exists (select from {schema.internal}.delivery k where k.queue_id = %(queue_id)s))"
        alive = has_not_expired(schema.internal)
        return SelectedStatement(
            f"""select {wanted}
                from unnest('{{0,1,2,3,4,5,6,7,8,9}}'::smallint[]) as p (inverse_priority)
                cross join lateral (
                    select m.*, d.delivery_count
                    from {schema.internal}.message m
                    left join lateral (
                        select k.* from {by_key(schema.internal, "delivery", "k", "m")}
                        where {has_deliveries} offset 0) d on true
                    where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                      and m.sequence between %(first)s and %(last)s and d.claim_id is null and {alive} {condition}
                    offset 0) m
                where true {filtered.text}
                union all
                select {wanted}
                from (
                    select m.*, 0 as delivery_count
                    from {schema.internal}.delayed_message m
                    where m.queue_id = %(queue_id)s and m.sequence between %(first)s and %(last)s
                      and {alive} {condition}) m
                where true {filtered.text}""",
            {**parameters, **filtered.parameters},
        )


class SnapshotStatements(NamedTuple):
    """The statements with which one transaction shows others what it sees."""

    begin: str = "set transaction isolation level repeatable read, read only"
    export: str = "select pg_export_snapshot()"
    look_again: str = "select from pg_stat_clear_snapshot()"
    is_used: str = "select exists (select from pg_stat_activity where application_name like %(name)s)"

    @staticmethod
    def use(snapshot: str) -> str:
        """See what the transaction sees that has exported the snapshot."""
        return f"set transaction snapshot '{snapshot}'"


snapshot_statements = SnapshotStatements()


@cache
def browse_statements(schema_name: str) -> BrowseStatements:
    """Return the statements for a schema."""
    return BrowseStatements(schema_name)
