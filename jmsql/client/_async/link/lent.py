"""A session's connection while the application uses it, too, by SQLAlchemy or by psycopg."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from jmsql.client._async.link.own import OwnLink
from jmsql.client.transaction_state import (
    LOST_STATES,
    TRANSITIONS,
    WORKING_STATES,
    TransactionEvent,
    TransactionState,
)
from jmsql.concurrency.tasks import run_to_completion
from jmsql.exceptions import TransactionRolledBackException
from jmsql.store.connections.engine import LENT, SESSION, synchronous
from jmsql.store.receiving.receive import require_read_committed
from jmsql.store.statement import Query, Statement, nothing
from jmsql.store.wire._async.runner import PsycopgRunner
from jmsql.store.wire.roles import drop_role, read_role

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from jmsql.client._async.link.watched_connection import ApplicationListener
    from jmsql.store.statement import Steps


T = TypeVar("T")

# The rules of a lent connection:
#
# - The session's statements run by psycopg itself, which waits its turn with the application's. An exchange of libpq
#   is for the commit alone, under psycopg's lock, where no pipeline of the application is open (`is_clear`).
# - The application is expected to leave the end of the transaction to the session. The driver's connection notes an
#   end in `ending`, and `_notice_end` reads it before each step of the session. An end as text does not tell how it
#   went, so the outcome stays unknown (`VANISH`).
# - The session's own statements run as the role that it has connected as, also where the application has set another
#   one in the transaction. Statements that follow run as the application's role again.
# - SQLAlchemy ends the transaction where the application has its connection, since its listeners and its nested
#   transactions have to hear of that; else psycopg does.
# - The settings that the application has left on the connection are not for others: the pool closes it.
#
# Things that do not work:
#
# - SQLAlchemy's events for commit and rollback: they come before the server's answer, which may be a refusal.
# - An exchange by `WireRunner` for each statement: it reads the answers to a pipeline or COPY of the application.

set_savepoint = Statement("set_savepoint", "savepoint jmsql_own", "setting a savepoint", nothing)
undo_savepoint = Statement("undo_savepoint", "rollback to savepoint jmsql_own", "rolling back to a savepoint", nothing)
release_savepoint = Statement("release_savepoint", "release savepoint jmsql_own", "releasing a savepoint", nothing)
_SAVEPOINTS = (set_savepoint, undo_savepoint, release_savepoint)


class LentLink(OwnLink):
    """A connection that the application uses, too. It may keep it for later transactions, and set savepoints.

    Args:
        link: The link on which the connection was used before, whose transaction goes on.
        listener: Called around the application's statements and commits, through SQLAlchemy or the driver. It notes a
            statement by `used_by_application`.
    """

    begins_early: ClassVar[bool] = True  # else the application might begin it, with options of its own
    allows_other_threads: ClassVar[bool] = False
    occupation = "kept for the application since get_database()"
    is_of_handler: ClassVar[bool] = False
    """True if the connection goes back to its pool when the session finds no message."""

    def __init__(self, link: OwnLink, listener: ApplicationListener) -> None:
        state = link.state
        if link.is_idle:  # after a statement that was interrupted before it reached the server
            state = TRANSITIONS[TRANSITIONS[state][TransactionEvent.END]][TransactionEvent.BEGIN]
        super().__init__(link.connection, link.driver, link.schema, transacted=link.implicit is None, state=state)
        self._psycopg = PsycopgRunner(link.driver, link.schema)
        synchronous(self.connection).info[LENT] = True
        self.driver.watch(listener)
        self.driver.forget_ending()

    async def for_sqlalchemy(self, listener: ApplicationListener) -> AsyncConnection:
        """Return SQLAlchemy's connection for the application, in the transaction."""
        if self._shared is None:
            # The driver's connection refers to the session weakly; this one keeps it as long as the application has it.
            self._core.execution_options(**{SESSION: listener})
            await self.begin()
        return self.connection

    async def for_driver(self) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection for the application, which is not let end the transaction.

        SQLAlchemy has no part in it, unless the application asks for that as well.
        """
        self.driver.keep_open()
        return self.driver

    def used_by_application(self, *, is_awaited: bool = False) -> None:
        """Note that the application is about to run a statement in the transaction, which it shares from then on.

        Args:
            is_awaited: True if the session's commit stands for the statement, though it has run none itself.
        """
        self._notice_end()
        event = TransactionEvent.SESSION_RELIES if is_awaited else TransactionEvent.APPLICATION_WORKS
        self.state = TRANSITIONS[self.state][event]

    # Its state

    @property
    def _shared(self) -> Connection | None:
        """SQLAlchemy's connection, once the application has asked for it."""
        return self._core if SESSION in self._core.get_execution_options() else None

    def has_lost_work(self) -> bool:
        """Tell if the application has ended the transaction, and work of the session is gone or its fate unknown."""
        self._notice_end()
        return self.state in LOST_STATES

    @property
    def is_spare(self) -> bool:
        return False

    @property
    def can_run_alone(self) -> bool:
        return False

    @property
    def has_lost_locks(self) -> bool:  # type: ignore[override]  # it depends on the application here
        # An end as text may have begun the next transaction: the state changes with the session's next step.
        return self.is_idle or self.state in LOST_STATES or self.driver.traces.ending is not None

    @property
    def has_foreign_work(self) -> bool:  # type: ignore[override]  # as `has_lost_locks`
        return self.state is not TransactionState.OURS

    def _notice_end(self) -> None:
        """Note if the application has ended the transaction."""
        driver = self.driver
        event = driver.traces.ending
        if event is not None:
            driver.forget_ending()
        elif self.state in WORKING_STATES and driver.is_idle:
            event = TransactionEvent.VANISH
        if event is not None:
            self.state = TRANSITIONS[self.state][event]

    # Running statements

    async def begin(self, *, works: bool = False) -> None:
        self._notice_end()
        shared = self._shared
        if shared is None or shared.in_transaction():
            await super().begin(works=works)
            return
        await super().begin()
        if shared.get_transaction() is not None:  # the server refused the application's commit
            await self.connection.rollback()
        # The server hears of it with the first statement.
        if shared.dispatch.begin:  # an application's listeners, which may run statements
            await self.connection.begin()
        else:
            shared.begin()
        if works:
            await super().begin(works=True)

    async def run(self, work: Query[T] | Steps[T], question: Query[list[int]] | None = None) -> T:  # noqa: ARG002 - the application's statements come between
        before = self.state
        await self.begin(works=True)
        try:
            if self._may_have_other_role and not (isinstance(work, Query) and work.statement in _SAVEPOINTS):
                return await self._run_as_session(work)
            return await self._psycopg.run(work)
        finally:
            if before not in WORKING_STATES and self.is_idle:
                self.state = before  # no statement has reached the server: one failed before, or none was needed

    async def inspect(self, work: Steps[T]) -> T:
        await self.begin()
        return await self.run(work)

    async def require_view_of_commits(self) -> None:
        await self.run(require_read_committed())

    @property
    def _may_have_other_role(self) -> bool:
        """True if the application may have set a role in the open transaction."""
        return self.driver.traces.may_have_other_role and not self.has_failed

    async def _run_plainly(self, query: Query[T]) -> T:
        """Run a statement in the open transaction, as the role that it has."""
        return await run_to_completion(self._psycopg.run(query))

    async def _run_as_session(self, work: Query[T] | Steps[T]) -> T:
        """Run statements as the session's own role, and those that follow as the application's again."""
        role = await self._psycopg.run(read_role)
        for query in drop_role:
            await self._psycopg.run(query)
        try:
            return await self._psycopg.run(work)
        finally:
            if not (self.has_failed or self.is_lost):
                await self._psycopg.run(role.set())

    # Ending the transaction

    def require_transaction(self) -> None:
        if not self.let_end():
            raise TransactionRolledBackException(
                "The transaction was rolled back: a COPY or another statement was still running on psycopg's "
                "connection, which was closed. Let it end before the handler returns."
            )
        self.driver.notice_loss()  # before `_notice_end`, which would take a loss for an end by the application
        self._notice_end()
        self._require_whole()
        if self.has_failed:
            raise self.aborted()

    async def prepare_commit(
        self, last: Sequence[Query[Any]], question: Query[list[int]] | None
    ) -> Callable[[], Coroutine[Any, Any, list[int] | None]]:
        if last and self._may_have_other_role and self.is_clear:
            # The application's deferred triggers run as its role all the same.
            role = await self._run_plainly(read_role)
            last = [*drop_role, *last, role.set()]
            question = None  # whose answer the other role may not get, if it has been set for longer
        if self.is_clear and (last or question is not None):
            return partial(self._commit_in_exchange, last, question)
        for query in last:
            await run_to_completion(self.run(query))
        return self.commit_plainly

    async def _commit_in_exchange(
        self, last: Sequence[Query[Any]], question: Query[list[int]] | None
    ) -> list[int] | None:
        self._runner.is_certain = True  # the driver's connection has noticed each statement that ends prepared ones
        async with self.driver.lock:
            answer: list[int] | None = await self._runner.commit(last, question)
        shared = self._shared
        if shared is not None and (shared.in_nested_transaction() or not self.is_of_handler):
            # So that SQLAlchemy knows; the server is not asked. A handler's next transaction may be the same one to it.
            await self.connection.commit()
        return answer

    async def commit_plainly(self) -> None:
        await self._ender.commit()

    async def roll_back(self) -> None:
        await self._ender.rollback()

    @property
    def _ender(self) -> AsyncConnection | psycopg.AsyncConnection[Any]:
        """Ends the transaction: SQLAlchemy, which takes longer, where the application may have asked it for one."""
        return self.driver if self._shared is None else self.connection

    def note_end(self) -> None:
        super().note_end()
        self.driver.note_end()

    async def prepare(self, identifier: str) -> None:
        if self._may_have_other_role:  # which alone could commit the transaction
            for query in drop_role:
                await self._run_plainly(query)
        await super().prepare(identifier)


class HandlerLink(LentLink):
    """A connection that a worker's handler uses for as long as there are messages."""

    is_of_handler: ClassVar[bool] = True
