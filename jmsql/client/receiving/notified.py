"""Notifications of a queue between two fetches of one consumer."""

from __future__ import annotations

import threading

from jmsql.store.receiving.reader import QueueReader
from jmsql.store.rows.message_rows import GroupKey, MessageKey

# A notification names a message or a group that is free again, or nothing: then something is new. Names matter because
# a released message lies below the place from which consumers fetch. Without them a consumer would have to go back to
# the front of its queue.


_MOST_GROUPS = 1000
"""The most freed groups that are remembered. Sweeps find the others."""


class QueueChanges:
    """How often a queue was paused, resumed or removed. Copies of a prefetch buffer share it."""

    def __init__(self) -> None:
        self.count = 0
        """It only grows: each source keeps the count that it has seen. Written by the thread of the control connection
        that hears of the change."""

    def add(self) -> None:
        """Note another change."""
        self.count += 1


class PendingNotifications:
    """Where the next fetch looks besides, since something is new or free again; any thread adds to it.

    Fetches read the fields without the lock. A notification that comes between the check and the fetch counts for the
    fetch after: it also wakes the consumer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_any = False
        """True if another client or session has notified. Any thread sets it; the fetching one unsets it."""
        self.released: dict[int, int] = {}
        """The lowest sequence of the released messages, for each inverse priority. Written under the lock."""
        self.freed: set[int] = set()
        """The groups that are free again. Written under the lock."""

    def notify(self, key: MessageKey | GroupKey | None) -> None:
        """Note that a message or a group is free again; None: something is new."""
        self.is_any = True
        if key is not None:
            self.add(key)

    def add(self, key: MessageKey | GroupKey) -> None:
        """Have the next fetch look at a message or a group, of which the consumer itself knows that it is free."""
        with self._lock:
            if isinstance(key, MessageKey) and key.group_hash is None:
                lowest = self.released.get(key.inverse_priority, key.sequence)
                self.released[key.inverse_priority] = min(lowest, key.sequence)
            elif key.group_hash is not None and len(self.freed) < _MOST_GROUPS:
                self.freed.add(key.group_hash)

    def heed(self) -> None:
        """Begin a fetch: earlier notifications are no news after it."""
        self.is_any = False

    def pass_on(self, reader: QueueReader) -> None:
        """Have a reader look at the released messages and freed groups."""
        # First the flag: a notification that comes after it sets it again, and is at worst looked at twice.
        self.is_any = False
        with self._lock:
            released, freed = self.released.copy(), self.freed.copy()
            self.released.clear()
            self.freed.clear()
        for inverse_priority, sequence in released.items():
            reader.returned(inverse_priority, sequence)
        for group in freed:
            reader.freed(group)
