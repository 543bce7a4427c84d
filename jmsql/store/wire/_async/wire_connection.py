"""A connection of psycopg's that also speaks in exchanges."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import is_driven
from jmsql.store.wire.exchange import BEGIN, OUTDATED, End, Exchange, Outcome, converse, read_commit
from jmsql.store.wire.prepared_statements import PreparedStatements
from jmsql.store.wire.waiting import wait_for_server

T = TypeVar("T")

# Where a connection is, is known by three things: libpq's transaction status, `_is_open` and `_failed`.
#
# - libpq's status says whether BEGIN is in force. It says nothing of a transaction that PostgreSQL begins by itself
#   with the first statement of a pipeline, which ends with the Sync. `_is_open` says that one of those goes on.
# - `_failed` is set from a Sync that commits to its answer, which is read with the next use. Meanwhile the connection
#   counts as idle, since nothing that follows can change what the server does with the transaction.
#
# The rules:
#
# - An exchange is read to its end, or the connection is ended. `give_up` tells the two apart by pipeline mode, which
#   `converse` leaves only at the end.
# - An exchange is repeated only if it has begun the transaction. PostgreSQL refuses a prepared statement that it does
#   not know, or whose tables have changed, and with it goes the whole transaction; one that had done something before
#   would be repeated in part. It is repeated once, since what it has just prepared is not outdated.
# - Who has left a commit behind is told of its failure, and nobody else. The next user of the connection must not get
#   an error for what another session did.


class WireConnection(psycopg.AsyncConnection[Any]):
    """Carries exchanges out, one at a time.

    A commit may be left unanswered. Whatever the connection is used for next, also through psycopg's own methods, has
    it answered first; its sender hears what became of it, and nobody else.
    """

    _failed: Callable[[psycopg.Error], object] | None = None
    _is_open = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._known_statements = PreparedStatements()

    @property
    def prepared_statements(self) -> PreparedStatements | None:
        """What was prepared beside psycopg; None: the connection leads through a pooler that would lose it."""
        return None if self.prepare_threshold is None else self._known_statements

    def forget_prepared(self) -> None:
        """Note that what was prepared beside psycopg may be gone."""
        self._known_statements.forget()

    async def rollback(self) -> None:
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            self.forget_prepared()  # psycopg ends all that is prepared
        await super().rollback()

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, except one that is being committed."""
        if self._failed is not None:
            return True
        return not self._is_open and self.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_committing(self) -> bool:
        """Whether a commit was sent whose answer nobody has read."""
        return self._failed is not None

    def notice_loss(self) -> None:
        """Count as closed if the server has ended the connection, before anything is sent."""
        # libpq reads what has come, and notices the end of the connection only when nothing is left to read.
        with contextlib.suppress(psycopg.OperationalError):
            self.pgconn.consume_input()  # the server's last words
            self.pgconn.consume_input()

    @property
    def has_unread(self) -> bool:
        """Whether the server has sent something that nobody has read: to an idle connection, that it ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.pgconn.socket, selectors.EVENT_READ)
            return bool(selector.select(timeout=0))

    async def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **parameters: Any) -> T:
        """Do what psycopg asks of the server, once a commit that was left unanswered is answered."""
        await self.settle()
        return await self._wait(gen, *arguments, **parameters)

    if not ASYNC:
        _wait = psycopg.AsyncConnection.wait
    else:

        async def _wait(self, gen: Generator[Any, Any, T], *arguments: Any, **parameters: Any) -> T:
            # What is not driven is the application's own: it is cancelled at once, as psycopg does it.
            if is_driven():
                return await wait_for_server(gen, self.pgconn.socket)
            return await super().wait(gen, *arguments, **parameters)  # whose parameters differ between releases

    async def exchange(self, exchange: Exchange) -> Outcome:
        """Carry an exchange out; once more if it begins its transaction and what was prepared is outdated.

        If it fails in a transaction that PostgreSQL has begun by itself, or that it was to begin and end, that
        transaction is rolled back. Another one stays open, as failed.

        Raises:
            psycopg.Error: A statement failed, or what ends the transaction, or the connection is lost.
        """
        prepared = None if self.prepare_threshold is None else self._known_statements
        ends = exchange.end is not End.FLUSH
        begins = not ends or self.is_idle
        self._is_open = self._is_open or not ends
        try:
            while True:
                unanswered = None if self._failed is None else self._answered
                work = converse(self.pgconn, exchange, prepared, unanswered, self.info.encoding)
                try:
                    outcome: Outcome = await self._wait(work)
                except OUTDATED:
                    if not prepared:
                        raise
                    prepared.forget()
                    if not begins:
                        raise
                    # Nothing has come of the transaction: one that ends with FLUSH has received nothing before.
                    await self.undo()
                    self._is_open = not ends
                else:
                    self._is_open = not ends
                    return outcome
        except BaseException:
            if self._is_open:
                await self.undo()
            self.give_up()
            raise

    async def leave_commit(self, failed: Callable[[psycopg.Error], object]) -> None:
        """Have the server commit what it has begun by itself, and leave the answer to the next use of the connection.

        Args:
            failed: Called if the commit has failed, or nobody knows.
        """
        try:
            await self.exchange(Exchange(is_answered=False))
        except psycopg.Error as error:
            failed(error)
        else:
            self._failed = failed

    async def settle(self) -> None:
        """Wait for the commit that was left unanswered, if one was."""
        if self.is_committing:
            try:
                with contextlib.suppress(psycopg.Error):
                    await self._wait(read_commit(self.pgconn, self._answered, self.info.encoding))
            finally:
                self.give_up()

    def _answered(self, error: psycopg.Error | None) -> None:
        failed, self._failed = self._failed, None
        if error is not None and failed is not None:
            failed(error)

    async def undo(self) -> None:
        """Roll back the transaction that is open, if one is; a lost connection has done so already."""
        if not self.is_idle:
            # PostgreSQL warns of a ROLLBACK in a transaction that it has begun by itself. BEGIN turns that into one
            # like others, with all that it has done so far.
            undone = Exchange(begin=BEGIN if self._is_open else None, end=End.ROLLBACK)
            unanswered = None if self._failed is None else self._answered
            work = converse(self.pgconn, undone, None, unanswered, self.info.encoding)
            with contextlib.suppress(psycopg.Error):
                await self._wait(work)
            self.give_up()

    def give_up(self) -> None:
        """End the connection if nobody knows where it is: an exchange was not read to its end."""
        self._is_open = False
        if self.pgconn.pipeline_status != PipelineStatus.OFF and not self.is_committing:
            self.pgconn.finish()
