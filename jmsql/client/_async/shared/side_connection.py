"""A connection beside the sessions' transactions, for statements that commit by themselves: looking up, recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from jmsql.client._async.link.lease import Lease
from jmsql.client._async.link.pool import ConnectionPool
from jmsql.concurrency.tasks import Lock, finished
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store.statement import Query, Steps, in_transaction

T = TypeVar("T")
Parameters = ParamSpec("Parameters")


class SideConnection:
    """Short pieces of work, from any thread, outside any transaction of a session."""

    def __init__(self, pool: ConnectionPool, *, restricted: bool) -> None:
        self._pool = pool
        self._lock = Lock()
        self._closed = False
        self._runner = Lease(pool, transacted=False, restricted=restricted)
        self.recipient = self._runner.recipient

    async def run(
        self,
        work: Callable[Parameters, Query[T]] | Callable[Parameters, Steps[T]],
        *args: Parameters.args,
        **options: Parameters.kwargs,
    ) -> T:
        """Run what `work` returns for the arguments; once more if the connection was lost while it was idle."""
        async with self._lock:
            try:
                return await self._runner.run(work(*args, **options))
            except JMSException:
                if not self._runner.is_lost:
                    raise
                return await self._runner.run(work(*args, **options))

    async def run_in_transaction(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in one transaction, on a connection of their own.

        Raises:
            IllegalStateException: The client's connection is closed.
        """
        if self._closed:
            raise IllegalStateException("The connection is closed.")
        async with self._pool.turns:
            return await finished(self._run_in_transaction(work))

    async def _run_in_transaction(self, work: Query[T] | Steps[T]) -> T:
        async with self._pool.runner() as runner:
            return await runner.run(in_transaction(work))

    async def close(self) -> None:
        """Release the connection, and take none any more."""
        self._closed = True
        await self._runner.close()
