"""Pools that keep as many idle connections as were needed lately."""

from __future__ import annotations

from typing import Any

from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, QueuePool

from jmsql.public_names import set_module
from jmsql.values.clock import monotonic


@set_module("sqlalchemy.pool")  # the pool's logger has this name, so that its records do not go to the `jmsql` logger
class DemandPool(QueuePool):
    """A pool without a limit. It closes returned connections that were not needed lately, or exceed `most_idle`."""

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
        idle = self.checkedin()
        needed = max(self._in_use_lately, self._in_use_before)
        if record.dbapi_connection is None or idle >= self.most_idle or idle + self.checkedout() > needed:
            record.close()
            self._dec_overflow()
        else:
            super()._do_return_conn(record)

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
