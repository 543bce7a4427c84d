"""Runners of queries and steps: in exchanges on jmsql's own connections, by cursors on any other psycopg connection."""

from __future__ import annotations

import contextlib
import selectors
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import psycopg

from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import interruptible, is_driven, sleep, wait_until_unlocked
from jmsql.exceptions import JMSException
from jmsql.store.connections._async.cursor import OwnCursor
from jmsql.store.connections.defaults import refuses_writes
from jmsql.store.errors import is_driver_error, jms_errors, lacks_privilege, translate
from jmsql.store.statement import CannotCopyError, Item, Items, Query, Result, Steps
from jmsql.store.wire.exchange import (
    BEGIN,
    BEGIN_READ_COMMITTED,
    COMMAND_OK,
    IDLE,
    OUTDATED,
    PIPELINE_OFF,
    Binding,
    Bound,
    End,
    Exchange,
    Outcome,
    PreparedStatements,
    converse,
    read_commit,
)
from jmsql.store.wire.interruption import Interruption
from jmsql.store.wire.waiting import wait_for_server, wait_in_task
from jmsql.values.clock import monotonic

TRUSTED = 1.0
"""For how many seconds a connection that was asked is taken to be alive."""

T = TypeVar("T")

Around: TypeAlias = Callable[[Callable[[], Awaitable[Result]], bytes, Mapping[str, Any] | None], Awaitable[Result]]
"""Runs a statement by its first argument, or raises an error instead. The others are its text and, unless it is a
COPY, its parameters."""

# Decisions
#
# A decision of the store is a generator: it yields statements, and is sent their results. So it can be read and tested
# without a database, and is the same for threads and asyncio, and for every driver. `run` below is where the two meet.
#
# - An error is raised in the decision, at the statement, as a JMS exception. The decision may handle it and yield other
#   statements; an exception that it does not catch reaches the caller of `run`.
# - Cancellations and Ctrl-C pass through the decision, too, so that its `finally` blocks run. They are not translated,
#   as the database did not raise them.


