"""How many connections sessions share: each needs one only while it works."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from jmsql.concurrency.tasks import BackgroundTask
from jmsql.exceptions import ResourceAllocationException

T = TypeVar("T")
Exchanged = TypeVar("Exchanged")

_PATIENCE = 30.0
"""Seconds to wait for a connection, as SQLAlchemy's pools do."""


# All of this runs in one event loop, so that no lock is needed: code between two awaits is one step. For
# threads there is `NoLimit`: a session's connection would need a lock around each statement to be taken away, and a
# thread costs more than a connection (decision 36).
#
# Invariants:
#
# 1. `holders` and the connections that are being returned are never more than `most`.
# 2. The first session that waits is served first. A connection becomes its own in the step that chooses it, before its
#    task runs; no session that comes in between can take it.
# 3. A chosen session that is cancelled before it runs passes its turn on: with the connection, by `freed`; without, by
#    `_left`.
# 4. A connection moves from holder to holder directly. By way of the pool, checking it in and out takes longer than a
#    fetch. Only if the new holder cannot use it, since its transactions end in another way or it is lost, it goes back
#    to the pool.


class HeldLink(Protocol):
    """A connection in the hands of a session."""

    @property
    def is_lost(self) -> bool:
        """True if the connection is gone."""

    @property
    def occupation(self) -> str:
        """The use of the connection, as an attribute: "in an open transaction"."""


class Holder(Protocol[Exchanged]):
    """Takes a connection, and keeps it for later use."""

    @property
    def link(self) -> HeldLink:
        """The connection."""

    @property
    def is_transacted(self) -> bool:
        """True if the connection's transactions are ended explicitly, and not by each statement."""

    @property
    def is_spare(self) -> bool:
        """True if it has a connection that it does not need now."""

    def accept(self, connection: Exchanged, /) -> None:
        """Take the connection, and keep it."""

    def hand_over(self) -> Exchanged:
        """Give the connection up, and return it."""


