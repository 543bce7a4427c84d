"""The parts of statements that insert messages: their parameters, and the insertion that all kinds of sends share."""

from __future__ import annotations

__all__ = ["BODY_COLUMNS", "DELAYED_COLUMNS", "SEND_COLUMNS", "insert_messages", "outgoing_messages"]

SEND_COLUMNS = (
    ("destination", "text"),
    ("inverse_priority", "smallint"),
    ("jms_message_id", "uuid"),
    ("jms_timestamp", "bigint"),
    ("jms_expiration", "bigint"),
    ("jms_delivery_mode", "smallint"),
    ("message_type", "message_type"),
    ("jms_correlation_id", "text"),
    ("jms_reply_to", "text"),
    ("jms_type", "text"),
    ("properties", "jsonb"),
    ("property_types", "jsonb"),
    ("text_body", "text"),
    ("json_body", "jsonb"),
    ("body_types", "jsonb"),
    ("bytes_body", "bytea"),
)
"""The parameters of a send, each an array with one element a message, and their types."""

BODY_COLUMNS = ("text_body", "json_body", "body_types", "bytes_body")
"""The parts of a body, of which a message has some."""

DELAYED_COLUMNS = (*SEND_COLUMNS, ("jms_delivery_time", "bigint"))
"""The parameters of a send of messages that are delivered later."""


def outgoing_messages(schema: str, alias: str, columns: tuple[tuple[str, str], ...] = SEND_COLUMNS) -> str:
    """Return the parameters of a send as rows, with the columns given and `position`."""
    types = (kind if kind != "message_type" else f"{schema}.message_type" for _, kind in columns)
    arrays = ", ".join(f"%({name})s::{kind}[]" for (name, _), kind in zip(columns, types, strict=True))
    names = ", ".join(name for name, _ in columns)
    return f"unnest({arrays}) with ordinality as {alias} ({names}, position)"


def insert_messages(schema: str, table: str, columns: tuple[tuple[str, str], ...], *, flush: bool) -> str:
    """Return the statement that inserts messages into a table for their queues: all, or none if a queue is missing.

    Args:
        schema: The schema, quoted.
        table: Where they wait.
        columns: The parameters.
        flush: False lets the transaction of this statement alone commit without waiting for the disk: a crash of the
            server may lose the messages.
    """
    names = [name for name, _ in columns[1:]]
    commit = "" if flush else "with commit as materialized (select set_config('synchronous_commit', 'off', true))"
    return f"""{commit}
            insert into {schema}.{table} (queue_id, {", ".join(names)})
            select q.queue_id, {", ".join("s." + name for name in names)}
            from {"" if flush else "commit cross join "}{outgoing_messages(schema, "s", columns)}
            join {schema}.queue q on q.name = s.destination
            where not exists (
                select from unnest(%(destination)s::text[]) as wanted (name)
                where not exists (select from {schema}.queue e where e.name = wanted.name))
            order by s.position"""
