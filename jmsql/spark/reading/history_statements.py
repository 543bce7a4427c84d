"""Every SQL statement that reads the history for Spark, made once for each schema."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from jmsql.destinations import Destination, Topic
from jmsql.postgresql_text import optional_to_postgresql, to_postgresql
from jmsql.selectors import Selector
from jmsql.spark.reading.browse_statements import column_expressions, compared_expressions, select_list
from jmsql.spark.reading.comparisons import Comparison, filter_condition
from jmsql.store.identifier import Schema
from jmsql.store.selected_statement import SelectedStatement
from jmsql.store.selection import selector_condition

__all__ = ["HistoryOrigin", "HistoryStatements", "history_columns", "history_statements"]


class HistoryOrigin(NamedTuple):
    """Whose history is meant.

    Args:
        destination: A queue's, or a topic's; None: all there is.
        subscription: The name of a subscription to the topic; None: those of all.
        client_id: The client identifier that the subscription belongs to.
        since: What left its destination before is not meant.
    """

    destination: Destination | None = None
    subscription: str | None = None
    client_id: str | None = None
    since: dt.datetime | None = None

    def condition(self) -> SelectedStatement:
        """Return the condition on a row `m` of the history, which begins with "and" if it is not empty."""
        text = ""
        parameters: dict[str, object] = {}
        if self.destination is not None:
            text += " and m.destination = %(destination)s and m.is_topic = %(is_topic)s"
            parameters |= {
                "destination": self.destination.name,
                "is_topic": isinstance(self.destination, Topic),
            }
        if self.subscription is not None:
            text += (
                " and m.subscription = %(subscription)s and m.subscription_client_id is not distinct from %(client)s"
            )
            parameters |= {
                "subscription": to_postgresql(self.subscription),
                "client": optional_to_postgresql(self.client_id),
            }
        if self.since is not None:
            text += " and m.acknowledged_at >= %(since)s::timestamptz"
            parameters["since"] = self.since
        return SelectedStatement(text, parameters)


def history_columns(schema: Schema) -> dict[str, str]:
    """Return the SQL of each column that Spark can read of a row `m` of the history.

    Args:
        schema: The schema, quoted.
    """
    return {
        **column_expressions(schema),
        "destination": "case when m.is_topic then 'topic://' else 'queue://' end || m.destination",
        "acknowledged_at": "m.acknowledged_at",
        "outcome": "m.outcome::text",
        "subscription": "m.subscription",
        "subscription_client_id": "m.subscription_client_id",
        "connection_id": "m.connection_id",
        "client_id": "m.client_id",
        "user_name": "m.user_name",
        "transaction_id": "m.transaction_id::text::bigint",
    }


class HistoryStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        self._schema_name = schema_name
        schema = self._schema = Schema(schema_name)
        self._expressions = history_columns(schema)
        # Who reads it keeps its days from being dropped, as long as the transaction lasts.
        self.hold = f"lock table {schema.internal}.message_history in access share mode"
        self.days = f"""
            select (d.day::timestamp at time zone 'UTC'),
                   pg_relation_size(d.partition) / current_setting('block_size')::bigint
            from {schema}.history_days d
            where (d.day + 1)::timestamp at time zone 'UTC' > %(since)s::timestamptz
              and d.day::timestamp at time zone 'UTC' < %(until)s::timestamptz
            order by d.day"""
        self.is_known = {
            "queue": f"exists (select from {schema.internal}.queue q where q.name = %(destination)s)",
            "topic": f"exists (select from {schema.internal}.topic t where t.name = %(destination)s)",
            "subscription": f"""exists (
                select from {schema.internal}.subscription s join {schema.internal}.topic t using (topic_id)
                where t.name = %(destination)s and s.name = %(subscription)s
                  and s.client_id is not distinct from %(client)s)""",
        }

    def find(self, origin: HistoryOrigin) -> SelectedStatement:
        """Tell whether there is, or was, what the history is asked for."""
        kind = "subscription" if origin.subscription is not None else "queue"
        if kind == "queue" and isinstance(origin.destination, Topic):
            kind = "topic"
        condition = origin.condition()
        return SelectedStatement(
            f"""select {self.is_known[kind]}
                    or exists (select from {self._schema.internal}.message_history m where true {condition.text})""",
            condition.parameters,
        )

    def cuts(self, origin: HistoryOrigin, share: float) -> SelectedStatement:
        """Find where parts of about the same size begin, by a sample of so many percent."""
        condition = origin.condition()
        return SelectedStatement(
            f"""select distinct on (part) transaction_id::text, sequence
                from (
                    select m.transaction_id, m.sequence,
                           ntile(%(partitions)s) over (order by m.transaction_id, m.sequence) as part
                    from {self._schema.internal}.message_history m tablesample system ({share})
                    where m.acknowledged_at >= %(since)s::timestamptz and m.acknowledged_at < %(until)s::timestamptz
                      {condition.text}) as sampled
                order by part, transaction_id, sequence""",
            condition.parameters,
        )

    def read(
        self,
        columns: Sequence[str],
        origin: HistoryOrigin,
        selector: Selector | None,
        part: str,
        filters: Sequence[Comparison] = (),
    ) -> SelectedStatement:
        """Read the columns of a part of the history, which is given by a condition on its rows `m`."""
        condition = origin.condition()
        filtered = filter_condition(compared_expressions(self._schema, self._expressions), filters)
        chosen, choosing = selector_condition(selector, self._schema_name)
        return SelectedStatement(
            f"""select {select_list(self._expressions, columns)} from {self._schema.internal}.message_history m
                where {part} {condition.text} {filtered.text} {chosen}""",
            {**condition.parameters, **filtered.parameters, **choosing},
        )


@cache
def history_statements(schema_name: str) -> HistoryStatements:
    """Return the statements for a schema."""
    return HistoryStatements(schema_name)
