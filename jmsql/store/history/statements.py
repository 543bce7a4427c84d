"""The part of a deletion of messages that copies them to the history of their destination, if it keeps one."""

from __future__ import annotations

__all__ = ["RECORDED", "history"]

RECORDED = "(select true from history)"
"""The condition of a deletion that comes after the part `history`."""


def history(
    internal: str,
    *,
    queues: str,
    addresses: str,
    deliveries: str,
    outcome: str = "acknowledged",
    consumer: str = "null",
) -> str:
    """Return the common table expression `history`, which the deletion waits for by its condition `RECORDED`.

    The function that copies sees as deleted what the statement has deleted by then. So it comes first, and is given
    what it could not read any more.

    Args:
        internal: The schema of the tables, as it stands in the statement.
        queues: The numbers of the messages' queues, an integer array.
        addresses: Where the messages are, a tid array. Their rows are locked.
        deliveries: How often each was delivered before, an integer array or null.
        outcome: How they end.
        consumer: The number of the connection that ends them, or null.
    """
    return f"""history as materialized (
                select case when exists (select from {internal}.queue q
                where q.history and q.queue_id = any({queues}))
                       then {internal}.keep_history({addresses}, {deliveries}, '{outcome}', {consumer}) end)"""
