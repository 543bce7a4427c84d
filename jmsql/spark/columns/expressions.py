"""The columns of messages in Spark: their names and types, their SQL expressions, and conditions on them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from jmsql.extension.scanning import body_columns
from jmsql.extension.statements import Result, SqlFile, quote_identifier

COLUMNS = {
    "destination": "string",
    "sequence": "bigint",
    "priority": "int",
    "type": "string",
    "message_id": "string",
    "sent_at": "timestamp",
    "expires_at": "timestamp",
    "delivery_time": "timestamp",
    "delivery_mode": "string",
    "correlation_id": "string",
    "reply_to": "string",
    "jms_type": "string",
    "properties": "string",
    "property_types": "string",
    "text_body": "string",
    "json_body": "string",
    "body_types": "string",
    "bytes_body": "binary",
    "delivery_count": "int",
}
"""The columns of a message and their types, with properties as JSON text."""

HISTORY_COLUMNS = {
    **COLUMNS,
    "acknowledged_at": "timestamp",
    "outcome": "string",
    "subscription": "string",
    "subscription_client_id": "string",
    "connection_id": "bigint",
    "client_id": "string",
    "user_name": "string",
    "transaction_id": "bigint",
}
"""The columns of a message in the history, which also say how it left its destination."""

RARE = "rare"
"""The column that stands for those that hardly any message fills: null, or the texts of all of them."""

BYTES = "bytes_body"
"""The column that is no text. Among the rare ones, it is written in hexadecimal digits."""

SMALL = "small"
"""The column that stands for those in `SMALL_FIELDS`: a whole number with the values of all of them."""

_BODIES = body_columns()

MESSAGE_EXPRESSIONS = {
    "destination": "%(destination)s::text",
    "sequence": "m.sequence",
    "priority": "(9 - m.inverse_priority)::integer",
    "type": "m.message_type::text",
    # The reader makes texts of identifiers and of JSON, and times of milliseconds, in a fraction of the time that it
    # takes here.
    "message_id": "m.jms_message_id",
    "sent_at": "m.jms_timestamp",
    "expires_at": "m.jms_expiration",
    "delivery_time": "m.jms_delivery_time",
    "delivery_mode": "case m.jms_delivery_mode when 1 then 'NON_PERSISTENT' else 'PERSISTENT' end",
    "correlation_id": "m.jms_correlation_id",
    "reply_to": "m.jms_reply_to",
    "jms_type": "m.jms_type",
    **{name: f"m.{name}" for name in ("properties", "property_types")},
    **_BODIES,
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
    "transaction_id": "xid8send(m.transaction_id)",
}
"""The SQL of each column that Spark can read of a row `m` of the history."""

MILLISECONDS = ("sent_at", "expires_at", "delivery_time")
"""The columns with times, which are read as milliseconds since 1970."""


class SmallField(NamedTuple):
    """How a column stands in `SMALL`.

    Args:
        shift: How many bits stand below it.
        bits: How many bits it takes.
        number: The number there, in SQL.
        texts: The column's text for each number; none: the column is a number itself.
    """

    shift: int
    bits: int
    number: str
    texts: tuple[str, ...] = ()


def _numbered(column: str, texts: Sequence[str]) -> str:
    cases = " ".join(f"when '{text}' then {number}" for number, text in enumerate(texts))
    return f"case {column} {cases} end"


_TYPES = ("TextMessage", "BytesMessage", "MapMessage", "StreamMessage", "ObjectMessage", "Message")
_OUTCOMES = ("acknowledged", "expired", "dead-lettered", "purged", "cancelled")
SMALL_FIELDS = {
    "priority": SmallField(0, 4, "9 - m.inverse_priority"),
    "delivery_mode": SmallField(4, 1, "m.jms_delivery_mode - 1", ("NON_PERSISTENT", "PERSISTENT")),
    "type": SmallField(5, 3, _numbered("m.message_type", _TYPES), _TYPES),
    "outcome": SmallField(8, 3, _numbered("m.outcome", _OUTCOMES), _OUTCOMES),
    "delivery_count": SmallField(11, 31, "coalesce(m.delivery_count, 0)"),
}
"""The columns that are never null and take few bits."""


class Condition(NamedTuple):
    """A condition in a statement, and its parameters."""

    text: str
    parameters: dict[str, object]


_TABLE_COLUMNS = {
    "expires_at": ("jms_expiration",),
    "delivery_time": ("jms_delivery_time",),
    "correlation_id": ("jms_correlation_id",),
    "reply_to": ("jms_reply_to",),
    "jms_type": ("jms_type",),
    **{name: (name,) for name in ("properties", "property_types")},
    # Messages that share a body have it in another table.
    **{name: (name, "body_id") for name in ("text_body", "json_body", "body_types", BYTES)},
    **{name: (name,) for name in ("subscription", "subscription_client_id", "client_id", "user_name")},
}
"""Columns that can be rare, and the tables' columns that are then null."""


def _rare(result: Result) -> frozenset[str]:
    empty = {name for (name,) in result.rows}
    return frozenset(name for name, of_table in _TABLE_COLUMNS.items() if empty.issuperset(of_table))


_sql = SqlFile("columns", "jmsql.spark")
rare_columns_of_messages, rare_columns_of_history = (
    _sql.statement("empty", "looking at statistics", _rare, {"tables": _sql[tables]}).bind()
    for tables in ("message_tables", "history_tables")
)
"""The columns that no message in a queue fills, and no row of the history, as far as PostgreSQL's statistics tell."""


def select_list(expressions: Mapping[str, str], columns: Sequence[str], rare: Collection[str] = ()) -> str:
    """Return a read's select list: some columns, under their names.

    A column takes about as much as another, be it null, a digit or a line of text: to write, to send, and most to read.
    So those that are rare are one together, and those that are small numbers. Columns that are expected to be rare and
    are not are read all the same, but less fast.
    """
    packed = _together(columns, rare)
    small = _together(columns, SMALL_FIELDS)
    selected = [f"{expressions[name]} as {quote_identifier(name)}" for name in columns if name not in {*packed, *small}]
    if small:
        fields = (SMALL_FIELDS[name] for name in small)
        number = " | ".join(f"(({field.number})::bigint << {field.shift})" for field in fields)
        selected.append(f"{number} as {quote_identifier(SMALL)}")
    if packed:
        is_null = " and ".join(f"({expressions[name]}) is null" for name in packed)
        texts = (
            f"encode({expressions[name]}, 'hex')" if name == BYTES else f"({expressions[name]})::text"
            for name in packed
        )
        selected.append(f"case when {is_null} then null else array[{', '.join(texts)}] end as {quote_identifier(RARE)}")
    return ", ".join(selected)


def _together(columns: Sequence[str], chosen: Collection[str]) -> list[str]:
    """Return the columns that are read as one: the chosen ones, if there are several."""
    found = [name for name in columns if name in chosen]
    return found if len(found) > 1 else []
