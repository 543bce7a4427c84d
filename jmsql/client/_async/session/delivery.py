"""How messages come to a session in batches, of which it holds those that are not delivered yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.store.rows.message_rows import MessageKey, MessageRow

if TYPE_CHECKING:
    from jmsql.store.receiving.progress import ClaimedMessage
    from jmsql.store.receiving.receive import Fetch


# A delivery answers `next` in up to three steps, from the cheapest to the dearest: `pop_buffered` needs no statement,
# `next_held` may have to record the delivery or to drop stale messages, and `fetch` asks the store. There are three
# kinds: `Locks` for transactions, `Claims` for sessions without, and `_HandlerLocks` for a worker's transacted
# listener, whose sessions share the messages of one `HandlerClaims`.
#
# `next` returns a message that counts as delivered by then. A caller that raised after that would lose it, so
# `Receiving` awaits it by `run_to_completion`. The task of a session's listeners does not: only the end of the event
# loop cancels it.


Accept = Callable[[MessageRow], object]
"""Raises an exception if a message is not wanted as it is, which then stays where it was."""

NotifyReleased = Callable[[Sequence[MessageKey]], None]
"""Tells consumers of messages and groups that are free again."""


class Delivery(ABC):
    """A way to fetch messages from the store, and to hand them out one by one."""

    shares_position = False
    """True if consumers of one client go on in a queue where the last one ended."""

    @property
    @abstractmethod
    def operation(self) -> Fetch:
        """The store's operation that hands out messages."""

    @property
    @abstractmethod
    def has_delivered(self) -> bool:
        """True if anything was delivered that is not acknowledged, nor committed."""

    def pop_dead_letter(self) -> bool:
        """Return whether a handler's message has become a dead letter with the last release, once."""
        return False

    @property
    def claimed(self) -> ClaimedMessage | None:
        """The claimed message that a handler has, of a chunk the first one; None: there is none."""
        return None

    @abstractmethod
    def pop_buffered(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, if that takes no statement."""

    async def next(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message, now delivered, or None. `Receiving` awaits it by `run_to_completion`."""
        while True:
            row = None
            if buffer.held.rows:
                row = self.pop_buffered(buffer) or await self.next_held(buffer)
            if row is not None or not await self.fetch(buffer, buffer.next_limit()):
                return row

    @abstractmethod
    async def next_held(self, buffer: PrefetchBuffer) -> MessageRow | None:
        """Return the next message that was fetched before, now delivered, or None if there is none."""

    @abstractmethod
    async def fetch(self, buffer: PrefetchBuffer, limit: int) -> bool:
        """Fetch up to `limit` messages; return whether there are any."""