class Runner(ABC):
    """Runs statements, and decisions that take several, in its connection's current transaction."""

    __slots__ = ("around", "schema")

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.around: Around | None = None
        """Encloses each statement; set by the runner's maker."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """True if no transaction is open."""

    @property
    def role(self) -> str | None:
        """The role that has connected; None: it is not known."""
        return None

    @abstractmethod
    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        """Run SQL. Errors are the driver's own."""

    async def copy(self, statement: bytes, data: bytes) -> Result:  # noqa: ARG002 - always refused
        """Run a COPY from the client. Errors are the driver's own.

        Raises:
            CannotCopyError: The connection cannot do that now.
        """
        raise CannotCopyError

    async def sleep(self, seconds: float) -> None:
        """Let time pass, without holding up others."""
        await sleep(seconds)

    async def wait_for_others(self) -> None:  # noqa: B027 - most connections have one user
        """Wait until no other task runs a statement on the connection, or a COPY: neither is to be interrupted."""

    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run a statement, or all statements of a decision, and return the result.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost. The cause is the driver's own error.
        """
        steps: Steps[T] = iter(work)
        try:
            query: Query[Any] = next(steps)
            while True:
                try:
                    try:
                        statement = query.statement.encoded(self.schema)
                        if self.around is not None:
                            result = await self._enclosed(self.around, query, statement)
                        elif query.data is None:
                            result = await self.execute(statement, query.parameters)
                        else:
                            result = await self.copy(statement, query.data)
                    except Exception as error:
                        if is_driver_error(error) or isinstance(error, OSError):
                            # PostgreSQL checks privileges before policies, whose functions name both, and tells
                            # the table alone. The role may be another one, which the application has set since.
                            doing = query.doing_as(self.role) if lacks_privilege(error) else query.doing
                            raise translate(error, doing) from error
                        raise
                    outcome = query.statement.decode(result)
                except BaseException as error:  # noqa: BLE001 - for the decision to handle, or to pass on
                    query = steps.throw(error)
                else:
                    query = steps.send(outcome)
        except StopIteration as end:
            returned: T = end.value
            return returned

    async def _enclosed(self, around: Around, query: Query[Any], statement: bytes) -> Result:
        if query.data is None:
            run = partial(self.execute, statement, query.parameters)
            return await around(run, statement, query.parameters)
        return await around(partial(self.copy, statement, query.data), statement, None)

    async def iterate(self, work: Items[T]) -> AsyncIterator[T]:
        """Run the statements of a decision, and return its results one by one, each when it is asked for.

        Raises:
            JMSException: As `run`.
        """
        try:
            step = next(work)
            while True:
                if isinstance(step, Item):
                    yield step.value
                    step = next(work)
                    continue
                try:
                    outcome = await self.run(step)
                except BaseException as error:  # noqa: BLE001 - for the decision to handle, or to pass on
                    step = work.throw(error)
                else:
                    step = work.send(outcome)
        except StopIteration:
            pass


class Origin(NamedTuple):
    """The source of a connection that the runner's user closes.

    Args:
        close: Closes the connection, or returns it to its pool.
        another: Connects to the same server again.
        is_pooled: True if the connection goes through a pooler.
    """

    close: Callable[[], Awaitable[None]]
    another: Callable[[], Awaitable[PsycopgRunner]]
    is_pooled: bool


class PsycopgRunner(Runner):
    """Runs statements on a psycopg connection.

    A context manager, if its user closes the connection. The connection's row factory, cursor factory and adapters stay
    as they are. Preparing a statement takes another round trip the first time. Without an `origin`, the connection's
    owner closes it.
    """

    __slots__ = ("_origin", "_prepares", "connection")

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        schema: str,
        *,
        prepares: bool = True,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(schema)
        self.connection = connection
        """The connection, for uses other than statements."""
        self._prepares = prepares
        self._origin = origin

    @property
    def is_idle(self) -> bool:
        return self.connection.pgconn.transaction_status == IDLE

    @property
    def role(self) -> str | None:
        return self.connection.info.user

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        # A cancellation request hits whatever the connection runs, so it is safe only under the connection's lock.
        # psycopg acquires a free lock without waiting, so no other task can run a statement in between.
        await wait_until_unlocked(self.connection.lock)
        work = self._execute(statement, parameters)
        return await interruptible(work, Interruption(self.connection), needs_own_task=True)

    async def wait_for_others(self) -> None:
        """Wait until no other task runs a statement on the connection; threads do when they run theirs.

        Raises:
            JMSException: The connection's encoding is none, and psycopg would return bytes for texts.
        """
        await wait_until_unlocked(self.connection.lock)
        if self.connection.pgconn.parameter_status(b"client_encoding") == b"SQL_ASCII":
            raise JMSException(
                "joining the transaction: the connection's client_encoding (SQL_ASCII) does not tell how texts are "
                "written; `set client_encoding = 'UTF8'`.",
                "22P05",
            )

    async def _execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        cursor = OwnCursor(self.connection)
        await cursor.execute(statement, parameters, prepare=self._prepares, binary=True)
        # Not `cursor.description`, which is made again each time, at more cost than many a statement.
        result = cursor.pgresult
        if result is not None:
            return Result(await cursor.fetchall() if result.nfields else [], cursor.rowcount)
        try:  # in a pipeline there is no result before it is fetched
            return Result(await cursor.fetchall(), cursor.rowcount)
        except psycopg.ProgrammingError:
            _require_no_rows(cursor)
            return Result([], cursor.rowcount)

    async def copy(self, statement: bytes, data: bytes) -> Result:
        if self.connection.pgconn.pipeline_status != PIPELINE_OFF:
            raise CannotCopyError
        await wait_until_unlocked(self.connection.lock)
        work = copy(self.connection, statement, data)
        return await interruptible(work, Interruption(self.connection), needs_own_task=True)

    @property
    def was_ended(self) -> bool:
        """True if the connection is lost, or the server has ended it while it was idle."""
        return self.connection.closed or (self.is_idle and _has_unread(self.connection))

    @property
    def is_unfit(self) -> bool:
        """True if a transaction is open, or each one refuses writes: after a failure, another connection is better."""
        return not self.is_idle or refuses_writes(self.connection)

    @property
    def is_pooled(self) -> bool:
        """True if the connection is known to go through a pooler."""
        return self._origin is not None and self._origin.is_pooled

    async def open_another(self) -> PsycopgRunner:
        """Connect once more to the same place.

        Raises:
            JMSException: The database cannot be reached.
        """
        assert self._origin is not None
        return await self._origin.another()

    async def wait_for_notification(self, timeout: float) -> bool:
        """Tell whether a notification comes within so many seconds."""
        with jms_errors("listening for a notification"):
            async for _ in self.connection.notifies(timeout=timeout, stop_after=1):
                return True
        return False

    async def close(self) -> None:
        """Close the connection, also if the server has ended it, unless its owner closes it."""
        if self._origin is not None:
            await self._origin.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def copy(connection: psycopg.AsyncConnection[Any], statement: bytes, data: bytes) -> Result:
    """Run a COPY from the client on a connection that is in no pipeline."""
    cursor = OwnCursor(connection)
    # Without parameters psycopg reads no placeholders, for which the name of the schema is written otherwise.
    try:
        async with cursor.copy(statement.replace(b"%%", b"%")) as copying:
            await copying.write(data)
    except ValueError as error:  # psycopg expects one answer: after an error, the server has said why it leaves
        connection.pgconn.finish()
        raise psycopg.OperationalError("the server has ended the connection after an error") from error
    return Result([], cursor.rowcount)


def _require_no_rows(cursor: psycopg.AsyncCursor[Any]) -> None:
    """Raise the error that is being handled again, unless it says that the statement returns no rows."""
    if cursor.pgresult is None or cursor.pgresult.status != COMMAND_OK:
        raise  # noqa: PLE0704 - called while it is handled


def _has_unread(connection: psycopg.AsyncConnection[Any]) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection.pgconn.socket, selectors.EVENT_READ)
        return bool(selector.select(timeout=0))


# Connections
#
# Three things say in which state a connection is: libpq's transaction status, `_is_open` and `_failed`.
#
# - libpq's status says whether BEGIN is in force. It does not cover an implicit transaction, which PostgreSQL begins
#   with the first statement of a pipeline and ends with the Sync. `_is_open` says that an implicit transaction is open.
# - `_failed` is set from a Sync that commits to its answer, which is read with the next use. Meanwhile the connection
#   counts as idle, since nothing that follows can change what the server does with the transaction.
#
# The rules:
#
# - An exchange is read to its end, or the connection is ended. `end_connection` distinguishes the two by pipeline mode,
#   which `converse` leaves only at the end.
# - An exchange is repeated only if it has begun the transaction. PostgreSQL refuses a prepared statement that it does
#   not know, or whose tables have changed, and aborts the whole transaction. If earlier exchanges belonged to that
#   transaction, a repetition would lose their work. One repetition suffices, since a statement that was just prepared
#   is not outdated.
# - Only the sender of an unanswered commit learns of its failure. The next user of the connection must not get an error
#   for another session's work.


class WireConnection(psycopg.AsyncConnection[Any]):
    """Carries out exchanges, one at a time.

    A commit may be left unanswered. The next use of the connection, also through psycopg's own methods, reads the
    answer first; only the commit's sender learns the outcome.
    """

    trusted_until = 0.0
    """Until when, on the monotonic clock, its socket need not be asked if the server has ended it. Written by
    `has_unread`, which its user asks."""

    _failed: Callable[[psycopg.Error], object] | None = None
    _is_open = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.binding = Binding(self)
        self.known_statements = PreparedStatements()
        """The statements prepared beside psycopg. None are where `prepare_threshold` is None, as through a pooler that
        would lose them."""

    async def commit(self) -> None:
        if self.pgconn.transaction_status != IDLE:  # else psycopg would take turns for nothing
            await super().commit()

    async def rollback(self) -> None:
        if self.pgconn.transaction_status != IDLE:
            self.known_statements.forget()  # psycopg ends all that is prepared
        await super().rollback()

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open, except one that is being committed."""
        if self._failed is not None:
            return True
        return not self._is_open and self.pgconn.transaction_status == IDLE

    @property
    def is_committing(self) -> bool:
        """True if a commit was sent and its answer is still unread."""
        return self._failed is not None

    def notice_loss(self) -> None:
        """Count as closed if the server has ended the connection, before anything is sent."""
        # libpq notices the end of the connection only once it has read all received data.
        try:
            self.pgconn.consume_input()  # the server's last words
            self.pgconn.consume_input()
        except psycopg.OperationalError:
            pass

    @property
    def has_unread(self) -> bool:
        """True if the server has sent unread data: on an idle connection, that it is closing."""
        self.trusted_until = monotonic() + TRUSTED
        return _has_unread(self)

    @property
    def refuses_writes(self) -> bool:
        """True if its transactions are read-only by default."""
        return refuses_writes(self)

    async def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **parameters: Any) -> T:
        """Run one of psycopg's own generators, once an unanswered commit is answered."""
        if self._failed is not None:
            await self.settle()
        return await self._wait(gen, *arguments, **parameters)

    if not ASYNC:
        _wait = psycopg.AsyncConnection.wait
    else:

        async def _wait(self, gen: Generator[Any, Any, T], *arguments: Any, **parameters: Any) -> T:
            # A task that jmsql does not drive is the application's own: a cancellation reaches it immediately, as in
            # psycopg.
            if is_driven():
                return await wait_for_server(gen, self.pgconn.socket)
            if not (arguments or parameters):
                return await wait_in_task(gen, self.pgconn.socket, super().wait)
            return await super().wait(gen, *arguments, **parameters)  # whose parameters differ between releases

    async def exchange(self, exchange: Exchange) -> Outcome:
        """Carry out an exchange; repeat it if it begins its transaction and a prepared statement is outdated.

        A failure rolls back an implicit transaction, and one that the exchange was to begin and end. Any other
        transaction stays open, as failed.

        Raises:
            psycopg.Error: A statement or the end of the transaction failed, or the connection is lost.
        """
        prepared = None if self.prepare_threshold is None else self.known_statements
        ends = exchange.end is not End.FLUSH
        begins = not ends or self.is_idle
        self._is_open = self._is_open or not ends
        try:
            while True:
                unanswered = None if self._failed is None else self._answered
                work = converse(self.pgconn, exchange, prepared, unanswered, self._encoding)
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
            self.end_connection()
            if self.is_idle and self.refuses_writes:
                self.pgconn.finish()  # another connection may take writes
            raise

    async def leave_commit(self, failed: Callable[[psycopg.Error], object]) -> None:
        """Commit the implicit transaction, and leave the answer to the next use of the connection.

        Args:
            failed: Called if the commit has failed, or its outcome is unknown.
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
                    await self._wait(read_commit(self.pgconn, self._answered, self._encoding))
            finally:
                self.end_connection()

    def _encoding(self) -> str:
        return self.info.encoding

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
            work = converse(self.pgconn, undone, None, unanswered, self._encoding)
            with contextlib.suppress(psycopg.Error):
                await self._wait(work)
            self.end_connection()

    def end_connection(self) -> None:
        """End the connection if its state is unknown: an exchange was not read to its end."""
        self._is_open = False
        if self.pgconn.pipeline_status != PIPELINE_OFF and not self.is_committing:
            self.pgconn.finish()


# Statements
#
# A decision yields one statement after the other, since the next one depends on the last answer. So each statement is
# an exchange of its own here, and carries the transaction's commands: the first one BEGIN, the last one COMMIT or the
# question. Only `commit` knows which statements are the last.
#
# An earlier user of the connection may have run DISCARD ALL or DEALLOCATE. So statements that were prepared before are
# used only where a failure can be repeated: in an exchange that begins its transaction. A later statement of a
# transaction is sent with its text, until a prepared one has run: then they all still exist.


class WireRunner(Runner):
    """Runs each statement in an exchange of its own, which may begin its transaction, end it, or both.

    With `end` as `SYNC`, each statement commits by itself; with `begin`, too, they take effect with `commit`. With
    `FLUSH` they take effect with `commit` or `leave_commit`, in a transaction that needs no BEGIN. With `begin` and
    `COMMIT` each is a transaction of its own, which changes nothing and leaves none open.

    Args:
        connection: The connection, with no transaction open but one that is being committed.
        schema: The plain name of the schema.
        begin: True if a statement begins a transaction where none is open.
        end: The end of each statement's exchange.
        preface: Runs before each statement, in its exchange, and in its transaction if it commits by itself.
    """

    __slots__ = ("_begin", "_end", "_preface", "answer", "connection", "is_certain", "question")

    def __init__(
        self,
        connection: WireConnection,
        schema: str,
        *,
        begin: bool = False,
        end: End = End.SYNC,
        preface: Query[Any] | None = None,
    ) -> None:
        super().__init__(schema)
        self.connection = connection
        """The connection."""
        self._begin = begin
        self._end = end
        # A former user of the connection may have ended all that was prepared. A transaction whose first statement
        # is missing is begun again; later ones must not fail.
        self.is_certain = connection.prepare_threshold is None or not connection.known_statements
        """True if the connection's prepared statements are known to exist on the server."""
        self._preface = preface
        self.question: Query[Any] | None = None
        """A query that follows each statement that commits by itself, in its exchange. It asks which destinations are
        waited for, and may notify them; it writes no rows."""
        self.answer: Any = None
        """The answer after the last statement; None: nothing was asked or answered, as through a pooler."""

    @property
    def role(self) -> str | None:
        return self.connection.info.user

    @property
    def is_idle(self) -> bool:
        return self.connection.is_idle

    if ASYNC:

        async def run(self, work: Query[T] | Steps[T]) -> T:
            """Run statements; if one that ends with FLUSH is interrupted, its transaction has no effect."""
            if self._end is not End.FLUSH:
                return await super().run(work)
            return await interruptible(super().run(work), Interruption(self.connection))

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            calls = [self.connection.binding.bind(statement, parameters)]
            if self._preface is not None:
                calls.insert(0, self._bound(self._preface))
            results = await self._exchange(calls, self._end, self.question if self.connection.is_idle else None)
        except BaseException:
            # With FLUSH no other object knows of the transaction, and with COMMIT none expects an open one. A
            # transaction that ends with SYNC is the session's, which receives the error and rolls back.
            if self._end is not End.SYNC:
                await self.connection.undo()
            raise
        return results[-1]

    async def copy(self, statement: bytes, data: bytes) -> Result:
        # COPY does not go through a pipeline, so psycopg does it. Only a transaction with BEGIN can be open then: one
        # that PostgreSQL begins by itself would end with the COPY.
        if not self._begin:
            raise CannotCopyError
        return await copy(self.connection, statement, data)

    async def commit(self, last: Sequence[Query[Any]] = (), question: Query[T] | None = None) -> T | None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange. If one fails, the transaction stays open as failed.
            question: A query to run after the commit, in the same exchange. It asks which destinations are waited for,
                and may notify them; it writes no rows.

        Returns:
            The answer; None without a question, or if it was not answered, as through a pooler.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        if not last and self.connection.is_idle:
            return None
        calls = [*map(self._bound, last)]
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
        return self.connection.binding.bind(query.statement.encoded(self.schema), query.parameters)
