"""A connection that a session shares with the application, of whose statements it tells the session."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol, Self

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from jmsql.client.transaction_state import TransactionEvent
from jmsql.concurrency.tasks import run_to_completion
from jmsql.exceptions import TransactionInProgressException
from jmsql.store.wire._async.runner import WireConnection
from jmsql.store.wire.application_sql import Effects, SavepointCommand, SavepointStep, effects_of
from jmsql.store.wire.beginning_cursor import BeginningCursor
from jmsql.store.wire.exchange import BEGIN_READ_COMMITTED, IDLE, IN_ERROR, PIPELINE_OFF, Exchange

# How the session learns of the application's statements: the cursor classes of a lent connection call `heed` before a
# statement runs, and psycopg's `transaction` blocks tell of their savepoints. The effects are read from the statement's
# text (`effects_of`). A query whose text is not known counts as having any effect (`_UNKNOWN`). SQLAlchemy's statements
# use these cursors as well, so this is the only place. `commit` calls the listener before and after it: the session's
# messages are part of the transaction.
#
# A handler's connection is kept open (`keep_open`): commit, rollback, close and the like are refused, as is a text that
# ends the transaction. `let_end` makes them possible again. If a COPY or a statement still holds psycopg's lock then,
# the connection is ended: the commit would wait for the lock without a limit (decision 61).


class ApplicationListener(Protocol):
    """The session's part of a lent connection, which is called around the application's steps."""

    async def before_statement(self, step: SavepointStep | None) -> None:
        """Prepare for a statement; raise an exception to keep it from running.

        Args:
            step: Its effect on a savepoint; None: it has none.
        """

    async def before_commit(self) -> None:
        """Do the session's part of a commit, which is about to run."""

    async def after_commit(self) -> None:
        """Note that the commit has succeeded."""


_UNKNOWN = Effects(
    outlives_transaction=True,
    deallocates=True,
    savepoint=SavepointStep(SavepointCommand.ROLLBACK, None),
    changes_role=True,
)
"""The possible effects of a statement whose text is not known."""


class Traces(NamedTuple):
    """The application's traces on a connection, as far as its statements and calls tell.

    Args:
        failure: The reason for which its last statement failed, but for those that an aborted transaction refuses.
        has_changed_settings: True if a statement may have left something on the connection: a role, or a lock.
        may_have_other_role: True if one of its statements in the transaction may have set a role.
        ending: Its end of the transaction, by a call or a statement; None: the transaction goes on.
    """

    failure: str | None = None
    has_changed_settings: bool = False
    may_have_other_role: bool = False
    ending: TransactionEvent | None = None


class _Ends(Enum):
    """The one who may end the transaction now."""

    APPLICATION = auto()
    """The application, and the session hears of it."""
    LATER = auto()
    """The session, once the application has done its part, to which an end is refused."""
    SESSION = auto()
    """The session, which is about to do so."""


class Watch(NamedTuple):
    """The application's hold on a connection.

    Args:
        listener: Called around the application's steps, for as long as it is there.
        ends: The one who may end the transaction.
    """

    listener: weakref.ref[ApplicationListener]
    ends: _Ends = _Ends.APPLICATION


_APPLICATION, _LATER, _SESSION = _Ends
_OPEN = {TransactionStatus.INTRANS, TransactionStatus.INERROR}


