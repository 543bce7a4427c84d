"""The columns of a read as SQL, and conditions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jmsql.store.identifier import quote_identifier
from jmsql.store.rows.columns import body_columns

__all__ = [
    "HISTORY_EXPRESSIONS",
    "MESSAGE_EXPRESSIONS",
    "ColumnComparison",
    "Condition",
    "filter_condition",
    "select_list",
]

_BODIES = body_columns("jmsql_internal")

MESSAGE_EXPRESSIONS = {
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
    "text_body": _BODIES["text_body"],
    "json_body": f"({_BODIES['json_body']})::text",
    "body_types": f"({_BODIES['body_types']})::text",
    "bytes_body": _BODIES["bytes_body"],
    "delivery_count": "coalesce(m.delivery_count, 0)",
    "body": f"coalesce({_BODIES['text_body']}, ({_BODIES['json_body']})::text)",
}
"""The SQL of each column that Spark can read of a message `m` with its `delivery_count`."""

HISTORY_EXPRESSIONS = {
    **MESSAGE_EXPRESSIONS,
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
"""The SQL of each column that Spark can read of a row `m` of the history."""

_MILLISECONDS = ("sent_at", "expires_at", "delivery_time")


class ColumnComparison(NamedTuple):
    """A condition on one column.

    Args:
        column: The column of the read.
        operator: How it is compared, in SQL.
        value: What with: an array for `= any`; None for `is null`, which compares with nothing.
        negated: Whether the opposite is asked for.
    """

    column: str
    operator: str
    value: object = None
    negated: bool = False


class Condition(NamedTuple):
    """A condition in a statement, and its parameters."""

    text: str
    parameters: dict[str, object]


def select_list(expressions: Mapping[str, str], columns: Sequence[str]) -> str:
    """Return what a read selects: some columns, under their names."""
    return ", ".join(f"{expressions[name]} as {quote_identifier(name)}" for name in columns)


def filter_condition(expressions: Mapping[str, str], comparisons: Sequence[ColumnComparison]) -> Condition:
    """Compose what rows have to fulfil; each of its conditions begins with "and".

    Args:
        expressions: What each column is made of.
        comparisons: The conditions, all of which hold.
    """
    text = ""
    parameters: dict[str, object] = {}
    for number, comparison in enumerate(comparisons):
        compared = expressions[comparison.column]
        if comparison.column in _MILLISECONDS:
            compared = f"jmsql_internal.to_timestamp({compared})"
        condition = f"({compared}) {comparison.operator}"
        if comparison.value is not None:
            condition += f" (%(filter_{number})s)"
            parameters[f"filter_{number}"] = comparison.value
        text += f" and {'not ' if comparison.negated else ''}({condition})"
    return Condition(text, parameters)
