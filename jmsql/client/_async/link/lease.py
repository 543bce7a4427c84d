"""Which connection a session has: one at a time, in one transaction at a time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import sqlalchemy.exc
from psycopg.pq import PipelineStatus, TransactionStatus

from jmsql.client._async.link.pool import ConnectionPool, driver_connection, give_back
from jmsql.client._async.link.watched_connection import StatementListener, WatchedConnection
from jmsql.client.transaction_state import (
    COMMITTED_STATES,
    LOST_STATES,
    TRANSITIONS,
    WORKING_STATES,
    TransactionEvent,
    TransactionState,
)
from jmsql.concurrency.tasks import CancelledError, Lock, finished, interruptible, uninterrupted
from jmsql.exceptions import IllegalStateException, JMSException, TransactionRolledBackException
from jmsql.store.connections.engine import LENT, POOLED, synchronous
from jmsql.store.errors import is_connection_lost, jms_errors, translate
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.receive import Client
from jmsql.store.statement import Query, Statement, Steps, nothing
from jmsql.store.wire._async.runner import PsycopgRunner, Runner, WireRunner
from jmsql.store.wire.exchange import End
from jmsql.store.wire.interruption import Interruption
from jmsql.store.wire.roles import drop_role, read_role

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection


T = TypeVar("T")

logger = logging.getLogger("jmsql")

# A session needs a connection only while it works, and connections are few. So it holds one on lease: it takes one when
# it first needs it, keeps it for what comes, and under asyncio hands it over when another session needs it more.
#
# The goals:
#
# 1. Nobody takes a connection away on which something is open: a transaction, an exchange, or what the application has
#    asked for.
# 2. What was done in a transaction that is gone is never taken for done, whether the connection broke, the application
#    ended the transaction, or an interrupted commit has.
#
# The rules:
#
# - First the connection, then the state. Waiting for a connection can be cancelled, and nothing has changed by then.
#   What follows is counted as a use until it is over, so the limit cannot give the connection to others meanwhile, and
#   runs to its end.
# - A commit that is still to be answered does not count: whatever the connection is used for next, by whichever
#   session, has it answered first.
# - A connection that is lent to the application runs the session's statements by psycopg itself, which waits its turn
#   with the application's, and SQLAlchemy ends the transaction, which may have been asked for it by the application.
#   What the application has set on the connection is not for others: the pool closes it when it comes back.
# - The session's own statements run as the role that it has connected as, also where the application has set another
#   one in the transaction. Whatever follows them runs as the application's again.
# - The application is expected to leave the end of the transaction to the session. The driver tells if it does not, but
#   only that it has ended where that is asked for as text.
# - A lost connection is noticed by its next use. With no transaction open that is harmless, and another one is taken;
#   else the transaction is lost, until somebody has rolled it back.

_set_savepoint = Statement("set_savepoint", "savepoint jmsql_own", "setting a savepoint", nothing)
_undo_savepoint = Statement("undo_savepoint", "rollback to savepoint jmsql_own", "rolling back to a savepoint", nothing)
_release_savepoint = Statement("release_savepoint", "release savepoint jmsql_own", "releasing a savepoint", nothing)
_SAVEPOINTS = (_set_savepoint, _undo_savepoint, _release_savepoint)


class Holding(Enum):
    """Whose the connection is."""

    NONE = auto()
    """The session has no connection."""
    OWN = auto()
    LENT = auto()
    """The application has it, too. It may keep it for later transactions, and set savepoints."""
    CLOSED = auto()
    """The session is closed or closing, and takes no other connection."""


_LOSSES = {
    TransactionState.ROLLED_BACK: (
        "session.database was rolled back, and with it what the session had done. Leave rolling back to the session; "
        "call rollback(), and do the work again."
    ),
    TransactionState.INTERRUPTED: (
        "The transaction was lost when the call that ends it was cancelled; call rollback(), and do the work again."
    ),
}


class Lease:
    """Takes a connection when it is first needed, and another one when that is lost; runs the session's statements.

    Args:
        pool: Where connections come from.
        transacted: Whether statements run in a transaction that lasts until commit or rollback; else each commits.
        client: The client that receives messages through it.
        restricted: Whether policies hide something from the role.
    """

    preface: Query[Any] | None = None
    """Runs before each statement that commits by itself, in its transaction and its exchange."""

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        transacted: bool,
        client: Client | None = None,
        restricted: bool = False,
    ) -> None:
        self._pool = pool
        self._transacted = transacted
        self.recipient = Recipient(client, restricted=restricted)
        """The receiver of messages through it."""
        self.shares_connections = False
        """Whether it keeps no connection while it waits for messages."""
        self._connection: AsyncConnection | None = None
        self._driver_connection: WatchedConnection | None = None
        self._runner: Runner | None = None
        self._committing: WireRunner | None = None
        """Commits on the connection while that is lent."""
        self._implicit: WireRunner | None = None
        self._shared: Connection | None = None
        self.holding = Holding.NONE
        """Whose the connection is."""
        self._state = TransactionState.NONE
        """Written by transitions alone, in the thread or task that uses the session."""
        self._uses = 0
        self._taking = Lock()

    # What is known of it

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection, as far as is known."""
        return self._connection is not None and not self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether the connection that was in use is gone, and with it the transaction."""
        return self._driver_connection is not None and self._driver_connection.closed

    @property
    def is_idle(self) -> bool:
        return self._runner is None or self._runner.is_idle

    @property
    def has_begun(self) -> bool:
        """Whether a transaction is open at the server."""
        return not self.is_idle

    @property
    def has_failed(self) -> bool:
        """Whether a statement of the open transaction has failed, so that only a rollback can follow."""
        connection = self._driver_connection
        return connection is not None and connection.pgconn.transaction_status == TransactionStatus.INERROR

    @property
    def is_lent(self) -> bool:
        """Whether the application has the connection. It may keep it for later transactions, and set savepoints."""
        return self.holding is Holding.LENT

    @property
    def is_ours(self) -> bool:
        """Whether the session has begun the open transaction, and the application has not been seen to do anything."""
        return self._state is TransactionState.OURS

    @property
    def was_committed(self) -> bool:
        """Whether the application has committed the transaction, which is for the session to do."""
        return self._state in COMMITTED_STATES

    @property
    def is_transacted(self) -> bool:
        """Whether its statements run in transactions that it commits."""
        return self._transacted

    @property
    def is_spare(self) -> bool:
        """Whether it has a connection that it does not need now."""
        driver = self._driver_connection
        if driver is None or self.holding is not Holding.OWN or self._state is not TransactionState.NONE or self._uses:
            return False
        if driver.is_committing:
            return True
        # An exchange may go on that began without a transaction; then the connection is in pipeline mode.
        return driver.closed or (self.is_idle and driver.pgconn.pipeline_status == PipelineStatus.OFF)

    @property
    def occupation(self) -> str:
        """What it needs its connection for, as a clause about sessions."""
        if self.is_lent:
            return "kept for the application since get_database()"
        if self._state is not TransactionState.NONE or not self.is_idle:
            return "in an open transaction"
        return "in use by a call"

    # Taking a connection, and letting it go

    async def _take_connection(self, patience: float | None = None) -> bool:
        """Take a connection unless the session has one. It is kept at least until the caller waits for something.

        Args:
            patience: For how many seconds to wait for other sessions; None: for as long as anybody does.

        Returns:
            Whether it has one; False: `patience` has ended.

        Raises:
            IllegalStateException: It was closed, by another thread that did not wait for this one.
            ResourceAllocationException: All connections are in use, and stay so; or the server cannot be reached.
        """
        # The order matters. A lost connection is given up only between transactions: in one, its end has to learn
        # that it is gone. And the lock is taken only where something has to be waited for.
        if self.holding is Holding.CLOSED:
            raise IllegalStateException("The session is closed.")
        driver = self._driver_connection
        if driver is not None and self._state is TransactionState.NONE:
            # What a handler has left on its connection, such as a role or a time limit, is not for the next message.
            is_stained = self.shares_connections and driver.has_changed_settings
            if driver.closed or (is_stained and self.is_idle):
                await self.discard()
        if self._connection is None:
            async with self._taking:  # the asynchronous sender may need it too
                if self._connection is None:
                    if self._pool.limit.most is not None:
                        return await self._pool.limit.take(self, self._connect, patience)
                    self.accept(await self._connect())
        return True

    async def _connect(self) -> AsyncConnection:
        connection = await self._pool.connect()
        if self._transacted:
            return connection
        return await finished(connection.execution_options(isolation_level="AUTOCOMMIT"))

    def accept(self, connection: AsyncConnection) -> None:
        """Run statements on a connection from now on."""
        driver = driver_connection(connection)
        assert isinstance(driver, WatchedConnection)
        driver.is_pooled = bool(synchronous(connection).info.get(POOLED))
        self._driver_connection = driver
        self._runner = WireRunner(driver, self._pool.schema, begin=self._transacted, preface=self.preface)
        self._implicit = None if self._transacted else WireRunner(driver, self._pool.schema, end=End.FLUSH)
        self._connection = connection  # last, since Ctrl-C may end this anywhere
        if self.holding is not Holding.CLOSED:
            self.holding = Holding.OWN

    def hand_over(self) -> AsyncConnection:
        """Give the connection up, and return it."""
        connection = self._connection
        assert connection is not None
        self._forget()
        return connection

    @contextlib.asynccontextmanager
    async def connected(self, *, needed: bool = True) -> AsyncIterator[None]:
        """Keep a connection for as long as a block runs, which is for what is not to be left undone.

        Waiting for the connection can be cancelled, and nothing in the block has to wait for one.

        Args:
            needed: False takes none.

        Raises:
            IllegalStateException: It was closed, by another thread that did not wait for this one.
            ResourceAllocationException: All connections are in use, and stay so; or the server cannot be reached.
        """
        await self.hold(needed=needed)
        try:
            yield
        finally:
            self.let_go()

    async def hold(self, *, needed: bool = True) -> None:
        """Do what `connected` does, until `let_go`."""
        driver = self._driver_connection
        if needed and (driver is None or driver.closed or self.holding is Holding.CLOSED):
            await self._take_connection()
        self._uses += 1

    async def hold_within(self, patience: float | None) -> bool:
        """Do what `hold` does, and wait at most so many seconds for other sessions; return whether it is done."""
        if not await self._take_connection(patience):
            return False
        self._uses += 1
        return True

    def let_go(self) -> None:
        """Let another session have the connection, if it is not needed otherwise."""
        self._uses -= 1
        if self._pool.limit.waiting:
            self._pool.limit.freed()

    def share_connections(self) -> None:
        """Keep no connection while the session waits for messages, from now on.

        The application gets another connection for each transaction then.
        """
        self.shares_connections = True
        self._pool.keep_one_more()

    @property
    def turn(self) -> Lock | None:
        """What is held during a look for messages: sessions that share connections, and have none, take turns."""
        return self._pool.looking if self._connection is None else None

    async def pause(self) -> None:
        """Release the connection to its pool, if it is one to be shared and no transaction is open."""
        if not self.shares_connections or self._connection is None or not self.is_idle:
            return
        connection, driver = self._connection, self._driver_connection
        assert driver is not None
        if not driver.has_changed_settings:
            synchronous(connection).info.pop(LENT, None)
        # The session forgets it before it goes back, else its next call could use what is the pool's by then.
        with uninterrupted():
            driver.watch(None)
            self._forget_connection()
            await finished(give_back(connection))

    # Running statements

    async def begin(self) -> AsyncConnection:
        """Connect, begin the transaction if there is to be one, and return the SQLAlchemy connection.

        Raises:
            IllegalStateException: It was closed, by another thread that did not wait for this one.
            TransactionRolledBackException: The application has closed it, or rolled its transaction back.
        """
        await self._take_connection()
        return await self._begin()

    async def _begin(self, *, works: bool = False) -> AsyncConnection:
        """Begin the transaction if there is to be one.

        Args:
            works: Whether the session is about to run statements in it.
        """
        connection = self._connection
        assert connection is not None
        if self.holding is Holding.LENT:
            self._notice_end()
        if connection.closed or self._state in LOST_STATES:
            self._require_whole()
        if self._transacted:
            self._state = TRANSITIONS[self._state][TransactionEvent.BEGIN]
            if self._shared is not None and not self._shared.in_transaction():
                if self._shared.get_transaction() is not None:  # the server refused the application's commit
                    await connection.rollback()
                # The server hears of it with the first statement.
                if self._shared.dispatch.begin:  # an application's listeners, which may run statements
                    await connection.begin()
                else:
                    self._shared.begin()
            if works:
                opens = self._runner is None or self._runner.is_idle
                event = TransactionEvent.OPEN if opens else TransactionEvent.JOIN
                self._state = TRANSITIONS[self._state][event]
        return connection

    def _notice_end(self) -> None:
        """Note if the application has ended the transaction of its connection."""
        driver = self._driver_connection
        if driver is not None:
            event, driver.ending = driver.ending, None
            if event is None and self._state in WORKING_STATES and self.is_idle:
                event = TransactionEvent.VANISH
            if event is not None:
                self._state = TRANSITIONS[self._state][event]

    async def _run(self, work: Query[T] | Steps[T], question: Query[list[int]] | None = None) -> T:
        """Run statements in the transaction, which begins if none is open."""
        before = self._state
        if self._transacted:
            await self._begin(works=True)
        runner = self._runner
        assert runner is not None
        if isinstance(runner, WireRunner):
            runner.question = question
            return await runner.run(work)
        try:
            if self._may_have_other_role and not (isinstance(work, Query) and work.statement in _SAVEPOINTS):
                return await self._run_as_session(work, runner)
            return await runner.run(work)
        except BaseException:
            if before not in WORKING_STATES and self.is_idle:
                self._state = before  # the statement has not reached the server, where nothing is open
            raise

    @property
    def _may_have_other_role(self) -> bool:
        """True if the application may have set a role in the open transaction."""
        driver = self._driver_connection
        return (
            self.holding is Holding.LENT and driver is not None and driver.may_have_other_role and not self.has_failed
        )

    async def _run_plainly(self, query: Query[T]) -> T:
        """Run a statement in the open transaction, as whatever role it has."""
        assert self._runner is not None
        return await finished(self._runner.run(query))

    async def _run_as_session(self, work: Query[T] | Steps[T], runner: Runner) -> T:
        """Run statements as the session's own role, and those that follow as the application's again."""
        role = await runner.run(read_role)
        for query in drop_role:
            await runner.run(query)
        try:
            return await runner.run(work)
        finally:
            if not (self.has_failed or self.is_lost):
                await runner.run(role.set())

    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in the transaction, which begins if none is open.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost.
        """
        await self._take_connection()
        self._uses += 1  # before the next wait, in which the limit might hand the connection over
        try:
            return await finished(self._run(work))
        finally:
            self.let_go()

    async def attempt(self, work: Query[T] | Steps[T], question: Query[list[int]] | None = None) -> T:
        """Run statements, which the server is asked to interrupt if the task is cancelled.

        Nothing comes of them then. In a transaction, that is lost.

        Args:
            work: The statements.
            question: What is asked after each that commits by itself, in its exchange; it changes nothing.
        """
        driver = self._driver_connection
        if driver is None or driver.closed or self.holding is Holding.CLOSED:
            await self._take_connection()
        self._uses += 1
        try:
            return await finished(interruptible(self._run(work, question), Interruption(self._driver_connection)))
        finally:
            self.let_go()

    async def run_and_ask(self, work: Steps[None], question: Query[list[int]] | None) -> list[int] | None:
        """Run statements each of which commits by itself, and ask something after that, in the same exchange.

        Args:
            work: The statements.
            question: Changes nothing; None: nothing is asked.

        Returns:
            The answer, or None if nothing was asked or answered.
        """
        await self.attempt(work, question)
        assert isinstance(self._runner, WireRunner)
        answer: list[int] | None = self._runner.answer
        return answer

    async def look(self, work: Steps[T]) -> T:
        """Run statements that change nothing. If no transaction is open, none is afterwards."""
        await self.begin()
        if self.has_begun or not (self._transacted and isinstance(self._runner, WireRunner)):
            return await self.attempt(work)
        driver = self._driver_connection
        assert driver is not None
        # BEGIN, the look and COMMIT in one exchange: no transaction stays open, which would keep the server from
        # vacuum, and the limit from the connection, for as long as the session waits.
        self._uses += 1
        try:
            looking = WireRunner(driver, self._pool.schema, begin=True, end=End.COMMIT)
            return await finished(interruptible(looking.run(work), Interruption(driver)))
        finally:
            self._uses -= 1
            self._ended()

    async def run_alone(self, work: Query[T] | Steps[T]) -> T:
        """Run statements that commit by themselves, while no transaction is open.

        An application that has left something open on the connection keeps it, and another one is taken.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost.
        """
        await self._take_connection()
        if not (self.is_idle and self._is_clear):
            await self.discard()
            await self._take_connection()
        driver = self._driver_connection
        assert driver is not None
        self._uses += 1
        try:
            return await finished(interruptible(WireRunner(driver, self._pool.schema).run(work), Interruption(driver)))
        finally:
            self.let_go()

    @property
    def _is_clear(self) -> bool:
        """Whether the session can speak on its connection now, though the application has it, too."""
        driver = self._driver_connection
        return driver is not None and driver.pgconn.pipeline_status == PipelineStatus.OFF and not driver.lock.locked()

    async def interrupt(self, timeout: float) -> bool:
        """Interrupt the statement that runs; return True if one did.

        Args:
            timeout: How many seconds that may take.

        Raises:
            JMSException: The server could not be told.
        """
        connection = self._driver_connection
        if connection is None or connection.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return False
        with jms_errors("interrupting a statement"):
            await connection.cancel_safe(timeout=timeout)
        return True

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Run statements in a savepoint, which an exception undoes. Yields a callable that undoes it, too."""
        await self.run(_set_savepoint.bind())
        try:
            yield lambda: self.run(_undo_savepoint.bind())
        except BaseException as error:
            if not is_connection_lost(error):
                await self.run(_undo_savepoint.bind())
            raise
        await self.run(_release_savepoint.bind())

    # Sharing the connection with the application

    async def lend(self, before_statement: StatementListener) -> AsyncConnection:
        """Return the connection for the application to use in the transaction.

        What the application sets on it (a role, a time limit) is not for others: its pool will close it.

        Args:
            before_statement: A method that is called before each statement that the application runs, through
                SQLAlchemy or the driver. It says so by `used_by_application`.
        """
        connection = await self.begin()
        if self._shared is not None:
            return connection
        if not self.is_lent:
            self._share(connection, before_statement)
        # The driver's connection refers to the session weakly; this one keeps it for as long as the application has it.
        self._shared = synchronous(connection).execution_options(jmsql_session=before_statement)
        return await self.begin()

    async def lend_driver(self, before_statement: StatementListener) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection for the application to use in the transaction, which it is not let end.

        SQLAlchemy has no part in it, unless the application asks for that as well.

        Args:
            before_statement: As for `lend`.
        """
        connection = await self.begin()
        if not self.is_lent:
            self._share(connection, before_statement)
        assert self._driver_connection is not None
        self._driver_connection.keep_open()
        return self._driver_connection

    def _share(self, connection: AsyncConnection, before_statement: StatementListener) -> None:
        """Speak on the connection as psycopg does, and hear of the application's statements."""
        self.holding = Holding.LENT
        synchronous(connection).info[LENT] = True
        assert self._driver_connection is not None
        self._driver_connection.watch(before_statement)
        self._driver_connection.ending = None
        if self.is_idle:  # after a statement that was interrupted before it reached the server
            self._state = TRANSITIONS[self._state][TransactionEvent.END]
            self._state = TRANSITIONS[self._state][TransactionEvent.BEGIN]
        self._runner = PsycopgRunner(self._driver_connection, self._pool.schema)
        self._committing = WireRunner(self._driver_connection, self._pool.schema, begin=True)

    def used_by_application(self, *, is_awaited: bool = False) -> None:
        """Note that the application is about to run a statement in the transaction, which it shares from then on.

        Args:
            is_awaited: Whether the session relies on what the application does, though it has run nothing itself.
        """
        self._notice_end()
        event = TransactionEvent.SESSION_RELIES if is_awaited else TransactionEvent.APPLICATION_WORKS
        self._state = TRANSITIONS[self._state][event]

    # Ending the transaction

    @property
    def was_ended(self) -> bool:
        """Whether the server has ended the connection while the session did not use it, which it has yet to notice."""
        driver = self._driver_connection
        return driver is not None and not driver.closed and driver.has_unread

    def require_transaction(self) -> None:
        """Make sure that what the session did in the transaction is there to be committed.

        Raises:
            TransactionRolledBackException: The connection was lost, or the application has closed it or rolled its
                transaction back.
            JMSException: The application has ended the transaction, and nobody knows how.
        """
        if self.holding is Holding.LENT and not self._let_end():
            raise TransactionRolledBackException(
                "The transaction was rolled back: a COPY or another statement was still running on psycopg's "
                "connection, which was closed. Let it end before the handler returns."
            )
        if self._driver_connection is not None:
            # Without this a connection that the server has closed would fail in COMMIT, and a failure there can mean
            # either outcome.
            self._driver_connection.notice_loss()
        if self.holding is Holding.LENT:
            self._notice_end()
        self._require_whole()
        if self._driver_connection is not None and self._driver_connection.closed:
            raise TransactionRolledBackException(
                "The connection to PostgreSQL was lost, and with it the transaction. Do it again.", "08006"
            )
        if self.holding is Holding.LENT and self.has_failed:
            raise self._aborted()

    # Nothing more is done in a transaction of which a part is gone: its commit would do the rest alone.
    def _require_whole(self) -> None:
        if self._connection is not None and self._connection.closed:
            raise TransactionRolledBackException(
                "session.database was closed, which rolled the transaction back. Leave closing it to the session; "
                "call rollback(), and do the work again."
            )
        if self._state is TransactionState.VANISHED:
            raise JMSException(
                "The session's transaction was ended through its database connection, and whether it took effect is "
                "not known. Leave its end to the session; call rollback(), and look for its effects before doing it "
                "again.",
                "08007",
            )
        if self._state in LOST_STATES:
            raise TransactionRolledBackException(_LOSSES[self._state])

    def _aborted(self) -> TransactionRolledBackException:
        """Return the error of a transaction in which a statement has failed, whose error somebody has caught."""
        failure = None if self._driver_connection is None else self._driver_connection.failure
        return TransactionRolledBackException(
            "The transaction was rolled back: one of its statements had failed before"
            + ("" if failure is None else f" ({failure})")
            + ", and the error was caught. Do it again, and run what may fail inside a savepoint: begin_nested(), or "
            "psycopg's transaction().",
            "25P02",
        )

    def _ended(self) -> None:
        self._state = TRANSITIONS[self._state][TransactionEvent.END]
        driver = self._driver_connection
        if driver is not None:
            driver.ending = None
        if driver is not None and driver.may_have_other_role and not driver.has_changed_settings:
            driver.may_have_other_role = False
        if self._pool.limit.waiting:
            self._pool.limit.freed()

    async def commit(
        self, last: Sequence[Query[Any]] = (), question: Query[list[int]] | None = None
    ) -> list[int] | None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange with the server.
            question: What is asked after that, in the same exchange; it changes nothing.

        Returns:
            The answer, or None if nothing was asked or answered.

        Raises:
            TransactionRolledBackException: It was lost: an earlier statement failed, or PostgreSQL refused to commit.
            JMSException: The connection was cut while it committed, and nobody knows the outcome.
        """
        if last:
            if self._connection is None:
                await self._take_connection()
            await self._begin(works=True)
        if self._connection is None:
            return None
        if last and self.holding is Holding.LENT and self._may_have_other_role and self._is_clear:
            # The application's deferred triggers run as its role all the same.
            role = await self._run_plainly(read_role)
            last = [*drop_role, *last, role.set()]
            question = None  # whose answer the other role may not get, if it has been set for longer
        advice = "Look for its effects before doing it again."
        if isinstance(self._runner, WireRunner):
            return await self._end("committing", partial(self._runner.commit, last, question), advice)
        if self._is_clear and (last or question is not None):
            return await self._end("committing", partial(self._commit_shared, last, question), advice)
        for query in last:
            await self.run(query)
        return await self._end("committing", self._transaction.commit, advice)

    async def _commit_shared(self, last: Sequence[Query[Any]], question: Query[list[int]] | None) -> list[int] | None:
        driver, connection, runner = self._driver_connection, self._connection, self._committing
        assert driver is not None
        assert connection is not None
        assert runner is not None
        runner.is_certain = True  # what ends prepared statements was heard of
        async with driver.lock:
            answer = await runner.commit(last, question)
        shared = self._shared
        if shared is not None and (shared.in_nested_transaction() or not self.shares_connections):
            # So that SQLAlchemy knows; the server is not asked. A handler's next transaction may be the same one to it.
            await connection.commit()
        return answer

    @property
    def _transaction(self) -> AsyncConnection | WatchedConnection | WireRunner:
        """What ends the transaction: SQLAlchemy, which takes longer, where the application may have asked it for it."""
        if isinstance(self._runner, WireRunner):
            return self._runner
        found = self._driver_connection if self._shared is None else self._connection
        assert found is not None
        return found

    def _let_end(self) -> bool:
        """Let the transaction end on a connection that was lent so that the application could not do it.

        Returns:
            Whether it can; else the connection is lost.
        """
        return self._driver_connection is None or self._driver_connection.let_end()

    async def prepare(self, identifier: str) -> None:
        """Prepare the transaction, so that any client can commit it or roll it back, and have none open then.

        Args:
            identifier: What PostgreSQL is to call it: digits, letters, and _+/= alone.

        Raises:
            TransactionRolledBackException: It was lost: an earlier statement failed, or PostgreSQL refused to prepare.
            JMSException: The connection was cut meanwhile, and nobody knows the outcome.
        """
        connection = await self.begin()
        if self._may_have_other_role:  # which alone could commit the transaction
            for query in drop_role:
                await self._run_plainly(query)

        async def prepare() -> None:
            await connection.exec_driver_sql(f"prepare transaction '{identifier}'")
            await connection.rollback()  # does nothing on the server, which has no transaction open now

        await self._end("preparing", prepare, "If tpc_recover() returns the transaction, it is prepared.")

    async def _end(self, doing: str, end: Callable[[], Coroutine[Any, Any, T]], advice: str) -> T:
        assert self._driver_connection is not None
        if self._driver_connection.pgconn.transaction_status == TransactionStatus.INERROR:
            aborted = self._aborted()
            await self.rollback()
            raise aborted
        try:
            # A commit can be interrupted as long as the server has not begun to write it. If it was, the transaction is
            # gone at the server, and the session has to know.
            outcome = await finished(self._end_or_lose(end()))
        except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
            if is_connection_lost(error):
                # The server may have committed before it, or the network, went away. Only a look can tell.
                await self.discard()
                raise JMSException(
                    f"The connection was cut while {doing}; whether it took effect is not known. {advice}", "08007"
                ) from error
            failure = translate(error, doing)
            failure.__cause__ = error
            await self.rollback()
            raise TransactionRolledBackException(str(failure), failure.error_code) from failure
        self._ended()
        return outcome

    async def _end_or_lose(self, end: Coroutine[Any, Any, T]) -> T:
        # Only what is interrupted raises this here: a call that is cancelled before it begins gets it from
        # `finished`, and has lost nothing.
        try:
            return await interruptible(end, Interruption(self._driver_connection))
        except CancelledError:
            self._state = TRANSITIONS[self._state][TransactionEvent.INTERRUPT]
            raise

    async def rollback(self) -> None:
        """Roll the transaction back, if one is open; a lost connection has done so already."""
        if self._connection is None:
            return
        try:
            if self._let_end() and not self.is_lost:
                await finished(self._transaction.rollback())
        except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
            logger.info("%s", translate(error, "rolling back"))
            await self.discard()
        if self.is_lost or (self._connection is not None and self._connection.closed):
            await self.discard()
        self._ended()

    async def end_unused(self) -> None:
        """End the transaction, which has changed nothing, if one is open.

        By a commit where one can be: after a rollback psycopg prepares all statements again, and planning the next
        fetch takes longer than the fetch.
        """
        if self._connection is None or self._driver_connection is None:
            return
        self._let_end()
        if self._driver_connection.info.transaction_status == TransactionStatus.INTRANS:
            try:
                await finished(self._transaction.commit())
            except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
                logger.info("%s", translate(error, "ending a transaction"))
                await self.discard()
            self._ended()
        else:
            await self.rollback()

    # Transactions that PostgreSQL begins by itself

    async def begin_implicitly(self) -> WireRunner:
        """Return what runs statements that are to commit together, in a session that is not transacted.

        The caller holds the connection until they have.
        """
        driver = self._driver_connection
        if driver is not None and driver.is_pooled:
            # A pooler takes the connection back with the answer, whatever has come to it meanwhile without a Sync.
            await self.settle()
        if self._implicit is None or self._implicit.connection.closed:
            await self._take_connection()
        assert self._implicit is not None
        return self._implicit

    async def settle(self) -> None:
        """Wait for the commit of such a transaction, if one is under way."""
        if self._driver_connection is not None and self._driver_connection.is_committing:
            self._uses += 1
            try:
                await finished(self._driver_connection.settle())
            finally:
                self.let_go()

    # Giving the connection up

    async def discard(self) -> None:
        """Give the connection up; the next use takes another one."""
        with uninterrupted():
            connection = self._connection
            self._let_end()
            self._forget_connection()
            if connection is not None and not connection.closed:
                await finished(connection.invalidate())
                await finished(connection.close())

    async def close(self) -> None:
        """Roll back and release the connection to its pool, for good."""
        self.holding = Holding.CLOSED  # before the first wait, so that nobody takes another one meanwhile
        await self.settle()
        if self.is_lost:
            await self.discard()
            return
        await self.rollback()
        try:
            if self._connection is not None:
                await finished(self._connection.close())
        finally:
            self._forget_connection()

    def _forget_connection(self) -> None:
        self._forget()
        if self in self._pool.limit.holders:
            self._pool.limit.left(self)

    def _forget(self) -> None:
        self._connection = self._runner = self._implicit = self._driver_connection = self._shared = None
        self._committing = None
        if self.holding is not Holding.CLOSED:
            self.holding = Holding.NONE
        self._state = TRANSITIONS[self._state][TransactionEvent.END]
