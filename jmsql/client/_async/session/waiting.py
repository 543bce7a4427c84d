"""How sessions wait for messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsql.client.pacing import PollInterval
from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.store.control.wake_ups import Competition, Look, Wait
from jmsql.timings import jitter
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.client._async.link.lease import Lease
    from jmsql.client._async.session.delivery import Delivery
    from jmsql.client._async.session.session_state import SessionState
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.listened_queues import ListenedQueues


# How no notification is lost: the notifications of the session and of its queues are counted before the statement runs.
# `before_fetch` keeps both counts, and `wait` ends at once if there are more by then. Counts only grow: a reader
# needs no lock.
#
# How few are woken: consumers of a client that receive from the same queue by the same selector compete. A notification
# wakes one of them (`Wait.is_chosen`). If it finds a message and not the end of the queue, it wakes another one
# (`wake_more`); if it does not fetch after all, since it was closed or cancelled, it passes the turn on (`_pass_on`).
#
# Polling is the fallback for messages without a notification: the sender was killed, or a rollback released them.
# Pauses double up to `maximum_poll_interval`. After that the control connection polls for all consumers of the client,
# unless it is lost, or a consumer may wait at a queue that no longer exists (`may_be_gone`).


class Waiting(ABC):
    """How a consumer waits between its looks for messages."""

    @abstractmethod
    def before_fetch(self, news: int, buffers: Sequence[PrefetchBuffer], look: Look | None = None) -> None:
        """Note how much news there is before a look, or was before one that has found nothing.

        Args:
            news: How much there was of the session itself, before anything else about it was asked.
            buffers: Whose queues are looked at; none: there is no look, since nothing is delivered now.
            look: The one that has found nothing.
        """

    @abstractmethod
    def after_fetch(self, *, found: bool) -> None:
        """Note the end of a look.

        Args:
            found: Whether there was a message. Then there may be more, for others, if it has not seen the end.
        """

    @abstractmethod
    async def wait(self, most: float | None = None) -> None:
        """Wait until it is time to look.

        Args:
            most: At most how many seconds; None: for ever.
        """

    @abstractmethod
    def close(self) -> None:
        """End the waits."""


class Watch(Waiting):
    """The waits of a session between its looks for messages.

    A wait ends when there is news, a little later if others were faster the last times, and now and then for a look of
    its own, ever more seldom. Then the control connection looks for all consumers together, as long as it can.

    Args:
        state: The session's.
        client: The session's connection.
        poll: How long the pauses are.
        database: Its connection to the server, if it looks by that.
        delivery: How messages come to it, if it looks at once when it is woken, so that no other one that waits for the
            same messages needs to.
        queues: Where it waits for several queues; None: it never waits for more than one.
    """

    def __init__(
        self,
        state: SessionState,
        client: ClientContext,
        poll: PollInterval,
        database: Lease | None = None,
        delivery: Delivery | None = None,
        queues: ListenedQueues | None = None,
    ) -> None:
        # One call of `receive`, or the thread or task of one `dispatch`, has this object, and writes all of its fields.
        self._state = state
        self._client = client
        self._database = database
        self._delivery = delivery
        self._poll = poll
        self._wake_ups = client.control.wake_ups
        self._queues = queues
        self._buffers: Sequence[PrefetchBuffer] = ()
        self._channels: tuple[int, ...] = ()
        self._news = self._count = self._ends_seen = 0
        self._look: Look | None = None
        self._chosen: Wait | None = None
        if not client.control.is_attentive:  # the control connection does not look for it: pauses begin short
            poll.reset()

    def before_fetch(self, news: int, buffers: Sequence[PrefetchBuffer], look: Look | None = None) -> None:
        self._news = news
        self._buffers = buffers
        buffer = self._buffer
        self._ends_seen = 0 if buffer is None else buffer.emptiness.ends_seen
        if look is None:
            self._channels = () if buffer is None else buffer.source.channels
            self._count = self._wake_ups.count(self._channels)
            competition = self._competition()
            self._look = None if competition is None else self._wake_ups.start_fetch(competition, self._channels)
        else:
            self._channels, self._count = look.channels, look.heard
            self._look = self._chosen = None

    def after_fetch(self, *, found: bool) -> None:
        chosen, self._chosen = self._chosen, None
        buffer = self._buffer
        is_end = not found or (buffer is not None and buffer.emptiness.ends_seen != self._ends_seen)
        is_end = is_end and (buffer is None or buffer.policy.throttle is None)
        if found:
            self._poll.reset()
            if not is_end and chosen is not None and chosen.competition is not None:
                self._wake_ups.wake_more(chosen.competition)
        if is_end and self._look is not None:
            self._wake_ups.record_empty(self._look)

    async def wait(self, most: float | None = None) -> None:
        self._pass_on()
        buffer, several = self._buffer, self._several
        if several is not None and several.has_late_news:
            return
        if buffer is not None and buffer.source.channels != self._channels:
            return  # the look has found another queue of the name, which was not heard so far
        notifications = self._state.notifications
        deadline = None if most is None else monotonic() + most
        rest = several.rest if several is not None else 0.0 if buffer is None else buffer.rest
        if rest > 0:
            await notifications.wait(self._news, rest if most is None else min(rest, most))
        competition = self._competition()
        if self._client.control.is_attentive:
            # A session with hundreds of listeners polls all of their queues, and nothing else meanwhile.
            self._poll.stretch(max(self._wake_ups.waited_for, len(self._buffers)))
        while True:
            is_replaced = self._poll.is_longest and self._client.control.is_attentive and self._is_seen_by_others
            # Sessions that share connections go on, rarely: the pool closes a connection too many as it comes back.
            looks = not is_replaced or (self._database is not None and self._database.shares_connections)
            pause: float | None = None
            if is_replaced:
                pause = self._client.timings.shared_poll_interval * jitter.uniform(0.8, 1.2)
            elif self._client.started:
                pause = self._poll.next()
            if deadline is not None:
                remaining = max(deadline - monotonic(), 0.0)
                pause = remaining if pause is None else min(pause, remaining)
            await self._wait_for_news(competition, pause)
            if looks or notifications.count != self._news or (deadline is not None and monotonic() >= deadline):
                return

    async def _wait_for_news(self, competition: Competition | None, most: float | None) -> None:
        """Wait until there is news of the queues of the last look or of the session, at most so many seconds."""
        notifications = self._state.notifications
        if (several := self._several) is not None:
            with several.news:
                await notifications.wait(self._news, most)
            return
        with Wait(self._wake_ups, competition, self._channels, self._count, notifications.notify) as wait:
            await notifications.wait(self._news, most)
        if wait.is_chosen:
            self._chosen = wait

    def close(self) -> None:
        self._pass_on()

    @property
    def _buffer(self) -> PrefetchBuffer | None:
        """Where the messages of the last look came to, if it was at one queue."""
        return self._buffers[0] if len(self._buffers) == 1 else None

    @property
    def _several(self) -> ListenedQueues | None:
        """The queues of the last look, if there were several."""
        return self._queues if len(self._buffers) > 1 else None

    @property
    def _is_seen_by_others(self) -> bool:
        """True if the control connection finds the same messages: it knows queues by their numbers."""
        buffer, several = self._buffer, self._several
        if several is not None:
            return several.are_known
        return buffer is not None and not buffer.source.target.may_be_gone

    def _competition(self) -> Competition | None:
        """Return its competition, if any other member of that can fetch in its place.

        Not a session with unsettled messages, which may be the only one that gets more of the same groups.
        """
        if self._delivery is not None and not self._delivery.has_delivered and len(self._buffers) == 1:
            return self._buffers[0].source.competition
        return None

    def _pass_on(self) -> None:
        """Have another session look, if this one was woken and does not."""
        chosen, self._chosen = self._chosen, None
        if chosen is not None:
            chosen.pass_on()
