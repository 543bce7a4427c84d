"""The notifications of clients: which queue to read again, and from where.

Every role may notify on any channel. Payloads that jmsql cannot have written are therefore ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Self

from jmsql.store.rows.message_rows import GroupKey, MessageKey
from jmsql.store.statement import Query, SqlFile, Steps, nothing

DELAYED_CHANNEL = 0
"""Stands, in a notification, where the number of a queue or topic does: some message is delivered later."""

SCHEDULES_CHANNEL = -(2**31)
"""Stands there likewise: a schedule was made or changed. No topic has this number."""
BATCHES_CHANNEL = -(2**31) + 1
"""Stands in a notification for a queue's number if a batch may have ended."""

_FORM = re.compile(
    r"(?P<channel>-?[0-9]{1,10})"
    r"(?: (?P<group_hash>-?[0-9]{1,19})| (?P<inverse_priority>[0-9]) (?P<sequence>[0-9]{1,19}))?"
)
_INTEGER = range(-(2**31), 2**31)
_BIGINT = range(-(2**63), 2**63)

MOST_GROUPS = 20
"""The most groups that a notification names. Beyond that, consumers are told of the queues, and find the groups."""


_notify = SqlFile("control").statement("notify", "notifying", nothing)
_destinations = SqlFile("destinations")
_notify_queues = _destinations.statement("notify_queues", "notifying", nothing)
_notify_topics = _destinations.statement("notify_topics", "notifying", nothing)


class Notification(NamedTuple):
    """A queue's notification.

    `channel` is the queue's number, or a number for a topic or for delayed messages. `key` is the message that was
    released, the group that is free again, or None for a new message. A key with the sequence 0 says that the whole
    queue was paused, resumed or deleted.
    """

    channel: int
    key: MessageKey | GroupKey | None = None

    @classmethod
    def parse(cls, payload: str) -> Self | None:
        """Read a notification's payload; return None if no client has written it."""
        form = _FORM.fullmatch(payload)
        if form is None:
            return None
        numbers = {name: int(text) for name, text in form.groupdict().items() if text is not None}
        channel = numbers.pop("channel")
        if channel not in _INTEGER or any(number not in _BIGINT for number in numbers.values()):
            return None
        if "sequence" in numbers:
            return cls(channel, MessageKey(channel, **numbers))
        return cls(channel, GroupKey(channel, **numbers) if numbers else None)

    @property
    def is_of_new_messages(self) -> bool:
        """True if it is of available messages alone."""
        return self.key is None and self.channel != DELAYED_CHANNEL

    def payload(self) -> str:
        """Return its payload."""
        if isinstance(self.key, MessageKey):
            return f"{self.channel} {self.key.inverse_priority} {self.key.sequence}"
        return f"{self.channel} {self.key.group_hash}" if self.key is not None else f"{self.channel}"


def combine(notifications: Iterable[Notification]) -> list[Notification]:
    """Leave out doubles, and name queues instead of groups if there are too many of those."""
    remaining = set(notifications)
    groups = {notification for notification in remaining if isinstance(notification.key, GroupKey)}
    if len(groups) > MOST_GROUPS:
        remaining = remaining - groups | {Notification(notification.channel) for notification in groups}
    return list(remaining)


def notify(payloads: Sequence[str]) -> Query[None]:
    """Notify all clients."""
    return _notify.bind(payloads=list(payloads))


def notify_sent(queues: Collection[str], topics: Collection[str], *, delayed: bool) -> Steps[None]:
    """Tell all clients, with the commit of the open transaction, that destinations have new messages."""
    if delayed:
        yield from notify([str(DELAYED_CHANNEL)])
    if queues:
        yield from _notify_queues.bind(names=list(queues))
    if topics:
        yield from _notify_topics.bind(names=list(topics))
