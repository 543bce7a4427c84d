"""Stored results without a worker that stores them."""

from __future__ import annotations

import psycopg


def keep(
    url: str, queue: str, state: str, count: int = 1, *, value: str | None = None, error: str | None = None
) -> list[str]:
    """Store results of a queue, each later than the one before, and return the identifiers of their messages."""
    with psycopg.connect(url, autocommit=True) as database:
        kept = database.execute(
            "insert into jmsql_internal.result (message_id, queue_id, deliveries, sent_at, started_at, finished_at, "
            "kept_until, state, value, error) "
            "select gen_random_uuid(), q.queue_id, 2, now() - interval '1 min', t.at - interval '1.5 s', t.at, "
            "now() + interval '1 day', %s, %s::json, %s from jmsql_internal.queue q, generate_series(1, %s) n, "
            "lateral (select clock_timestamp() + n * interval '1 microsecond' as at) t where q.name = %s "
            "returning message_id::text",
            [state, value, error, count, queue],
        )
        return [f"ID:{each}" for (each,) in kept]
