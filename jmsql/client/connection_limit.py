"""How many connections the sessions of asyncio share: each needs one only while it works."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from jmsql.concurrency.tasks import Notifications, abandonable
from jmsql.exceptions import ResourceAllocationException

T = TypeVar("T")
Kept_co = TypeVar("Kept_co", covariant=True)

_LOOK = 0.1
"""Seconds after which one that waits for a connection looks again, whether it was told of one or not."""

_PATIENCE = 30.0
"""Seconds to wait for a connection, as SQLAlchemy's pools do."""


class Holder(Protocol[Kept_co]):
    """What takes a connection, and keeps it for what comes."""

    @property
    def is_transacted(self) -> bool:
        """Whether the connection leaves it to others to commit."""

    @property
    def is_spare(self) -> bool:
        """Whether it has a connection, or is given one, that it does not need now."""

    def hand_over(self) -> Kept_co | None:
        """Give the connection up to another one that needs the same; None: it is lost."""

    async def release(self) -> None:
        """Give the connection up to the pool; the next use takes another one."""


class ConnectionLimit(Generic[T]):
    """Lets so many sessions have a connection.

    A session keeps its connection for what comes. Where there are as many as may be, one that needs a connection gets
    that of another session, which has no transaction open; if all have, it waits.
    """

    def __init__(self) -> None:
        self.most: int | None = None
        """How many; None: all."""
        self._holders: dict[Holder[T], None] = {}
        self._freed = Notifications()

    async def take(self, holder: Holder[T], connect: Callable[[], Awaitable[T]]) -> T:
        """Return a connection for a session, once it may have one.

        Args:
            holder: The session.
            connect: Opens one, or takes one from the pool.

        Raises:
            ResourceAllocationException: All connections are in use, and stay so for too long.
            JMSException: What connects has failed.
        """
        deadline = time.monotonic() + _PATIENCE
        while self.most is not None and holder not in self._holders and len(self._holders) >= self.most:
            count = self._freed.count
            spare = next((other for other in self._holders if other.is_spare), None)
            if spare is not None:
                # Not by way of the pool if it need not be: to check a connection in and out takes longer than to
                # look for a message, and the pool may meanwhile have closed it.
                connection = spare.hand_over() if spare.is_transacted == holder.is_transacted else None
                if connection is not None:
                    self._holders[holder] = None
                    return connection
                await spare.release()
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise ResourceAllocationException(
                    f"All {self.most} connections of the sessions have open transactions, and none ended within "
                    f"{_PATIENCE:g} s. End transactions sooner, or make the factory's max_connections larger."
                )
            with abandonable():
                await self._freed.wait(count, min(remaining, _LOOK))
        self._holders[holder] = None
        try:
            return await connect()
        except BaseException:
            if holder.is_spare:  # it is cancelled, and finds what is being opened when it asks again
                self.freed()
            else:
                self.left(holder)
            raise

    def freed(self) -> None:
        """Take note that a session does not need its connection for now."""
        if self.most is not None:
            self._freed.notify()

    def left(self, holder: Holder[T]) -> None:
        """Take note that a session has no connection any more."""
        self._holders.pop(holder, None)
        self.freed()