class WatchedConnection(WireConnection):
    """Tells a listener of the statements of its cursors and its `transaction` blocks.

    The session's own statements run on cursors of plain classes, of which the listener hears nothing.
    """

    traces = Traces()
    """The application's traces. Replaced whole, by the thread or task that uses the connection."""

    _watch: Watch | None = None
    """The application's hold; None: it does not have the connection. Replaced whole by `watch`, `keep_open`, `let_end`
    and `note_end`, with the session's lock held."""

    def watch(self, listener: ApplicationListener | None) -> None:
        """Call a listener around the application's steps from now on, for as long as it is there; None: nothing.

        SQLAlchemy keeps each connection that is in use until it is closed, which must not keep the listener.
        """
        self._watch = None if listener is None else Watch(weakref.ref(listener))
        self._set_factories()

    def _set_factories(self) -> None:
        is_watched = self._watch is not None
        self.row_factory = tuple_row
        self.cursor_factory = _WatchedCursor if is_watched else psycopg.AsyncCursor
        self.server_cursor_factory = _WatchedServerCursor if is_watched else psycopg.AsyncServerCursor

    @property
    def _listener(self) -> ApplicationListener | None:
        watch = self._watch
        return None if watch is None else watch.listener()

    def _is_ended_by(self, ends: _Ends) -> bool:
        watch = self._watch
        return watch is not None and watch.ends is ends

    async def heed(self, query: object) -> None:
        """Tell the listener of a statement that is about to run."""
        listener = self._listener
        if listener is not None:
            text = query if isinstance(query, str) else self._text(query)
            effects = _UNKNOWN if text is None else effects_of(text)
            if effects.outlives_transaction or effects.changes_role:
                traces = self.traces
                self.traces = traces._replace(
                    has_changed_settings=traces.has_changed_settings or effects.outlives_transaction,
                    may_have_other_role=traces.may_have_other_role or effects.changes_role,
                )
            if effects.ends_transaction:
                self._refuse_if_kept_open(repr(text))
            step = effects.savepoint
            # The text of an end looks like a rollback to a savepoint, which takes back only a part.
            await listener.before_statement(None if effects.ends_transaction else step)
            if effects.ends_transaction:
                self._note_ending(TransactionEvent.VANISH)
            if effects.deallocates or (step is not None and step.command is SavepointCommand.ROLLBACK):
                self.known_statements.forget()  # psycopg, too, ends all that is prepared after a rollback

    def note_failure(self, error: psycopg.Error) -> None:
        """Remember why a statement has failed."""
        if error.sqlstate not in {None, "25P02"}:
            self.traces = self.traces._replace(failure=error.diag.message_primary)

    @contextmanager
    def keeping_settings(self) -> Iterator[None]:
        """Let statements in a block leave settings on the connection that are for all its later users."""
        had_changed_settings = self.traces.has_changed_settings
        yield
        self.traces = self.traces._replace(has_changed_settings=had_changed_settings)

    def _text(self, query: object) -> str | None:
        if isinstance(query, bytes):
            return query.decode(errors="replace")
        return query.as_string(self) if isinstance(query, sql.Composable) else None

    # Lent to a handler, which has no part in the end of its message's transaction

    def keep_open(self) -> None:
        """Refuse to end the transaction, to close, and to begin transactions of another kind, until `let_end`.

        Earlier settings of the application for its cursors are forgotten.
        """
        assert self._watch is not None
        self._watch = self._watch._replace(ends=_LATER)
        self._set_factories()

    def let_end(self) -> bool:
        """Let the session end the transaction, until `note_end`; return False if that is not possible.

        A COPY, or another statement, may still go on where the end was refused to the application, and may never end.
        It is ended with the connection.
        """
        watch = self._watch
        if watch is None:
            return True
        self._watch = watch._replace(ends=_SESSION)
        if watch.ends is _LATER and self.lock.locked():
            self.pgconn.finish()
            return False
        return True

    @contextmanager
    def _ends_by(self, ending: TransactionEvent) -> Iterator[None]:
        """Note the end of the transaction, if one is open, for which a block asks."""
        if self.pgconn.transaction_status == IDLE:
            yield
            return
        try:
            yield
        except BaseException as error:
            if not self.closed and self.pgconn.transaction_status in _OPEN:
                raise  # psycopg itself has refused it, inside of a block of `transaction`
            # A server that refuses to commit rolls back. A cut connection or an interruption leaves the outcome open.
            is_refused = isinstance(error, psycopg.Error) and not self.closed
            self._note_ending(TransactionEvent.APPLICATION_ROLLS_BACK if is_refused else TransactionEvent.VANISH)
            raise
        self._note_ending(ending)

    def _note_ending(self, ending: TransactionEvent) -> None:
        # A second end before the next statement is the end of another transaction, which holds nothing of the session.
        if self.traces.ending is None:
            self.traces = self.traces._replace(ending=ending)

    def forget_ending(self) -> None:
        """Forget the end of the transaction by the application, which counts once."""
        if self.traces.ending is not None:
            self.traces = self.traces._replace(ending=None)

    def note_end(self) -> None:
        """Forget the application's part in the transaction, which the session has ended."""
        if self._watch is not None and self._watch.ends is _SESSION:
            self._watch = self._watch._replace(ends=_APPLICATION)
        traces = self.traces
        if traces.ending is not None or traces.may_have_other_role:
            # A setting that outlives the transaction may be a role.
            may_have_other_role = traces.may_have_other_role and traces.has_changed_settings
            self.traces = traces._replace(ending=None, may_have_other_role=may_have_other_role)

    def _refuse_if_kept_open(self, what: str) -> None:
        if self._is_ended_by(_LATER):
            raise TransactionInProgressException(
                f"{what} is refused: the connection is in the transaction of a message, which the worker commits when "
                "the handler has returned, and rolls back if it raises. For a part that can be undone by itself there "
                "is connection.transaction(), a savepoint."
            )

    async def _begin_if_kept_open(self) -> None:
        """Begin the transaction, in which blocks of `transaction` are savepoints then, and pipelines end nothing."""
        pgconn = self.pgconn
        if self._is_ended_by(_LATER) and pgconn.transaction_status == IDLE and pgconn.pipeline_status == PIPELINE_OFF:
            async with self.lock:
                await run_to_completion(self.exchange(Exchange(begin=BEGIN_READ_COMMITTED)))

    async def commit(self) -> None:
        self._refuse_if_kept_open("commit()")
        has_failed = self.pgconn.transaction_status == IN_ERROR
        listener = self._listener if self._is_ended_by(_APPLICATION) and not has_failed else None
        if listener is not None:
            await listener.before_commit()
        is_aborted = self.pgconn.transaction_status == IN_ERROR  # then COMMIT rolls back
        ending = TransactionEvent.APPLICATION_ROLLS_BACK if is_aborted else TransactionEvent.APPLICATION_COMMITS
        with self._ends_by(ending):
            await super().commit()
        if listener is not None:
            await listener.after_commit()

    async def rollback(self) -> None:
        self._refuse_if_kept_open("rollback()")
        with self._ends_by(TransactionEvent.APPLICATION_ROLLS_BACK):
            await super().rollback()

    async def close(self) -> None:
        self._refuse_if_kept_open("close()")
        await super().close()

    async def set_autocommit(self, value: bool) -> None:
        self._refuse_if_kept_open("set_autocommit()")
        await super().set_autocommit(value)

    async def set_isolation_level(self, value: psycopg.IsolationLevel | None) -> None:
        self._refuse_if_kept_open("set_isolation_level()")
        await super().set_isolation_level(value)

    async def set_read_only(self, value: bool | None) -> None:
        self._refuse_if_kept_open("set_read_only()")
        await super().set_read_only(value)

    async def set_deferrable(self, value: bool | None) -> None:
        self._refuse_if_kept_open("set_deferrable()")
        await super().set_deferrable(value)

    async def tpc_begin(self, xid: psycopg.Xid | str) -> None:
        self._refuse_if_kept_open("tpc_begin()")
        await super().tpc_begin(xid)

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        await self._begin_if_kept_open()
        async with super().pipeline() as pipeline:
            yield pipeline

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        await self._begin_if_kept_open()
        listener = self._listener
        notify = _ignore if listener is None else listener.before_statement
        name = f"block {uuid.uuid4()}"
        await notify(SavepointStep(SavepointCommand.SET, name))
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            try:
                yield transaction
            except BaseException:
                await notify(SavepointStep(SavepointCommand.ROLLBACK, name))
                self.known_statements.forget()
                raise
            await notify(SavepointStep(SavepointCommand.ROLLBACK if force_rollback else SavepointCommand.RELEASE, name))
            if force_rollback:
                self.known_statements.forget()


