"""The columns of a message `m` in statements, as a send has them and as they are read, and the conditions on it."""

from __future__ import annotations

from jmsql.selectors import Selector, SelectorSQL

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


def outgoing_messages(alias: str, columns: tuple[tuple[str, str], ...] = SEND_COLUMNS) -> str:
    """Return the parameters of a send as rows, with the columns given and `position`."""
    types = (kind if kind != "message_type" else "jmsql_internal.message_type" for _, kind in columns)
    arrays = ", ".join(f"%({name})s::{kind}[]" for (name, _), kind in zip(columns, types, strict=True))
    names = ", ".join(name for name, _ in columns)
    return f"unnest({arrays}) with ordinality as {alias} ({names}, position)"


SHARED_BODY = f"""left join lateral (
                select {", ".join(f"t.{name}" for name in BODY_COLUMNS)} from jmsql_internal.body t
                where m.body_id is not null and t.body_id = m.body_id offset 0) b on true"""
"""The join that finds the body `b` which a message `m` shares with others, for `message_columns`.

It looks up nothing for a message that has its body itself, however small the table was when the plan was made."""


def body_columns() -> dict[str, str]:
    """Return the SQL of each part of the body of a message `m`, which has it itself or shares it with others."""
    return {
        name: f"""case when m.body_id is null then m.{name}
                else (select b.{name} from jmsql_internal.body b where b.body_id = m.body_id) end"""
        for name in BODY_COLUMNS
    }


def message_columns(*, joined: bool = False) -> str:
    """Return the columns of a message `m`, for the fields of `MessageRow` except the last three.

    Args:
        joined: Whether the statement has `SHARED_BODY`. The policies of the table of bodies are set up once then, and
            not for each part of a body. The rows that a deletion returns cannot be joined.
    """
    text_form = {"json_body": "::text", "body_types": "::text"}
    parts = body_columns()
    if joined:
        parts = {name: f"case when m.body_id is null then m.{name} else b.{name} end" for name in BODY_COLUMNS}
    bodies = ", ".join(f"{body}{text_form.get(name, '')}" for name, body in parts.items())
    return f"""
        m.inverse_priority, m.sequence, m.jms_message_id::text, m.jms_timestamp, m.jms_expiration, m.jms_delivery_mode,
        m.message_type::text, m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.properties::text,
        m.property_types::text, {bodies}, m.jms_delivery_time"""


def and_chosen(selector: Selector | None) -> SelectorSQL:
    """Return a selector's further condition on a message `m`, and its parameters."""
    if selector is None:
        return SelectorSQL("", {})
    condition, parameters = selector.to_sql()
    return SelectorSQL(f"and ({condition})", parameters)
