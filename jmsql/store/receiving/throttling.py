"""Limits of listeners over all workers: declaring them, and showing that the client of the handlers lives."""

from __future__ import annotations

from collections.abc import Iterable

from jmsql.store.statement import Query, SqlFile, integers_literal, nothing, value
from jmsql.values.rates import ListenerLimit

# A slot is a claim of a handler, so it ends with the claim in all ways in which a message can end. Two cases need the
# presence of its client: a client that lost its control connection has lost its claims, while its handlers may run on;
# and a process that is frozen keeps its claims, and must not keep its slots (decision 87).


_sql = SqlFile("throttling")
_declare = _sql.statement("declare", "declaring the limit of a listener", nothing)
_show_presence = _sql.statement("show_presence", "holding the slots of handlers", value(int))
_end_presence = _sql.statement("end_presence", "giving the slots of handlers back", nothing)
forget_limits = _sql.statement("forget_limits", "forgetting limits", nothing).bind()
"""Removes the limits, and their usage, that nothing has used for a while."""


def declare(queue_id: int, chosen: str, limit: ListenerLimit, *, replaces: bool) -> Query[None]:
    """Declare the limits of the listeners of a queue and a selector.

    Args:
        queue_id: The queue.
        chosen: The text of the selector; empty without one.
        limit: The limits.
        replaces: True to replace existing limits.
    """
    rate, at_most = limit
    return _declare.bind(
        queue_id=queue_id,
        chosen=chosen,
        rate=None if rate is None else rate.count,
        per=None if rate is None else rate.per,
        rate_by=None if rate is None else rate.by,
        at_most=None if at_most is None else at_most.count,
        at_most_by=None if at_most is None else at_most.by,
        replaces=replaces,
    )


def show_presence(
    holder_id: int, connection_id: int, running: Iterable[int], duration: float, *, was_shown: bool
) -> Query[int]:
    """Show that a client lives that holds slots.

    Returns 0, or, if that comes too late, a number: the slots of all claims below it are lost.

    Args:
        holder_id: Its number, the same for as long as it lives.
        connection_id: The number of its connection, another one after each loss.
        running: The sequences of the messages that its handlers have.
        duration: For how many seconds it keeps the slots without showing it again.
        was_shown: True if it has shown that before.
    """
    return _show_presence.bind(
        holder_id=holder_id,
        connection_id=connection_id,
        running=integers_literal(running),
        duration=duration,
        was_shown=was_shown,
    )


def end_presence(holder_id: int) -> Query[None]:
    """Give the slots of a client back that ends."""
    return _end_presence.bind(holder_id=holder_id)
