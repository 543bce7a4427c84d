"""The progress of messages, as if handlers had reported it."""

from __future__ import annotations

import psycopg

_CLAIMED = """
    insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, claim_id, claimed_at)
    select m.queue_id, m.inverse_priority, m.sequence, 7, now() from jmsql_internal.message m
    """
_REPORTED = """
    insert into jmsql_internal.reported_progress
    select m.queue_id, m.inverse_priority, m.sequence, 7, %s, %s, now() from jmsql_internal.message m
    """


def report_progress(url: str, fraction: float, note: str) -> None:
    """Claim all messages, and report the same progress of each."""
    with psycopg.connect(url) as database:
        database.execute(_CLAIMED)
        database.execute(_REPORTED, [fraction, note])
