"""The queues that a session's listeners have, and those of them to look at now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsql.store.control.wake_ups import StandingWait
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsql.client.consumer_state import ConsumerState
    from jmsql.client.receiving.fetching import PrefetchBuffer
    from jmsql.store.control.wake_ups import WakeUps


# A message must not cost more in a session with 500 listeners than in one with ten. So all consumers are visited only
# after a change of the listeners or of a queue (`use`, `_listen`), and for a look at all queues, after a gap in the
# news or without any (`_begin_again`).
#
# A consumer is watched from its news, or its message, until a look finds nothing. Then it can find something later for
# three reasons, and for no other:
# - There is news of its channels: `StandingWait` collects it.
# - It is not unchanged: its queue is paused or gone, or it holds messages. Then it stays watched.
# - The session releases messages that it has delivered. So while the session has unsettled messages, all stay watched
#   that found nothing.


class ListenedQueues:
    """The queues of a session's listeners. The listeners' thread or task has it, and writes all fields.

    Args:
        wake_ups: Those of the client.
        wake: Ends the session's wait; may be called from any thread.
        interval: Seconds after which all queues are looked at in any case: a notification may be lost.
    """

    def __init__(self, wake_ups: WakeUps, wake: Callable[[], None], interval: float) -> None:
        self._wake_ups = wake_ups
        self._interval = interval
        self.news = StandingWait(wake_ups, wake)
        """The wait for news of all queues, if there are several."""
        self.buffers: Sequence[PrefetchBuffer] = ()
        """Where messages come to."""
        self._consumers: Sequence[ConsumerState] = ()
        """The consumers with listeners."""
        self._channels: dict[ConsumerState, tuple[int, ...]] = {}
        """Their channels, if there are several consumers."""
        self._listening: dict[int, list[ConsumerState]] = {}
        """The consumers by channel."""
        self._watched: dict[ConsumerState, None] = {}
        """Consumers that may find something, as far as is known, in the order of their turns."""
        self._found_empty: set[ConsumerState] = set()
        """Watched consumers whose last look found nothing, without news since."""
        self._asked: OrderedDict[ConsumerState, None] = OrderedDict()
        """Consumers that this round has not looked at yet."""
        self._notified: OrderedDict[ConsumerState, None] = OrderedDict()
        """The asked consumers with news, which come first."""
        self._late: OrderedDict[ConsumerState, None] = OrderedDict()
        """Other watched consumers with news, for the next round."""
        self._all_asked_at = 0.0
        """When all queues were looked at last, on the monotonic clock."""

    def use(self, consumers: Sequence[ConsumerState]) -> None:
        """Look at the queues of these consumers from now on."""
        if consumers is not self._consumers:
            self._consumers = consumers
            self.buffers = [consumer.buffer for consumer in consumers]
            former = self._channels
            self._listen()
            watched = [*self._watched, *(consumer for consumer in consumers if consumer not in former)]
            self._watched = dict.fromkeys(consumer for consumer in watched if consumer in self._channels)
            self._found_empty &= self._channels.keys()

    def begin_round(self, *, is_settled: bool) -> None:
        """Choose the consumers whose queues to look at: those with news, or all if none has any.

        To look at each queue for one message takes as long as there are queues. Now and then all are looked at even so.

        Args:
            is_settled: Whether the session has no unsettled messages.
        """
        self._asked = OrderedDict()
        told = self._told(is_settled=is_settled) if len(self._consumers) > 1 else None
        self._asked = told or OrderedDict.fromkeys(self._consumers)
        self._notified, self._late = self._late, OrderedDict()

    def _told(self, *, is_settled: bool) -> OrderedDict[ConsumerState, None]:
        self._hear()
        told: OrderedDict[ConsumerState, None] = OrderedDict()
        if monotonic() < self._all_asked_at + self._interval:
            for consumer in list(self._watched):
                if consumer not in self._found_empty or not consumer.buffer.is_unchanged:
                    told[consumer] = None
                elif is_settled:
                    self._leave(consumer)
        if not told:
            self._begin_again()
        return told

    def next(self) -> ConsumerState | None:
        """Return the next consumer of the round, one with news if there is any; None: the round is over."""
        if len(self._consumers) > 1:
            self._hear()
        while self._notified:
            consumer, _ = self._notified.popitem(last=False)
            if consumer in self._asked:
                del self._asked[consumer]
                return consumer
        return self._asked.popitem(last=False)[0] if self._asked else None

    @property
    def has_late_news(self) -> bool:
        """True if there has been news during the round that asks for another one."""
        return bool(self._late)

    def begin_look(self, consumer: ConsumerState) -> None:
        """Note that a look begins: earlier news is none after it."""
        if len(self._consumers) > 1:
            self._hear()
            self._late.pop(consumer, None)
            self._found_empty.discard(consumer)  # it has not, as long as the look may fail

    def end_look(self, consumer: ConsumerState, *, found: bool) -> None:
        """Note the end of a look, and whether there was a message."""
        if consumer not in self._channels:
            return
        self._watched[consumer] = None
        if found:
            self._found_empty.discard(consumer)
        else:
            self._found_empty.add(consumer)
        if consumer.buffer.source.channels != self._channels[consumer]:
            self._listen()  # the look has found another queue of the name, which was not heard so far

    def drop(self, consumer: ConsumerState) -> None:
        """Note that a consumer has no listener any more."""
        self._leave(consumer)
        self._late.pop(consumer, None)

    @property
    def are_known(self) -> bool:
        """True if the control connection finds the same messages: it knows queues by their numbers."""
        return not any(consumer.buffer.source.target.may_be_gone for consumer in self._watched)

    @property
    def rest(self) -> float:
        """For how many seconds all ignore notifications, since others were faster after the last ones."""
        shortest = 0.0
        for buffer in self.buffers:  # mostly the first one does not rest
            rest = buffer.rest
            if rest <= 0:
                return 0.0
            shortest = min(shortest, rest) if shortest else rest
        return shortest

    def close(self) -> None:
        """Hear nothing any more."""
        self._consumers = self.buffers = ()
        self._listen()

    def _leave(self, consumer: ConsumerState) -> None:
        self._watched.pop(consumer, None)
        self._found_empty.discard(consumer)

    def _begin_again(self) -> None:
        """Look at all queues."""
        self._listen()
        self._wake_ups.take_news(self.news)
        self._watched = dict.fromkeys(self._consumers)
        self._found_empty.clear()
        self._all_asked_at = monotonic()

    def _listen(self) -> None:
        """Hear the news of all queues; a single one is waited for in another way."""
        consumers = self._consumers if len(self._consumers) > 1 else ()
        self._channels = {consumer: consumer.buffer.source.channels for consumer in consumers}
        self._listening = {}
        for consumer, channels in self._channels.items():
            for channel in channels:
                self._listening.setdefault(channel, []).append(consumer)
        self._wake_ups.stand(self.news, frozenset(self._listening))

    def _hear(self) -> None:
        """Note the news since the last call."""
        if not self.news.new and not self.news.misses_news:
            return
        new, misses_news = self._wake_ups.take_news(self.news)
        if misses_news:
            self._begin_again()
            new = self._listening
        for channel in new:
            for consumer in self._listening.get(channel, ()):
                self._watched[consumer] = None
                self._found_empty.discard(consumer)
                notified = self._notified if consumer in self._asked else self._late
                notified[consumer] = None
