"""A session's connection and the transaction on it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from psycopg.pq import TransactionStatus

from jmsql.client.transaction_state import (
    LOST_STATES,
    TRANSITIONS,
    TransactionEvent,
    TransactionState,
)
from jmsql.concurrency.tasks import CancelledError, interruptible
from jmsql.exceptions import JMSException, TransactionRolledBackException
from jmsql.store.connections.engine import POOLED, synchronous
from jmsql.store.errors import jms_errors
from jmsql.store.wire._async.runner import WireRunner
from jmsql.store.wire.exchange import IN_ERROR, PIPELINE_OFF, End
from jmsql.store.wire.interruption import Interruption
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.link.watched_connection import WatchedConnection
    from jmsql.store.statement import Query, Steps


T = TypeVar("T")

# A link is one connection in the hands of one session: the lease makes it when it accepts the connection, and drops it
# when it gives the connection up. The state of the transaction lives and dies with it (`transaction_state.py`).
#
# There are three: `NoLink` while the session has no connection, `OwnLink` while the session alone uses it, and
# `LentLink` once the application shares it, by `get_database()`, `share_driver` or a handler's parameter, until the
# connection is given up. A session asks its link for a property by name, and never for its class.
#
# Invariants:
#
# 1. One thread or task at a time uses a link: the holder of the session's lock, in a transaction of `SessionWork.lock`
#    as well; a `send` in a transaction, `SessionWork.run` and the asynchronous sender, which hold that one alone; or
#    the thread that runs the application's statement or commit on it (`Lender`), which holds neither, but for
#    `SessionWork.lock` while it inserts. So a consumer's `close`, which any thread may call, runs nothing on a link
#    where `allows_other_threads` is False. A commit that inserts nothing holds the session's alone: no asynchronous
#    send is left then. `interrupt` alone may come from elsewhere, and only reads.
# 2. `state` changes by `TRANSITIONS`, so a step that was not thought of raises. The exception is `LentLink.run`: it
#    restores the state from before a statement that never reached the server.
# 3. A link whose connection is closed stays, so that the end of the transaction can tell that it was lost.
#
# Things that do not work:
#
# - One state per session, kept across connections: a lost connection's state then meets the next one's transaction.
# - Replacing a lost connection inside of a transaction: the rest of the work would be committed alone.

_BEGIN, _OPEN, _JOIN, _END = (
    TransactionEvent.BEGIN,
    TransactionEvent.OPEN,
    TransactionEvent.JOIN,
    TransactionEvent.END,
)

_PARTLY_COMMITTED = (TransactionState.COMMITTED, TransactionState.CONTINUED)
"""States in which the application has committed work of the session."""
_LOSSES = {
    TransactionState.ROLLED_BACK: (
        "session.database was rolled back, and with it what the session had done. Leave rolling back to the session; "
        "call rollback(), and do the work again."
    ),
    TransactionState.INTERRUPTED: (
        "The transaction was lost when the call that ends it was cancelled; call rollback(), and do the work again."
    ),
}


class NoLink:
    """The absence of a connection. Nothing is open, and nothing can be lost."""

    state: ClassVar[TransactionState] = TransactionState.NONE
    begins_early: ClassVar[bool] = False
    allows_other_threads: ClassVar[bool] = True
    occupation: ClassVar[str] = "in use by a call"
    answer: ClassVar[None] = None
    is_connected: ClassVar[bool] = False
    is_lost: ClassVar[bool] = False
    is_idle: ClassVar[bool] = True
    is_spare: ClassVar[bool] = False
    can_run_alone: ClassVar[bool] = True
    has_failed: ClassVar[bool] = False
    has_lost_locks: ClassVar[bool] = False
    has_foreign_work: ClassVar[bool] = False
    was_ended: ClassVar[bool] = False

    def require_transaction(self) -> None:
        """Do nothing: no transaction was begun."""

    async def require_view_of_commits(self) -> None:
        """Do nothing: the next statement begins a transaction that sees them."""

    def note_end(self) -> None:
        """Do nothing: no transaction has ended."""

    async def interrupt(self, timeout: float) -> bool:  # noqa: ARG002 - nothing runs
        """Return False: no statement runs."""
        return False


class OwnLink:
    """A connection that the session alone uses, in exchanges of libpq.

    Args:
        connection: SQLAlchemy's connection.
        driver: Its connection of psycopg.
        schema: The schema of the statements.
        transacted: True if statements run in a transaction until commit or rollback; else each commits.
        preface: Runs before each statement that commits by itself, in its exchange.
        state: The state of the transaction.
    """

    begins_early: ClassVar[bool] = False
    """True if the session's first work begins the transaction, although it needs no statement yet."""
    has_lost_locks: ClassVar[bool] = False
    """True if the application has ended the transaction that held the session's locks."""
    has_foreign_work: ClassVar[bool] = False
    """True if the application may have done something in the open transaction."""
    allows_other_threads: ClassVar[bool] = True
    """True if the asynchronous sender may use it between two calls of the session."""

    def __init__(
        self,
        connection: AsyncConnection,
        driver: WatchedConnection,
        schema: str,
        *,
        transacted: bool,
        preface: Query[Any] | None = None,
        state: TransactionState = TransactionState.NONE,
    ) -> None:
        self.connection = connection
        self.driver = driver
        self._core = synchronous(connection)
        """The same connection, which under asyncio takes longer to tell that it is closed."""
        self.is_pooled = bool(self._core.info.get(POOLED))
        """True if it leads through a pooler."""
        self.state = state
        """Written in methods of this class and its subclass, by the holder of the session's lock or of the
        transaction's `SessionWork.lock`, and, in the thread that runs them and without these locks, before each of the
        application's statements and around its commits."""
        self._runner = WireRunner(driver, schema, begin=transacted, preface=preface)
        self.implicit = None if transacted else WireRunner(driver, schema, end=End.FLUSH)
        """Runs statements that commit together; None: the session is transacted."""

    @property
    def schema(self) -> str:
        """The schema that holds the tables."""
        return self._runner.schema

    # Its state

    @property
    def is_connected(self) -> bool:
        """True unless the connection is known to be lost."""
        return not self.driver.closed

    @property
    def is_lost(self) -> bool:
        """True if the connection is gone, and the transaction with it.

        An idle connection that the server or a pooler has ended counts as gone before anything is sent. The socket is
        not asked again within a second.
        """
        driver = self.driver
        return driver.closed or (monotonic() > driver.trusted_until and self.is_spare and self.was_ended)

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open at the server, except one that is being committed."""
        return self.driver.is_idle

    @property
    def is_spare(self) -> bool:
        """True if nothing is open on it, so that another session may have it."""
        if self.state is not TransactionState.NONE:
            return False
        if self.driver.is_committing:
            return True
        # An exchange may go on that began without a transaction; then the connection is in pipeline mode.
        return self.driver.closed or (self.is_idle and self.driver.pgconn.pipeline_status == PIPELINE_OFF)

    @property
    def occupation(self) -> str:
        """The use of the connection, in a sentence about sessions."""
        if self.state is not TransactionState.NONE or not self.is_idle:
            return "in an open transaction"
        return "in use by a call"

    @property
    def can_run_alone(self) -> bool:
        """True if a statement can commit by itself here, since no transaction is open."""
        return self.is_idle

    @property
    def is_clear(self) -> bool:
        """True if neither a pipeline nor another user is in the way of an exchange."""
        return self.driver.pgconn.pipeline_status == PIPELINE_OFF and not self.driver.lock.locked()

    @property
    def has_failed(self) -> bool:
        """True if a statement of the open transaction has failed, so that only a rollback can follow."""
        return self.driver.pgconn.transaction_status == IN_ERROR

    @property
    def was_ended(self) -> bool:
        """True if the server has ended the idle connection, which no call has noticed yet."""
        # The answer to a commit, perhaps of another session, is unread data as well.
        return not self.driver.closed and not self.driver.is_committing and self.driver.has_unread

    @property
    def answer(self) -> list[int] | None:
        """The answer to the question of the last `run`; None: it was not asked or not answered."""
        answer: list[int] | None = self._runner.answer
        return answer

    # Running statements

    async def begin(self, *, works: bool = False) -> None:
        """Begin the transaction, if there is one; the server hears of it with the first statement.

        Args:
            works: True if the session is about to run statements in it.

        Raises:
            TransactionRolledBackException: The application has closed it, or rolled its transaction back, or the
                session's commit was interrupted.
            JMSException: The application has ended the transaction, and the outcome is not known.
        """
        if self._core.closed or self.state in LOST_STATES:
            self._require_whole()
        if self.implicit is None:
            self.state = TRANSITIONS[self.state][_BEGIN]
            if works:
                event = _OPEN if self.driver.is_idle else _JOIN
                self.state = TRANSITIONS[self.state][event]

    async def run(self, work: Query[T] | Steps[T], question: Query[list[int]] | None = None) -> T:
        """Run statements in the transaction, which begins if none is open.

        Args:
            work: The statements.
            question: Asks, after each statement that commits by itself and in its exchange, which destinations are
                waited for. It may notify them, and writes no rows.
        """
        if self.implicit is None:
            await self.begin(works=True)
        self._runner.question = question
        return await self._runner.run(work)

    async def inspect(self, work: Steps[T]) -> T:
        """Run statements that change nothing. If no transaction is open, none is afterwards."""
        if self.implicit is not None or not self.is_idle:
            return await self.run(work)
        await self.begin()
        # BEGIN, the statements and COMMIT in one exchange: no transaction stays open, which would keep the server from
        # vacuum, and the limit from the connection, for as long as the session waits.
        try:
            return await WireRunner(self.driver, self.schema, begin=True, end=End.COMMIT).run(work)
        finally:
            self.note_end()

    async def run_alone(self, work: Query[T] | Steps[T]) -> T:
        """Run statements that commit by themselves, while no transaction is open."""
        return await WireRunner(self.driver, self.schema).run(work)

    async def require_view_of_commits(self) -> None:
        """Make sure that the next statement sees the commits of others.

        Raises:
            JMSException: The application has chosen another isolation level.
        """

    async def interrupt(self, timeout: float) -> bool:
        """Interrupt the statement that runs; return True if one did. May be called from another thread.

        Args:
            timeout: The most seconds for that.

        Raises:
            JMSException: The server could not be told.
        """
        if self.driver.pgconn.transaction_status != TransactionStatus.ACTIVE:
            return False
        with jms_errors("interrupting a statement"):
            await self.driver.cancel_safe(timeout=timeout)
        return True

    # Ending the transaction

    def require_transaction(self) -> None:
        """Make sure that the session's work in the transaction is there to be committed.

        Raises:
            TransactionRolledBackException: The connection was lost, the application has closed it or rolled its
                transaction back, or the session's commit was interrupted.
            JMSException: The application has ended the transaction, and the outcome is not known.
        """
        # Without this a connection that the server has closed would fail in COMMIT, and a failure there can mean
        # either outcome.
        self.driver.notice_loss()
        self._require_whole()

    def _require_whole(self) -> None:
        # Nothing more is done in a transaction of which a part is gone: its commit would do the rest alone.
        is_gone = self._core.closed or self.driver.closed
        if self.state is TransactionState.VANISHED or (is_gone and self.state in _PARTLY_COMMITTED):
            raise JMSException(
                "The session's transaction, or a part of it, was ended through its database connection, and whether it "
                "took effect is not known. Leave its end to the session; call rollback(), and look for its effects "
                "before doing it again.",
                "08007",
            )
        if self._core.closed:
            raise TransactionRolledBackException(
                "session.database was closed, which rolled the transaction back. Leave closing it to the session; "
                "call rollback(), and do the work again."
            )
        if self.state in LOST_STATES:
            raise TransactionRolledBackException(_LOSSES[self.state])
        if self.driver.closed:
            raise TransactionRolledBackException(
                "The connection to PostgreSQL was lost, and with it the transaction. Do it again.", "08006"
            )

    def aborted(self) -> TransactionRolledBackException:
        """Return the error of a transaction in which a statement has failed, and the error was caught."""
        failure = self.driver.traces.failure
        return TransactionRolledBackException(
            "The transaction was rolled back: one of its statements had failed before"
            + ("" if failure is None else f" ({failure})")
            + ", and the error was caught. Do it again, and run what may fail inside a savepoint: begin_nested(), or "
            "psycopg's transaction().",
            "25P02",
        )

    async def prepare_commit(
        self, last: Sequence[Query[Any]], question: Query[list[int]] | None
    ) -> Callable[[], Coroutine[Any, Any, list[int] | None]]:
        """Run the statements that the commit cannot take along, and return a callable that commits.

        Args:
            last: Statements that run before the commit.
            question: Asks after it, in the same exchange, which destinations are waited for. It may notify them, and
                writes no rows.
        """
        return partial(self._runner.commit, last, question)

    async def end_or_lose(self, end: Coroutine[Any, Any, T]) -> T:
        """End the transaction. If that is interrupted, the transaction is lost, and its next use says so."""
        # A commit can be interrupted as long as the server has not begun to write it. A call that is cancelled before
        # it begins is cancelled in `run_to_completion`, and has lost nothing.
        try:
            return await interruptible(end, Interruption(self.driver))
        except CancelledError:
            self.state = TRANSITIONS[self.state][TransactionEvent.INTERRUPT]
            raise

    async def commit_plainly(self) -> None:
        """Commit the transaction, and nothing else in the same exchange."""
        await self._runner.commit()

    async def roll_back(self) -> None:
        """Roll the transaction back."""
        await self._runner.rollback()

    async def prepare(self, identifier: str) -> None:
        """Prepare the transaction, and have none open then."""
        await self.connection.exec_driver_sql(f"prepare transaction '{identifier}'")
        await self.connection.rollback()  # does nothing at the server, which has no transaction open now

    def let_end(self) -> bool:
        """Let the transaction end where the application must not end it; return False if that closed the connection."""
        return self.driver.let_end()

    def note_end(self) -> None:
        """Note that the transaction has ended."""
        self.state = TRANSITIONS[self.state][_END]