class ConnectionLimit(Generic[T]):
    """Lets so many sessions have a connection.

    A session keeps its connection for later use. At the limit, a session that needs a connection gets it from another
    session that does not need it now. If all need theirs, it waits. Those that wait get connections in the order in
    which they came. A connection that is not needed any more goes to the first of them at once, also if that one's task
    runs later: so no session that comes meanwhile can take it.
    """

    can_be_set = True

    def __init__(self, give_back: Callable[[T], Coroutine[Any, Any, object]]) -> None:
        self.most: int | None = None
        """How many; None: all."""
        self._give_back = give_back
        self.holders: dict[Holder[T], None] = {}
        """The holders of a connection."""
        self.waiting: OrderedDict[Holder[T], asyncio.Future[bool]] = OrderedDict()
        """The waiting sessions, in turn. A connection that becomes free is not announced if there are none."""
        # Sessions whose turn has come and whose tasks have not run since; and whether they were given a connection.
        self._chosen: dict[Holder[T], bool] = {}
        # Connections on their way back to the pool. They still count against `most`.
        self._returning = 0

    async def take(self, holder: Holder[T], connect: Callable[[], Awaitable[T]], patience: float | None = None) -> bool:
        """Have a session accept a connection, once it may have one.

        Args:
            holder: The session, which has none.
            connect: Opens one, or takes one from the pool.
            patience: For how many seconds it waits, if that is less than anybody does; None: as long as anybody.

        Returns:
            Whether it has a connection; False: `patience` has ended.

        Raises:
            ResourceAllocationException: All connections are in use, and stay so for too long.
            JMSException: Connecting has failed.
        """
        if holder not in self.holders:
            turn = self.waiting[holder] = asyncio.get_running_loop().create_future()
            self._serve()
            if not await self._wait(holder, turn, patience):
                return False
            if self._chosen.pop(holder):
                return True
        try:
            holder.accept(await connect())
        except BaseException:
            self._left(holder)
            raise
        return True

    async def _wait(self, holder: Holder[T], turn: asyncio.Future[bool], patience: float | None) -> bool:
        """Wait for a session's turn, and return whether it came."""
        longest = _PATIENCE if patience is None else min(patience, _PATIENCE)
        timer = None if turn.done() else turn.get_loop().call_later(longest, partial(_end, turn, has_come=False))
        try:
            if await turn:
                return True
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():  # it has come meanwhile: it is the next one's
                has_connection = self._chosen.pop(holder)
                if has_connection:
                    self.freed()
                else:
                    self._left(holder)
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if self.waiting.get(holder) is turn:
                del self.waiting[holder]
        if patience is not None and patience < _PATIENCE:
            return False
        raise ResourceAllocationException(
            f"No connection became free within {_PATIENCE:g} s: the sessions may have {self.most}, of which "
            f"{self._occupations()}. End transactions sooner, close sessions that have used get_database(), or make "
            "the factory's max_connections larger."
        )

    def _occupations(self) -> str:
        """Return the uses of the connections."""
        counts = Counter(holder.link.occupation for holder in self.holders)
        phrases = [
            f"{number} {'is' if number == 1 else 'are'} {occupation}" for occupation, number in counts.most_common()
        ]
        return " and ".join(phrases)

    def freed(self) -> None:
        """Take note that a session does not need its connection for now."""
        if self.waiting:
            self._serve()

    def _left(self, holder: Holder[T]) -> None:
        """Take note that a session has no connection any more."""
        self.holders.pop(holder, None)
        self.freed()

    def returning(self, holder: Holder[T]) -> None:
        """Take note that a session gives its connection up, which others may have once it has `returned`."""
        self.holders.pop(holder, None)
        self._returning += 1

    def returned(self) -> None:
        """Take note that a connection that was returning is closed, or in the pool."""
        self._returning -= 1
        self.freed()

    def _serve(self) -> None:
        """Give available connections to waiting sessions."""
        while self.waiting:
            holder, turn = next(iter(self.waiting.items()))
            if turn.done():  # it was cancelled, or has waited for too long
                del self.waiting[holder]
            elif self.most is None or len(self.holders) + self._returning < self.most:
                self._choose(holder, turn, has_connection=False)
            elif not self._take_from_another(holder, turn):
                break

    def _take_from_another(self, holder: Holder[T], turn: asyncio.Future[bool]) -> bool:
        """Have another session give up a connection that it does not need; return False if none can."""
        spare = None
        for other in self.holders:
            if other not in self._chosen and other.is_spare:
                spare = other
                if self._can_use(holder, other):
                    break
        if spare is None or (self._returning >= len(self.waiting) and not self._can_use(holder, spare)):
            return False
        is_usable = self._can_use(holder, spare)
        del self.holders[spare]
        connection = spare.hand_over()
        if is_usable:
            # Not by way of the pool: to check a connection in and out takes longer than to look for a message, and the
            # pool may meanwhile have closed it.
            holder.accept(connection)
            self._choose(holder, turn, has_connection=True)
        else:
            self._returning += 1
            BackgroundTask(partial(self._return, connection), "jmsql-connection").start()
        return True

    @staticmethod
    def _can_use(holder: Holder[T], other: Holder[T]) -> bool:
        return other.is_transacted == holder.is_transacted and not other.link.is_lost

    def _choose(self, holder: Holder[T], turn: asyncio.Future[bool], *, has_connection: bool) -> None:
        del self.waiting[holder]
        self.holders[holder] = None
        self._chosen[holder] = has_connection
        _end(turn, has_come=True)

    async def _return(self, connection: T) -> None:
        try:
            await self._give_back(connection)
        finally:
            self.returned()


def _end(turn: asyncio.Future[bool], *, has_come: bool) -> None:
    if not turn.done():
        turn.set_result(has_come)


class NoLimit(Generic[T]):
    """Lets each session have a connection: for threads, each of which costs more than that."""

    can_be_set = False
    most: ClassVar[int | None] = None
    holders: ClassVar[Sequence[Any]] = ()
    waiting: ClassVar[Sequence[Any]] = ()
    """No session waits."""

    def __init__(self, give_back: Callable[[T], object]) -> None:
        """Limit nothing."""

    def take(self, holder: Holder[T], connect: Callable[[], T], patience: float | None = None) -> bool:  # noqa: ARG002 - nobody waits
        """Have a session accept a connection, and return True."""
        holder.accept(connect())
        return True

    def freed(self) -> None:
        """Do nothing: no session waits for the connection."""

    def returning(self, holder: Holder[T]) -> None:
        """Do nothing: no session waits for the connection."""

    def returned(self) -> None:
        """Do nothing: no session waits for the connection."""
