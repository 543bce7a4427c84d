"""A session's database connection: one at a time, taken when it is needed and handed over when it is not."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import sqlalchemy.exc
from psycopg.pq import TransactionStatus

from jmsql.client._async.link.lent import HandlerLink, LentLink, release_savepoint, set_savepoint, undo_savepoint
from jmsql.client._async.link.own import NoLink, OwnLink
from jmsql.client._async.link.pool import ConnectionPool, driver_connection, give_back
from jmsql.client._async.link.watched_connection import ApplicationListener, WatchedConnection
from jmsql.client.transaction_state import TransactionState
from jmsql.concurrency.tasks import Lock, interruptible, run_to_completion, shielded
from jmsql.exceptions import IllegalStateException, JMSException, TransactionRolledBackException
from jmsql.logs import contained_logger
from jmsql.store.connections.engine import LENT, synchronous
from jmsql.store.errors import is_connection_lost, lacks_privilege, translate
from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.receiving.receive import Client
from jmsql.store.statement import Query, Steps
from jmsql.store.wire._async.runner import WireRunner
from jmsql.store.wire.exchange import IN_ERROR
from jmsql.store.wire.interruption import Interruption
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


T = TypeVar("T")

logger = contained_logger("jmsql")

# A session needs a connection only while it works, and connections are few. So it holds one on lease: it takes one when
# it first needs it, and keeps it until it closes. Under asyncio another session gets it at the limit, if this one does
# not need it now. A worker's session returns it when it finds no message (`pause`). The lease answers which connection
# the session has; the link (`own.py`, `lent.py`) says how statements run on it, and in which state the transaction is.
#
# Invariants:
#
# 1. A connection in use is never reassigned: neither with a transaction or an exchange open, nor while the application
#    has it.
# 2. Work in a lost transaction is never reported as committed, whether the connection broke, the application ended the
#    transaction, or the transaction's commit was interrupted.
# 3. First the connection, then the state. Waiting for a connection can be cancelled, and nothing has changed by then.
#    The call that follows counts as a use until it is over, so the limit cannot give the connection to others
#    meanwhile, and runs to its end.
# 4. An unanswered commit does not count as a use: the connection's next use, by any session, has it answered first.
# 5. A use that meets a lost connection fails. With no transaction open the next one takes another; else the transaction
#    is lost, until the session rolls it back. A connection that has ended while nothing was open on it, as idle ones do
#    behind a pooler, is replaced before its next use: no send is then in doubt that never left the client. Asking for
#    that is a system call, so it is done once a second at most.
# 6. A connection that was made while the database was read-only by default stays so (`refuses_writes`). It is given up
#    with the transaction that has failed on it.
#
# Things that do not work:
#
# - Replacing a lost connection wherever it is noticed: in a transaction, its end has to learn that it is gone.
# - Giving a connection back before the session forgets it: its next call could use a connection of the pool.
# - Taking the lock `_taking` for each use: it costs more than the use, and most uses find a connection.


class Lease:
    """Takes a connection when it is first needed, and another one when that is lost; runs the session's statements.

    Args:
        pool: Where connections come from.
        transacted: Whether statements run in a transaction that lasts until commit or rollback; else each commits.
        client: The client that receives messages through it.
        restricted: Whether policies hide something from the role.
        shares_connections: True if it keeps no connection while the session waits for messages. The application may
            get another connection for each transaction then.
        preface: Runs before each statement that commits by itself, in its transaction and its exchange.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        transacted: bool,
        client: Client | None = None,
        restricted: bool = False,
        shares_connections: bool = False,
        preface: Query[Any] | None = None,
    ) -> None:
        self._pool = pool
        self.is_transacted = transacted
        self._preface = preface
        self.recipient = Recipient(client, restricted=restricted)
        """The receiver of messages through it."""
        self.shares_connections = shares_connections
        if shares_connections:
            pool.keep_one_more()
        self.link: NoLink | OwnLink = _NO_LINK
        """The connection with its transaction. Written by `accept`, `hand_over`, `lend` and `_giving_up`, in the thread
        or task that uses it (`own.py`, invariant 1); `accept` under `_taking`. At the limit it calls `accept` and
        `hand_over`, in the task of any session of the client: one that wants a connection, or one that is done."""
        self._is_closed = False
        """True if the session is closed or closing, and takes no other connection. Written by `close` alone."""
        self._uses = 0
        """The number of calls that need the connection to stay. The limit reads it, in the event loop's thread."""
        self._taking = Lock()
        """Held while a connection is taken: the asynchronous sender may need it at the same time as a call."""

    # The connection, and the limit on connections

    @property
    def is_spare(self) -> bool:
        """True if it has a connection that it does not need now."""
        return not (self._uses or self._is_closed) and self.link.is_spare

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
        if self._is_closed:
            raise IllegalStateException("The session is closed.")
        while True:  # a connection that another session has handed over may have ended, too
            link = self.link
            if isinstance(link, OwnLink) and link.state is TransactionState.NONE:
                if monotonic() > link.driver.trusted_until:
                    await self.settle()  # the answer would hide that the connection has ended
                # The settings that a handler has left on its connection, such as a role, are not for the next message.
                is_stained = self.shares_connections and link.driver.traces.has_changed_settings
                if link.is_lost or (is_stained and link.is_idle):
                    await self.discard()
            if not isinstance(self.link, NoLink):
                return True
            async with self._taking:
                if isinstance(self.link, NoLink):
                    connect = partial(self._pool.connect, transacted=self.is_transacted)
                    if self._pool.limit.most is None:
                        self.accept(await connect())
                    elif not await self._pool.limit.take(self, connect, patience):
                        return False

    def accept(self, connection: AsyncConnection) -> None:
        """Run statements on a connection from now on."""
        driver = driver_connection(connection)
        assert isinstance(driver, WatchedConnection)
        link = OwnLink(connection, driver, self._pool.schema, transacted=self.is_transacted, preface=self._preface)
        self.link = link  # in one step, since Ctrl-C may end this anywhere

    def hand_over(self) -> AsyncConnection:
        """Give the connection up, and return it."""
        link = self.link
        assert isinstance(link, OwnLink)
        self.link = _NO_LINK
        return link.connection

    @contextlib.asynccontextmanager
    async def connected(self, *, needed: bool = True) -> AsyncIterator[None]:
        """Keep a connection for as long as a block runs, whose work must not be left undone.

        Waiting for the connection can be cancelled, and nothing in the block has to wait for one.

        Args:
            needed: False takes none.

        Raises:
            IllegalStateException: It was closed, by another thread that did not wait for this one.
            ResourceAllocationException: All connections are in use, and stay so; or the server cannot be reached.
        """
        await self.acquire(needed=needed)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, *, needed: bool = True) -> None:
        """Keep a connection as `connected` does, until `release`."""
        link = self.link
        if needed and (
            isinstance(link, NoLink) or link.driver.closed or self._is_closed or monotonic() > link.driver.trusted_until
        ):
            await self._take_connection()
        self._uses += 1

    async def acquire_within(self, patience: float | None) -> bool:
        """Acquire after at most `patience` seconds for other sessions; return False if they took longer."""
        if not await self._take_connection(patience):
            return False
        self._uses += 1
        return True

    def release(self) -> None:
        """Let another session have the connection, if it is not needed otherwise."""
        self._uses -= 1
        if self._pool.limit.waiting:
            self._pool.limit.freed()

    @property
    def turn(self) -> Lock | None:
        """The lock of a look for messages: sessions that share connections, and have none, take turns."""
        return self._pool.looking if isinstance(self.link, NoLink) else None

    async def pause(self) -> None:
        """Release the connection to its pool, if it is one to be shared and no transaction is open."""
        link = self.link
        if not self.shares_connections or isinstance(link, NoLink) or not link.is_idle:
            return
        if not link.driver.traces.has_changed_settings:
            synchronous(link.connection).info.pop(LENT, None)
        link.driver.watch(None)
        with self._giving_up():
            await run_to_completion(give_back(link.connection))

    # Running statements

    async def begin(self, *, joins: bool = False) -> OwnLink:
        """Connect, begin the transaction if there is to be one, and return the link.

        Args:
            joins: True if the session has work for the transaction, which an open one has to keep from then on.

        Raises:
            IllegalStateException: It was closed, by another thread that did not wait for this one.
            TransactionRolledBackException: The application has closed it, or rolled its transaction back.
        """
        link = await self._connect()
        await link.begin(works=joins and not link.is_idle)
        return link

    async def _connect(self) -> OwnLink:
        """Take a connection unless the session has one, and return the link."""
        await self._take_connection()
        link = self.link
        assert isinstance(link, OwnLink)
        return link

    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements in the transaction, which begins if none is open.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost.
        """
        link = await self._connect()
        return await self._keep_for(lambda: link.run(work))

    async def _keep_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run work to its end, for which the connection must stay."""
        self._uses += 1  # before the first wait, in which the limit might hand the connection over
        try:
            return await run_to_completion(work())
        finally:
            self.release()

    async def attempt(self, work: Query[T] | Steps[T], question: Query[list[int]] | None = None) -> T:
        """Run statements, which the server is asked to interrupt if the task is cancelled for longer than a moment.

        If it interrupts them, nothing has come of them, and an open transaction is lost. Else they are done.

        Args:
            work: The statements.
            question: Asks, after each that commits by itself and in its exchange, which destinations are waited for. It
                may notify them, and writes no rows. The link has the `answer`.
        """
        link = self.link
        if isinstance(link, NoLink) or link.driver.closed or self._is_closed or monotonic() > link.driver.trusted_until:
            link = await self._connect()
        self._uses += 1  # as in `_keep_for`: each send and receipt comes here
        try:
            return await run_to_completion(interruptible(link.run(work, question), Interruption(link.driver)))
        finally:
            self.release()

    async def inspect(self, work: Steps[T]) -> T:
        """Run statements that change nothing. If no transaction is open, none is afterwards."""
        link = await self._connect()
        return await self._keep_for(lambda: interruptible(link.inspect(work), Interruption(link.driver)))

    async def run_alone(self, work: Query[T] | Steps[T]) -> T:
        """Run statements that commit by themselves, while no transaction is open.

        An application that has left something open on the connection keeps it, and another one is taken.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost.
        """
        if not self.is_transacted:
            return await self.attempt(work)
        link = await self._connect()
        if not (link.is_idle and link.is_clear):
            await self.discard()
            link = await self._connect()
        return await self._keep_for(lambda: interruptible(link.run_alone(work), Interruption(link.driver)))

    async def begin_implicitly(self) -> WireRunner:
        """Return the runner of statements that are to commit together, in a session that is not transacted.

        The caller holds the connection until they have.
        """
        link = self.link
        if isinstance(link, OwnLink) and link.is_pooled:
            # A pooler takes the connection back with the answer, also if statements without a Sync have come meanwhile.
            await self.settle()
        if isinstance(link, NoLink) or link.driver.closed:
            link = await self._connect()
        assert link.implicit is not None
        return link.implicit

    async def settle(self) -> None:
        """Wait for the commit of such a transaction, if one is under way."""
        link = self.link
        if isinstance(link, OwnLink) and link.driver.is_committing:
            await self._keep_for(link.driver.settle)

    async def lend(self, listener: ApplicationListener) -> LentLink:
        """Let the application use the connection in the transaction, too.

        Its settings (a role, a time limit) are not for others: the pool will close the connection.

        Args:
            listener: Called around the application's statements and commits.
        """
        link = await self.begin()
        if not isinstance(link, LentLink):
            link = self.link = (HandlerLink if self.shares_connections else LentLink)(link, listener)
        return link

    # Ending the transaction

    async def commit(
        self, last: Sequence[Query[Any]] = (), question: Query[list[int]] | None = None
    ) -> list[int] | None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange with the server.
            question: Asks after that, in the same exchange, which destinations are waited for. It may notify them, and
                writes no rows.

        Returns:
            The answer, or None if nothing was asked or answered.

        Raises:
            TransactionRolledBackException: It was lost: an earlier statement failed, or PostgreSQL refused to commit.
            JMSException: The connection was cut while it committed, and nobody knows the outcome.
        """
        link = self.link
        if last:
            if isinstance(link, NoLink):
                link = await self._connect()
            await link.begin(works=True)
        if isinstance(link, NoLink):
            return None
        end = await link.prepare_commit(last, question)
        return await self._end(link, "committing", end, "Look for its effects before doing it again.", last)

    async def prepare(self, identifier: str) -> None:
        """Prepare the transaction, so that any client can commit it or roll it back, and have none open then.

        Args:
            identifier: PostgreSQL's name for it: digits, letters, and _+/= alone.

        Raises:
            TransactionRolledBackException: It was lost: an earlier statement failed, or PostgreSQL refused to prepare.
            JMSException: The connection was cut meanwhile, and nobody knows the outcome.
        """
        link = await self.begin()
        prepare = partial(link.prepare, identifier)
        await self._end(link, "preparing", prepare, "If tpc_recover() returns the transaction, it is prepared.")

    async def _end(
        self,
        link: OwnLink,
        doing: str,
        end: Callable[[], Coroutine[Any, Any, T]],
        advice: str,
        last: Sequence[Query[Any]] = (),
    ) -> T:
        if link.driver.pgconn.transaction_status == IN_ERROR:
            aborted = link.aborted()
            await self.rollback()
            raise aborted
        try:
            outcome = await run_to_completion(link.end_or_lose(end()))
        except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
            if is_connection_lost(error):
                # The server may have committed before it, or the network, went away. Only a look can tell.
                await self.discard()
                raise JMSException(
                    f"The connection was cut while {doing}; whether it took effect is not known. {advice}", "08007"
                ) from error
            if last and lacks_privilege(error):
                doing = "; ".join(each.doing_as(link.driver.info.user) for each in last)
            failure = translate(error, doing)
            failure.__cause__ = error
            await self.rollback()
            raise TransactionRolledBackException(str(failure), failure.error_code) from failure
        link.note_end()  # the caller's hold ends later, and tells the limit
        return outcome

    async def rollback(self) -> None:
        """Roll the transaction back, if one is open; a lost connection has done so already."""
        link = self.link
        if isinstance(link, NoLink):
            return
        is_unfit = link.has_failed and link.driver.refuses_writes
        try:
            if link.let_end() and not link.is_lost:
                await run_to_completion(link.roll_back())
        except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
            logger.info("Rollback failed: %s", translate(error, "rolling back"))
            await self.discard()
        if link is self.link and (link.is_lost or link.connection.closed or is_unfit):
            await self.discard()
        self._ended()

    async def end_unused(self) -> None:
        """End the transaction, which has changed nothing, if one is open.

        By a commit where one can be: after a rollback psycopg prepares all statements again, and planning the next
        fetch takes longer than the fetch.
        """
        link = self.link
        if isinstance(link, NoLink):
            return
        link.let_end()
        if link.driver.pgconn.transaction_status == TransactionStatus.INTRANS:
            try:
                await run_to_completion(link.commit_plainly())
            except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
                logger.info("Commit of an unused transaction failed: %s", translate(error, "ending a transaction"))
                await self.discard()
            self._ended()
        else:
            await self.rollback()

    def _ended(self) -> None:
        """Note the end of the transaction, after which another session may have the connection."""
        self.link.note_end()
        if self._pool.limit.waiting:
            self._pool.limit.freed()

    # Giving the connection up

    async def discard(self) -> None:
        """Give the connection up; the next use takes another one."""
        link = self.link
        if isinstance(link, OwnLink):
            link.let_end()
        with self._giving_up():
            if isinstance(link, OwnLink) and not link.connection.closed:
                await run_to_completion(link.connection.invalidate())
                await run_to_completion(link.connection.close())

    async def close(self) -> None:
        """Roll back and release the connection to its pool, for good."""
        self._is_closed = True  # before the first wait, so that no call takes another one meanwhile
        await self.settle()
        await self.rollback()
        link = self.link
        with self._giving_up():
            if isinstance(link, OwnLink):
                await run_to_completion(link.connection.close())

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Have no connection from now on, and let another session have one at the end of a block."""
        self.link = _NO_LINK
        limit = self._pool.limit
        is_counted = self in limit.holders
        if is_counted:
            limit.returning(self)
        try:
            with shielded():
                yield
        finally:
            if is_counted:
                limit.returned()


_NO_LINK = NoLink()


@contextlib.asynccontextmanager
async def savepoint(lease: Lease) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Run statements in a savepoint, which an exception undoes. Yields a callable that undoes it, too."""
    await lease.run(set_savepoint.bind())
    try:
        yield lambda: lease.run(undo_savepoint.bind())
    except BaseException as error:
        if not is_connection_lost(error):
            await lease.run(undo_savepoint.bind())
        raise
    await lease.run(release_savepoint.bind())
