"""Pools that keep as many idle connections as were needed lately."""

from __future__ import annotations

from typing import Any

from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, QueuePool
from sqlalchemy.util.queue import Empty

from jmsql.public_names import set_module
from jmsql.values.clock import monotonic


@set_module("sqlalchemy.pool")  # the pool's logger has this name, so that its records do not go to the `jmsql` logger
class DemandPool(QueuePool):
    """A pool without a limit. With each returned connection it closes all that were not needed lately.

    It keeps no more than `most_idle` idle ones.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.most_idle = 5
        """How many idle connections it keeps at the most."""
        self.period = 2.0
        """Seconds; as many as were in use at once in this period, or in the one before, may be needed again soon."""
        self._in_use_lately = self._in_use_before = 0
        self._period_ends = 0.0

    def _do_get(self) -> ConnectionPoolEntry:
        entry = super()._do_get()
        self._note()
        return entry

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        self._note()
        if record.dbapi_connection is None:  # closed, or dropped by its user: under asyncio nothing can be closed here
            self._close(record)
            return
        needed = max(self._in_use_lately, self._in_use_before)
        # Not the returned connection alone: after a burst only a poll returns one, every few seconds.
        while (idle := self.checkedin()) >= self.most_idle or idle + self.checkedout() > needed:
            try:
                self._close(self._pool.get(block=False))
            except Empty:
                self._close(record)
                return
        super()._do_return_conn(record)

    def _close(self, record: ConnectionPoolEntry) -> None:
        record.close()
        self._dec_overflow()

    def _note(self) -> None:
        """Note how many connections are in use."""
        now = monotonic()
        if now >= self._period_ends:
            self._in_use_before = self._in_use_lately if now < self._period_ends + self.period else 0
            self._in_use_lately = 0
            self._period_ends = now + self.period
        self._in_use_lately = max(self._in_use_lately, self.checkedout())


@set_module("sqlalchemy.pool")
class AsyncDemandPool(DemandPool, AsyncAdaptedQueuePool):
    """The same, for asyncio."""
