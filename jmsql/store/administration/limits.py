"""The current limits of listeners: their use, and the messages that wait for them."""

from datetime import datetime
from typing import Any, NamedTuple

from jmsql.public_names import set_module
from jmsql.store.statement import Query, SqlFile, records
from jmsql.values.postgresql_text import from_postgresql

_WINDOW = 3000
"""How many values of limits are read, of the last 1,000 limits."""


@set_module("jmsql.admin")
class LimitNow(NamedTuple):
    """A limit of a listener over all workers, and its current use."""

    number: int
    """The number of the queue or subscription, as in an overview."""
    destination: str
    """The name of the queue, or of the topic."""
    subscription: str | None
    subscription_client_id: str | None
    selector: str | None
    """The listener's selector; None: it has none."""
    listeners: str | None
    """The names of the listeners that receive now; None: no worker runs."""
    kind: str
    """``rate``: messages that start in a time; ``at_most``: messages that are handled at a time."""
    most: int
    """The limit."""
    per: float | None
    """Of a rate: the seconds in which so many messages start."""
    by: str | None
    """The property or header whose values are limited each; None: one limit for all."""
    values: int
    """How many values were used lately; without `by` at most one."""
    used: int
    """How many messages have started in the last `per` seconds, or are handled now, of all values."""
    met: int
    """How many values are at their limit: further messages of theirs wait."""
    waiting: int | None
    """How many messages wait for it, of the first 1,000 of the queue; None: the listener has a selector."""
    free_at: datetime | None
    """When the next message that waits for a rate may start."""
    met_values: list[str]
    """The first five of the values that are at their limit; empty: messages without the property, or all messages."""

    @property
    def rule(self) -> str:
        """The limit in words, such as ``5 in 1 s for each tenant``."""
        text = f"{self.most:,} at a time" if self.per is None else f"{self.most:,} in {self.per:g} s"
        return text if self.by is None else f"{text} for each {self.by}"


def _read(text: str | None) -> str | None:
    return None if text is None else from_postgresql(text)


def _to_limit(row: tuple[Any, ...]) -> LimitNow:
    found = LimitNow._make(row)
    return found._replace(
        subscription=_read(found.subscription),
        subscription_client_id=_read(found.subscription_client_id),
        selector=_read(found.selector),
        listeners=_read(found.listeners),
        by=_read(found.by),
        met_values=[from_postgresql(each) for each in found.met_values],
    )


_limits = SqlFile("limits").statement("limits", "looking at limits", records(_to_limit))


def limits_now(limit: int, *, queue_id: int | None = None, like: str | None = None) -> Query[list[LimitNow]]:
    """Return limits, those that hold messages back first.

    Args:
        limit: How many at most.
        queue_id: The queue, or a subscription's queue; None: all.
        like: A pattern as for SQL's LIKE, for the name of the destination or subscription; None: all.
    """
    return _limits.bind(limit=limit, queue_id=queue_id, like=like, window=_WINDOW)
