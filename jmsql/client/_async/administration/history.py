"""The history of destinations that keep one: a look at it, its way back to a queue, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, date, datetime

from jmsql.client._async.link.opening import ConnectionOnDemand
from jmsql.concurrency.functions import is_coroutine_function, name_of
from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.history import past_messages
from jmsql.store.history.partitions import HistoryDay, HistoryPartitions, PruneStep, days, held_message, today
from jmsql.store.history.past_messages import HistoryRange, PastMessage
from jmsql.store.saying import Saying
from jmsql.values.destinations import AnyDestination, AnyQueue, Destination, require_destination, require_queue

logger = contained_logger("jmsql")

# The history is partitioned by days in UTC. A message is found in it by the time at which it left, so questions with a
# time read few partitions, and those with an identifier read all. Pruning drops whole partitions where no destination
# keeps the day any longer, and deletes rows otherwise; it waits for readers, and acknowledgements do not wait for it.


OUTCOMES = ("acknowledged", "expired", "dead-lettered", "purged", "cancelled")
"""How a message leaves its destination."""


@set_module("jmsql.asyncio.admin")
class History:
    """The messages that have left destinations which keep history.

    Made by [`Administration.history`][jmsql.asyncio.admin.Administration.history]. Times are those at which messages
    left. Without a time zone they are this computer's.

    Args:
        link: The administration's.
        prune_lock_timeout: How many seconds `prune` waits for those who read the history.
        said: The administrator's words about its actions, for the activity.
    """

    def __init__(self, link: ConnectionOnDemand, prune_lock_timeout: float, said: Saying) -> None:
        self._link = link
        self._prune_lock_timeout = prune_lock_timeout
        self._said = said

    @property
    def _partitions(self) -> HistoryPartitions:
        return HistoryPartitions(
            patience=self._prune_lock_timeout,
            on_held=lambda day, sources: logger.warning(held_message(day, sources)),
            said=self._said.in_steps(),
        )

    def messages(
        self,
        destination: AnyDestination | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        selector: str | None = None,
        outcomes: Sequence[str] | None = None,
        subscription: str | None = None,
        limit: int = 100,
    ) -> AsyncIterator[PastMessage]:
        """Return the messages that were the last to leave, the very last one first.

        Args:
            destination: Where they were; None: anywhere.
            since: They left then or later. A time without a zone is this computer's, here and in `until`; in the hour
                that its clock repeats, `fold` says which of the two is meant.
            until: They left before.
            selector: Which of them; None: all.
            outcomes: How they left: "acknowledged", "expired", "dead-lettered", "purged" or "cancelled"; None: in any
                way.
            subscription: The name of the subscription to the topic; None: any.
            limit: The most to return.

        Raises:
            InvalidSelectorException: The selector has an error; the message shows where.
            ValueError: An outcome is not one of these.
        """
        which = _range(destination, since, until, selector, outcomes, subscription)
        return self._link.iterate(past_messages.read(which, limit))

    async def message(self, message_id: str) -> list[PastMessage]:
        """Return all entries for a message: one for each destination or subscription that it has left, the last first.

        All of the history is read for it.
        """
        return await self._link.run(past_messages.entries(message_id))

    async def count(
        self,
        destination: AnyDestination | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        selector: str | None = None,
        outcomes: Sequence[str] | None = None,
        subscription: str | None = None,
    ) -> int:
        """Return the number of messages; for the arguments, see `messages`."""
        return await self._link.run(
            past_messages.count(_range(destination, since, until, selector, outcomes, subscription))
        )

    async def replay(
        self,
        source: AnyDestination,
        target: AnyQueue,
        *,
        since: datetime,
        until: datetime | None = None,
        selector: str | None = None,
        outcomes: Sequence[str] = ("acknowledged",),
        subscription: str | None = None,
        keep_ids: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Send messages that left a destination to a queue again, in the order in which they were first sent.

        All of it is one transaction: when it fails, nothing was sent. A second call sends the messages again. A message
        that several subscriptions of a topic have had is sent once. Messages do not expire, and are not delayed again.
        The properties ``JMS_jmsql_ReplayedFrom`` and ``JMS_jmsql_ReplayedMessageID`` keep the old destination and
        identifier.

        Args:
            source: The queue or topic.
            target: The queue.
            since: They left then or later; read as for `messages`.
            until: They left before; None: by now.
            selector: Which of the messages; None: all.
            outcomes: How they left, as in `messages`.
            subscription: The name of the subscription whose messages they are; None: any.
            keep_ids: Whether they keep their JMSMessageID and JMSTimestamp, instead of new ones.
            progress: Called now and then with how many were sent and how many there are.

        Returns:
            How many were sent.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector has an error; the message shows where.
            TypeError: `progress` is a coroutine function, which nothing awaits inside the transaction.
            ValueError: An outcome is not one of these.
        """
        if is_coroutine_function(progress):
            raise TypeError(f"{name_of(progress)} is a coroutine function, and progress=… takes a plain one.")
        which = _range(source, since, until, selector, outcomes, subscription)
        name = require_queue(target).name
        said = self._said._replace(selector=selector)
        return await self._link.run(past_messages.replay(which, name, keep_ids=keep_ids, progress=progress, said=said))

    async def days(self) -> list[HistoryDay]:
        """Return the days in UTC that have a partition, the first one first."""
        return await self._link.run(days)

    async def readers(self, day: HistoryDay, destinations: Sequence[Destination] = ()) -> list[str]:
        """Return the streaming reads of Spark that have not passed a day, by their numbers in ``spark_sources``.

        Args:
            day: The day.
            destinations: Whose history of that day is meant; none named: all.
        """
        names = [destination.name for destination in destinations] or None
        return await self._link.run(self._partitions.cursors_before(day, names))

    async def today(self) -> date:
        """Return the day in UTC whose partition gets the messages that leave their destinations now."""
        return await self._link.run(today)

    def prune(
        self, *, before: date | None = None, destination: AnyDestination | None = None
    ) -> AsyncIterator[PruneStep]:
        """Remove messages that destinations keep no longer (`history_days`), or all that are older than a day.

        Clients do the former by themselves. It takes the rights of the schema's owner, and waits until the history is
        not being read, for a minute at most unless the factory's `timings` say otherwise; acknowledgements do not wait
        for it. Messages that streaming reads of Spark have not passed are kept, which is logged as a warning; with
        `before` they are removed, and those reads fail with an error that says so.

        Yields:
            The day and the number of messages that a step has removed. Each step commits.

        Raises:
            IllegalStateException: A transaction that is still open has acknowledged something in one of the days.
            ValueError: A destination is given, and no day.
        """
        if before is None:
            if destination is not None:
                raise ValueError("A destination can only be given together with a day (before=...).")
            return self._link.iterate(self._partitions.apply_retention())
        named = None if destination is None else require_destination(destination)
        return self._link.iterate(self._partitions.remove(before, named))


def _range(
    destination: AnyDestination | None,
    since: datetime | None,
    until: datetime | None,
    selector: str | None,
    outcomes: Sequence[str] | None,
    subscription: str | None,
) -> HistoryRange:
    for outcome in outcomes or ():
        if outcome not in OUTCOMES:
            raise ValueError(f"{outcome!r} is not an outcome; there are {', '.join(OUTCOMES)}.")
    return HistoryRange(
        None if destination is None else require_destination(destination),
        _timestamp(since),
        _timestamp(until),
        Selector.parse(selector),
        outcomes,
        subscription,
    )


def _timestamp(time: datetime | None) -> datetime | None:
    if time is None:
        return None
    try:
        return time.astimezone(UTC)
    except (ValueError, OverflowError):  # datetime.min and datetime.max, which say that there is no bound
        return time.replace(tzinfo=UTC)
