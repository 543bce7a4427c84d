"""The columns of messages: those that a send has as parameters, and those that are read."""

from __future__ import annotations

__all__ = [
    "BODY_COLUMNS",
    "DELAYED_COLUMNS",
    "SEND_COLUMNS",
    "body_columns",
    "message_columns",
    "outgoing_messages",
    "shared_body",
]

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


def outgoing_messages(internal: str, alias: str, columns: tuple[tuple[str, str], ...] = SEND_COLUMNS) -> str:
    """Return the parameters of a send as rows, with the columns given and `position`."""
    types = (kind if kind != "message_type" else f"{internal}.message_type" for _, kind in columns)
    arrays = ", ".join(f"%({name})s::{kind}[]" for (name, _), kind in zip(columns, types, strict=True))
    names = ", ".join(name for name, _ in columns)
    return f"unnest({arrays}) with ordinality as {alias} ({names}, position)"


def body_columns(internal: str) -> dict[str, str]:
    """Return the SQL of each part of the body of a message `m`, which has it itself or shares it with others."""
    return {
        name: f"""case when m.body_id is null then m.{name}
                else (select b.{name} from {internal}.body b where b.body_id = m.body_id) end"""
        for name in BODY_COLUMNS
    }


def shared_body(internal: str) -> str:
    """Return the join that finds the body `b` which a message `m` shares with others, for `message_columns`.

    It looks up nothing for a message that has its body itself, however small the table was when the plan was made.
    """
    return f"""left join lateral (
                select {", ".join(f"t.{name}" for name in BODY_COLUMNS)} from {internal}.body t
                where m.body_id is not null and t.body_id = m.body_id offset 0) b on true"""


def message_columns(internal: str, *, joined: bool = False) -> str:
    """Return what is read of a message `m`, as the fields of `MessageRow` but for the last three.

    Args:
        internal: The schema of the tables, as it stands in the statement.
        joined: Whether the statement has the join of `shared_body`. The policies of the table of bodies are set up
            once then, and not for each part of a body. What a deletion returns cannot be joined.
    """
    text_form = {"json_body": "::text", "body_types": "::text"}
    parts = body_columns(internal)
    if joined:
        parts = {name: f"case when m.body_id is null then m.{name} else b.{name} end" for name in BODY_COLUMNS}
    bodies = ", ".join(f"{body}{text_form.get(name, '')}" for name, body in parts.items())
    return f"""
        m.inverse_priority, m.sequence, m.jms_message_id::text, m.jms_timestamp, m.jms_expiration, m.jms_delivery_mode,
        m.message_type::text, m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.properties::text,
        m.property_types::text, {bodies}, m.jms_delivery_time"""
