"""A transaction's sent messages that are not inserted yet."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from jmsql.store.sending.conditional import ConditionalMessage, ConditionalSends
from jmsql.store.sending.send import FEWEST_COPIED, last_insertion, publish, send
from jmsql.values.destinations import Destination, Topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jmsql.store.rows.message_rows import OutgoingMessage
    from jmsql.store.sending.send import Publisher
    from jmsql.store.statement import Query, Steps


# Messages leave in batches, one for all queues, one for each topic, and apart those with a delivery delay, which go
# into another table. Each destination gets its messages in the order of the sends.
#
# A batch is inserted when 500 messages or 4 MiB are collected, before anything that must see it, or with the commit.
# Fewer than 50 messages for queues, all without conditions, travel in the exchange of the commit itself
# (`can_go_with_commit`). More are copied, which a pipeline cannot do, and a topic's subscriptions have to be known
# before (decision 41).


_MOST_MESSAGES = 500
_MOST_BYTES = 4 * 1024 * 1024


class News(NamedTuple):
    """Notifications for other clients.

    Args:
        destinations: How many messages were sent to each destination.
        delayed: True if some of them are delivered later.
        conditional: The outcomes of messages that were sent under conditions; None: there were none.
    """

    destinations: Mapping[Destination, int]
    delayed: bool
    conditional: ConditionalSends | None = None


@dataclass(slots=True, eq=False)
class _Run:
    """Messages to one destination that were sent one after the other, all of them delayed or none."""

    destination: Destination
    delayed: bool
    messages: list[OutgoingMessage] = field(default_factory=list)
    size: int = 0

    @property
    def batch(self) -> tuple[Topic | None, bool]:
        """The batch that a message belongs to: all for queues, or for one topic; delayed ones apart."""
        return self.destination if isinstance(self.destination, Topic) else None, self.delayed


def _messages(runs: Iterable[_Run]) -> list[OutgoingMessage]:
    return list(chain.from_iterable(run.messages for run in runs))


def _insertion(
    topic: Topic | None, publisher: Publisher, messages: Sequence[OutgoingMessage], *, flush: bool
) -> Steps[None]:
    return send(messages, flush=flush) if topic is None else publish(topic, messages, publisher, flush=flush)


class SendBuffer:
    """Collects a transaction's messages, so that they travel in batches."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        # All of a transaction's buffer is written under the lock of its work (`SessionWork.lock`). In sessions without
        # transactions, a send under conditions and a batch of asynchronous sends have a buffer each, for themselves.
        self._count = 0
        """How many messages are collected. Written by `add`, the insertions, `clear` and `ended`."""
        self._bytes = 0
        """About how many bytes they have. Written with the count."""
        self._inserted = Counter[Destination]()
        """The messages that the transaction has inserted, by destination. Written by the insertions, and at the end."""
        self._has_inserted_delayed = False
        """True if one of those is delayed. Written with them."""
        self._conditional: ConditionalSends | None = None
        """The transaction's messages under conditions; None: it has sent none."""
        self.is_used = False
        """True if the transaction has sent a message."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """True if enough is collected for a batch."""
        return self._count >= _MOST_MESSAGES or self._bytes >= _MOST_BYTES

    @property
    def has_conditional(self) -> bool:
        """True if some of the messages that are collected are sent under conditions."""
        return self._conditional is not None and bool(self._conditional.collected)

    @property
    def has_replacing(self) -> bool:
        """True if some of those replace messages that wait."""
        return self._conditional is not None and any(each.conditions.replaces for each in self._conditional.collected)

    @property
    def has_inserted(self) -> bool:
        """True if messages of the transaction are inserted."""
        return bool(self._inserted)

    @property
    def destinations(self) -> set[Destination]:
        """The destinations that the transaction has sent to."""
        return {*self._inserted, *(run.destination for run in self._runs)}

    def clear(self) -> None:
        """Forget the messages that are collected."""
        self._runs.clear()
        self._count = self._bytes = 0
        if self._conditional is not None:
            self._conditional.collected.clear()
        self.is_used = bool(self._inserted)

    def add(self, destination: Destination, message: OutgoingMessage, size: int) -> None:
        """Collect a message."""
        self.is_used = True
        if type(message) is ConditionalMessage:
            if self._conditional is None:
                self._conditional = ConditionalSends()
            self._conditional.collected.append(message)
        delayed = message.jms_delivery_time is not None
        run = self._runs[-1] if self._runs else None
        # Most messages go where the one before has gone; comparing destinations takes longer.
        if run is None or run.destination is not destination or run.delayed is not delayed:
            run = _Run(destination, delayed)
            self._runs.append(run)
        run.messages.append(message)
        run.size += size
        self._count += 1
        self._bytes += size

    def flush(self, publisher: Publisher, *, flush: bool = True) -> Steps[None]:
        """Insert the collected messages, in the open transaction. Each destination gets its messages in their order.

        After an error only messages that were not inserted are kept, for another attempt.

        With `flush=False` the commit does not wait for the disk.
        """
        for (topic, _), runs in self._batches().items():
            messages = _messages(runs)
            if self._conditional is not None and self.has_conditional:
                yield from self._conditional.send(topic, messages, partial(_insertion, topic, publisher, flush=flush))
            else:
                yield from _insertion(topic, publisher, messages, flush=flush)
            self._were_inserted(runs)
        if self._conditional is not None:
            self._conditional.collected.clear()

    @property
    def can_go_with_commit(self) -> bool:
        """True if the messages can be inserted together with the commit: few, all for queues, and no conditions."""
        return (
            self._count < FEWEST_COPIED
            and self._conditional is None
            and not any(isinstance(run.destination, Topic) for run in self._runs)
        )

    def last_insertions(self) -> list[Query[Any]]:
        """Return the statements that insert the messages together with the commit, after which `ended` is called."""
        return [last_insertion(_messages(runs)) for runs in self._batches().values()]

    def _batches(self) -> dict[tuple[Topic | None, bool], list[_Run]]:
        batches: dict[tuple[Topic | None, bool], list[_Run]] = {}
        for run in self._runs:
            batches.setdefault(run.batch, []).append(run)
        return batches

    def _were_inserted(self, runs: list[_Run]) -> None:
        for run in runs:
            self._runs.remove(run)
            self._count -= len(run.messages)
            self._bytes -= run.size
            self._inserted[run.destination] += len(run.messages)
            self._has_inserted_delayed |= run.delayed

    def ended(self) -> News:
        """Forget the transaction, and return its sent messages, inserted and collected."""
        self._were_inserted(list(self._runs))
        if self._conditional is not None:
            self._inserted -= self._conditional.unsent
        news = News(self._inserted, self._has_inserted_delayed, self._conditional)
        self._conditional = None
        self._inserted = Counter()
        self._has_inserted_delayed = False
        self.clear()
        return news
