"""A connection beside the sessions' transactions, for statements that commit by themselves: looking up, recording."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import ParamSpec, TypeVar

from jmsql.client._async.link.lease import Lease
from jmsql.client._async.link.pool import ConnectionPool
from jmsql.concurrency.tasks import Lock, run_to_completion
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store.lock_waits import NO_LOCK, given_up, limit_lock_waits
from jmsql.store.statement import Query, Steps, in_transaction
from jmsql.values.clock import monotonic

T = TypeVar("T")
Parameters = ParamSpec("Parameters")

# A session waits for these statements with its transaction open. One of them may wait for a lock whose holder waits for
# that transaction: a VACUUM FULL or ALTER TABLE that is in line for a table which the transaction has read. PostgreSQL
# does not see such a deadlock, since a part of it is the wait of a client. So no statement waits for long. As long as
# none of the client's transactions is open, it is tried again; else it fails, and the session can end its transaction.


class SideConnection:
    """Short pieces of work, from any thread, outside any transaction of a session.

    Args:
        pool: Where connections come from.
        restricted: Whether policies hide something from the role.
        lock_timeout: For how many seconds a statement waits for a lock while a transaction is open.
        is_transaction_open: Tells whether one of the client's transactions is open.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        restricted: bool,
        lock_timeout: float,
        is_transaction_open: Callable[[], bool],
    ) -> None:
        self._pool = pool
        self._lock = Lock()
        self._closed = False
        self._lock_timeout = lock_timeout
        self._limit = limit_lock_waits(lock_timeout)
        self._is_transaction_open = is_transaction_open
        self._runner = Lease(pool, transacted=False, restricted=restricted, preface=self._limit)
        self.recipient = self._runner.recipient

    async def run(
        self,
        work: Callable[Parameters, Query[T]] | Callable[Parameters, Steps[T]],
        *args: Parameters.args,
        **options: Parameters.kwargs,
    ) -> T:
        """Run the statements of `work` for the arguments; repeat them once if the connection is lost.

        Their answer may have been lost alone. So a delivery that they count without a claim may count twice.

        Raises:
            JMSException: PostgreSQL refused, or a statement has waited too long for a lock (`55P03`).
        """
        return await self._unless_blocked(lambda: self._run(lambda: work(*args, **options)))

    async def _run(self, work: Callable[[], Query[T] | Steps[T]]) -> T:
        async with self._lock:
            try:
                return await self._runner.run(work())
            except JMSException:
                if not self._runner.link.is_lost:
                    raise
                return await self._runner.run(work())

    async def run_in_transaction(
        self,
        work: Callable[Parameters, Query[T]] | Callable[Parameters, Steps[T]],
        *args: Parameters.args,
        **options: Parameters.kwargs,
    ) -> T:
        """Run the statements of `work` for the arguments in one transaction, on a connection of its own.

        Raises:
            IllegalStateException: The client's connection is closed.
            JMSException: As `run`.
        """
        if self._closed:
            raise IllegalStateException("The connection is closed.")

        async def run() -> T:
            async with self._pool.turns:
                return await run_to_completion(self._run_in_transaction(work(*args, **options)))

        return await self._unless_blocked(run)

    async def _run_in_transaction(self, work: Query[T] | Steps[T]) -> T:
        async with self._pool.runner() as runner:
            return await runner.run(in_transaction(self._limited(work)))

    def _limited(self, work: Query[T] | Steps[T]) -> Steps[T]:
        yield from self._limit
        return (yield from work)

    async def _unless_blocked(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run statements. Those that wait too long for locks fail if a transaction is open, else they run again."""
        while True:
            started = monotonic()
            try:
                return await run()
            except JMSException as error:
                # The role may have a shorter limit of its own.
                if error.error_code != NO_LOCK or monotonic() - started < self._lock_timeout:
                    raise
                failure = error
            if self._is_transaction_open():
                raise await self._run(partial(given_up, failure, self._lock_timeout)) from failure

    async def close(self) -> None:
        """Release the connection, and take none any more."""
        self._closed = True
        await self._runner.close()
