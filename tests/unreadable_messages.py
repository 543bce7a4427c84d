"""Messages that other programs have stored, and that nobody can read."""

from __future__ import annotations

import psycopg

NESTED = "[" * 5000 + "]" * 5000
UNREADABLE = {
    "an answer to nowhere": ("TextMessage", "", None, "text", None),
    "an answer to another system": ("TextMessage", "amqp://answers", None, "text", None),
    "a huge number": ("TextMessage", None, '{"color": "blue", "huge": 1e400}', "text", None),
    "a number of very many digits": ("TextMessage", None, '{"huge": 1e5000}', "text", None),
    "a number beyond 64 bits": ("TextMessage", None, '{"large": 9223372036854775808}', "text", None),
    "a group of no string": ("TextMessage", None, '{"JMSXGroupID": 5}', "text", None),
    "a nested property": ("TextMessage", None, f'{{"nested": {NESTED}}}', "text", None),
    "a nested body": ("ObjectMessage", None, None, None, NESTED),
    "a body nested less": ("ObjectMessage", None, None, None, "[" * 400 + "]" * 400),
    "a map of no object": ("MapMessage", None, None, None, "[1]"),
    "a stream of no array": ("StreamMessage", None, None, None, '{"a": 1}'),
    "a stray escape": ("TextMessage", None, '{"text": "\ufffex"}', "text \ufffex", None),
}
"""What an INSERT of one's own may store: type, reply_to, properties, text and JSON."""

READABLE = {"a group of no string", "a stray escape"}
"""Nobody could send them with a client, but they can be read."""

INSERT = """
    insert into jmsql_internal.message (queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode,
        message_type, jms_reply_to, properties, text_body, json_body)
    select queue_id, 5, gen_random_uuid(), 1000, 2, %s::jmsql_internal.message_type, %s, %s::jsonb, %s, %s::jsonb
    from jmsql_internal.queue where name = %s
    returning 'ID:' || jms_message_id
    """


def store_unreadable(connection: psycopg.Connection, queue: str) -> dict[str, str]:
    """Store all of them in a queue that is there; return their identifiers by what is wrong with them."""
    ids = {}
    for wrong, columns in UNREADABLE.items():
        row = connection.execute(INSERT, [*columns, queue]).fetchone()
        assert row is not None
        ids[wrong] = row[0]
    return ids
