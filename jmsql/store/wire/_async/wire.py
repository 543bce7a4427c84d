"""The wire: connections that speak in exchanges, and running statements on them."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import interruptible, is_driven, sleep
from jmsql.store.statement import CannotCopyError, Query, Result, Steps
from jmsql.store.wire._async.runner import Runner, copy
from jmsql.store.wire.exchange import (
    BEGIN,
    BEGIN_READ_COMMITTED,
    OUTDATED,
    Bound,
    End,
    Exchange,
    Outcome,
    PreparedStatements,
    bind,
    converse,
    read_commit,
)
from jmsql.store.wire.interruption import Interruption
from jmsql.store.wire.waiting import wait_for_server

T = TypeVar("T")

# Connections
#
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

    is_pooled = False
    """Whether it leads through a pooler."""
    _failed: Callable[[psycopg.Error], object] | None = None
    _is_open = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.known_statements = PreparedStatements()
        """What was prepared beside psycopg. Not used where `prepare_threshold` is None, as through a pooler that would
        lose it."""

    async def commit(self) -> None:
        if self.pgconn.transaction_status != TransactionStatus.IDLE:  # else psycopg would take turns for nothing
            await super().commit()

    async def rollback(self) -> None:
        if self.pgconn.transaction_status != TransactionStatus.IDLE:
            self.known_statements.forget()  # psycopg ends all that is prepared
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
        prepared = None if self.prepare_threshold is None else self.known_statements
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


# Statements
#
# A decision asks for one statement after the other, since the next one depends on the last answer. So each statement is
# an exchange of its own here, and what belongs to its transaction travels with it: BEGIN with the first one, COMMIT or
# the question with the last. Only `commit` knows which statements are the last.
#
# What was prepared on the connection before is trusted where a failure can be repeated: in an exchange that begins its
# transaction. Some user of the connection before this one may have run DISCARD ALL or DEALLOCATE. A later statement of
# a transaction is therefore sent with its text until one that was prepared has run, which shows that they are still
# there.


class WireRunner(Runner):
    """Runs each statement in an exchange of its own, which may begin its transaction, end it, or both.

    | what statements do | `begin` | `end` |
    | --- | --- | --- |
    | each commits by itself | no | `SYNC` |
    | they take effect with `commit`, which BEGIN and COMMIT enclose | yes | `SYNC` |
    | they take effect with `commit` or `leave_commit`, in a transaction that needs no BEGIN | no | `FLUSH` |
    | each changes nothing, and leaves no transaction open | yes | `COMMIT` |

    Args:
        connection: The connection, with no transaction open but one that is being committed.
        schema: The plain name of the schema.
        begin: Whether a statement begins a transaction where none is open.
        end: What ends the exchange of a statement.
    """

    __slots__ = ("_begin", "_end", "answer", "connection", "is_certain", "question")

    def __init__(self, connection: WireConnection, schema: str, *, begin: bool = False, end: End = End.SYNC) -> None:
        super().__init__(schema)
        self.connection = connection
        """The connection."""
        self._begin = begin
        self._end = end
        # A former user of the connection may have ended all that was prepared. A transaction whose first statement
        # is missing is begun again; later ones must not fail.
        self.is_certain = connection.prepare_threshold is None or not connection.known_statements
        """Whether all that counts as prepared on the connection is."""
        self.question: Query[Any] | None = None
        """What is asked after each statement that commits by itself, in its exchange; it changes nothing."""
        self.answer: Any = None
        """The answer after the last statement; None: nothing was asked or answered, as through a pooler."""

    @property
    def is_idle(self) -> bool:
        return self.connection.is_idle

    if ASYNC:

        async def run(self, work: Query[T] | Steps[T]) -> T:
            """Run statements; of those that end with FLUSH nothing comes if the server is asked to interrupt one."""
            if self._end is not End.FLUSH:
                return await super().run(work)
            return await interruptible(super().run(work), Interruption(self.connection))

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            call = bind(self.connection, statement, parameters)
            [result] = await self._exchange([call], self._end, self.question if self.connection.is_idle else None)
        except BaseException:
            # With FLUSH nobody else knows of the transaction, and with COMMIT nobody expects one to be open. One that
            # ends with SYNC is the session's, which hears of the failure and rolls back.
            if self._end is not End.SYNC:
                await self.connection.undo()
            raise
        return result

    async def copy(self, statement: bytes, data: bytes) -> Result:
        # COPY does not go through a pipeline, so psycopg does it. Only a transaction with BEGIN can be open then: one
        # that PostgreSQL begins by itself would end with the COPY.
        if not self._begin:
            raise CannotCopyError
        return await copy(self.connection, statement, data)

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)

    async def commit(self, last: Sequence[Query[Any]] = (), question: Query[T] | None = None) -> T | None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange. If one fails, the transaction stays open as failed.
            question: What is asked after that, in the same exchange; it changes nothing.

        Returns:
            The answer, or None if nothing was asked or answered, as through a pooler.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        if not last and self.connection.is_idle:
            return None
        calls = [self._bound(query) for query in last]
        await self._exchange(calls, End.COMMIT if self._begin else End.SYNC, question)
        answer: T | None = self.answer
        return answer

    async def rollback(self) -> None:
        """Roll the transaction back, if one is open; a lost connection has done so already."""
        await self.connection.undo()

    async def _exchange(self, calls: list[Bound], end: End, question: Query[Any] | None) -> list[Result]:
        begins = self._begin and self.connection.is_idle
        exchange = Exchange(
            calls,
            BEGIN_READ_COMMITTED if begins else None,
            end,
            None if question is None else self._bound(question),
            trusts_prepared=begins or not self._begin or self.is_certain,
        )
        outcome = await self.connection.exchange(exchange)
        self.is_certain |= outcome.used_prepared
        self.answer = None
        if question is not None and outcome.answer is not None:
            self.answer = question.statement.decode(outcome.answer)
        return outcome.results

    def _bound(self, query: Query[Any]) -> Bound:
        return bind(self.connection, query.statement.encoded(self.schema), query.parameters)