class _WatchedCursor(BeginningCursor, psycopg.AsyncCursor[Any]):
    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
        connection = _connection(self)
        await connection.heed(query)
        try:
            return await super().execute(query, *arguments, **options)
        except psycopg.Error as error:
            connection.note_failure(error)
            raise

    async def executemany(self, query: Any, *arguments: Any, **options: Any) -> None:
        connection = _connection(self)
        await connection.heed(query)
        try:
            await super().executemany(query, *arguments, **options)
        except psycopg.Error as error:
            connection.note_failure(error)
            raise

    async def stream(self, query: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        await _connection(self).heed(query)
        async for row in super().stream(query, *arguments, **options):
            yield row

    @asynccontextmanager
    async def copy(self, statement: Any, *arguments: Any, **options: Any) -> AsyncIterator[psycopg.AsyncCopy]:
        await _connection(self).heed(statement)
        async with super().copy(statement, *arguments, **options) as copy:
            yield copy


class _WatchedServerCursor(psycopg.AsyncServerCursor[Any]):
    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
        connection = _connection(self)
        await connection.heed(query)
        try:
            return await super().execute(query, *arguments, **options)
        except psycopg.Error as error:
            connection.note_failure(error)
            raise


async def _ignore(_: SavepointStep | None) -> None:
    """Hear nothing."""


def _connection(cursor: psycopg.AsyncCursor[Any]) -> WatchedConnection:
    connection = cursor.connection
    assert isinstance(connection, WatchedConnection)
    return connection
