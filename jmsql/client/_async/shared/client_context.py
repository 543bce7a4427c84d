"""A client as its sessions see it: its control connection, pool, destinations, counters and settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from jmsql.concurrency.tasks import RLock, run_to_completion
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.control.counters import Counts, measure
from jmsql.store.sending.notification import DELAYED_CHANNEL
from jmsql.store.sending.send import Publisher

if TYPE_CHECKING:
    from jmsql.client._async.link.pool import ConnectionPool
    from jmsql.client._async.shared.connection_destinations import ConnectionDestinations
    from jmsql.client._async.shared.redelivery import Redelivery
    from jmsql.client._async.shared.side_connection import SideConnection
    from jmsql.client._async.shared.subscription_registry import SubscriptionRegistry
    from jmsql.client.send_buffer import News
    from jmsql.client.start_reminder import StartReminder
    from jmsql.store.control.control import ControlConnection
    from jmsql.store.control.counters import DestinationCounters
    from jmsql.store.control.server import ServerClock
    from jmsql.store.receiving.reader import ScanPositions
    from jmsql.store.rows.message_rows import MessageKey
    from jmsql.store.statement import Query, Steps
    from jmsql.timings import InternalTimings
    from jmsql.values.destinations import Destination


T = TypeVar("T")

logger = contained_logger("jmsql")

_TURNS = 32


# `Client` is the part that a session in the caller's transaction has as well; `ClientContext` adds the links to the
# server. `started` and `closed` are written by `Connection` and `Sessions`, from any thread. A delivery reads them with
# the session's lock held: `stop` and `close` set them first, and wait for the locks of all sessions then.


@dataclass(eq=False, repr=False, kw_only=True)
class Client:
    """The owner of a session: a jmsql connection, or the application's transaction."""

    schema: str
    timings: InternalTimings
    clock: ServerClock
    counters: DestinationCounters | None
    """None: nothing is counted."""
    start_reminder: StartReminder
    started: bool = False
    closed: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class ClientContext(Client):
    """A connection as its sessions see it: its links to the server, and the state that it is in."""

    pool: ConnectionPool
    control: ControlConnection
    side: SideConnection
    """For statements outside of the sessions' transactions."""
    destinations: ConnectionDestinations
    subscription_registry: SubscriptionRegistry
    redelivery: Redelivery
    counters: DestinationCounters
    failed: Callable[[JMSException], Awaitable[None]]
    positions: ScanPositions
    """The positions of transacted consumers in their queues."""
    turns: Sequence[RLock] = field(default_factory=lambda: [RLock() for _ in range(_TURNS)])
    """Locks for the fetches of consumers that share a position. Queues whose numbers end alike have the same one."""
    client_id: str | None = None
    used: bool = False
    """True if it is too late to set the client identifier."""

    @property
    def is_restricted(self) -> bool:
        """True if policies decide which rows the role sees."""
        return self.control.server.is_restricted

    @property
    def publisher(self) -> Publisher:
        """The publisher of the sessions' messages to topics."""
        return Publisher(self.control.connection_id, self.client_id)

    async def run_beside(self, work: Steps[T]) -> T:
        """Run statements that differ each time beside the sessions' transactions; each commits by itself."""
        async with self.pool.turns:
            return await run_to_completion(self._run_beside(work))

    async def _run_beside(self, work: Steps[T]) -> T:
        async with self.pool.runner(prepares=False) as runner:
            return await runner.run(work)

    def waited_for(self, destinations: Collection[Destination]) -> Query[list[int]] | None:
        """Return what asks, in the exchange of a commit, for which destinations somebody waits; None: tell of all."""
        try:
            channels = [*map(self.destinations.numbers.__getitem__, destinations)]
        except KeyError:
            return None
        return self.control.notifier.waited_for(channels) if channels else None

    async def sent(self, news: News, waited_for: Collection[int] | None = None) -> None:
        """Count a session's sent messages, and wake the consumers that wait for them.

        `waited_for` has the numbers of the destinations for which a consumer may wait; None: that was not asked, or not
        answered.
        """
        channels = []
        for destination, sent in news.destinations.items():
            number = self.destinations.numbers.get(destination)
            if number is None:
                try:
                    number = await self.destinations.look_up(destination)
                except JMSException as error:  # no error of the send, which is committed
                    logger.info("Consumers of %s hear a little later of what was sent: %s", destination, error)
                    continue
            channels.append(number)
            self.counters.count(number, destination, Counts(sent=sent))
        self.control.notifier.sent(channels if waited_for is None else waited_for)
        if news.delayed:
            self.control.notifier.sent([DELAYED_CHANNEL])
        if news.conditional is not None:
            for destination, number in news.conditional.duplicates.items():
                measure(destination, Counts(duplicates=number))
            for destination, number in news.conditional.coalesced.items():
                measure(destination, Counts(coalesced=number))
            self.returned(news.conditional.locked)

    def returned(self, keys: Sequence[MessageKey]) -> None:
        """Wake those that wait for messages which a session has released."""
        if keys:
            self.control.notifier.returned(keys)
