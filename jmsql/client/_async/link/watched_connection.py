"""A connection that a session shares with the application, and that tells the session what the application runs."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import psycopg
from psycopg import sql

from jmsql.store.wire._async.runner import WireConnection
from jmsql.store.wire.application_sql import (
    Effects,
    SavepointCommand,
    SavepointStep,
    effects_of,
)

StatementListener = Callable[[SavepointStep | None], Awaitable[None]]
"""Called before each statement of the application's, with what the statement does with a savepoint."""

_UNKNOWN = Effects(
    outlives_transaction=True, deallocates=True, savepoint=SavepointStep(SavepointCommand.ROLLBACK, None)
)
"""What a statement may do whose text is not known."""


class WatchedConnection(WireConnection):
    """Tells a listener of what runs through its cursors and its `transaction` blocks.

    The session's own statements run on cursors of plain classes, of which the listener hears nothing.
    """

    _listening: weakref.WeakMethod[StatementListener] | None = None

    failure: str | None = None
    """Why the last statement failed that was heard of, but for those that an aborted transaction refuses."""

    has_changed_settings = False
    """Whether a statement that was heard of looked as if it left something on the connection: a role, or a lock."""

    def watch(self, listener: StatementListener | None) -> None:
        """Call a method before each statement from now on, for as long as its object is there; None: nothing.

        SQLAlchemy keeps each connection that is in use until it is closed, which must not keep the object.
        """
        self._listening = None if listener is None else weakref.WeakMethod(listener)
        self.cursor_factory = psycopg.AsyncCursor if listener is None else _WatchedCursor
        self.server_cursor_factory = psycopg.AsyncServerCursor if listener is None else _WatchedServerCursor

    @property
    def _listener(self) -> StatementListener | None:
        return None if self._listening is None else self._listening()

    async def heed(self, query: object) -> None:
        """Tell the listener of a statement that is about to run."""
        listener = self._listener
        if listener is not None:
            text = self._text(query)
            effects = _UNKNOWN if text is None else effects_of(text)
            self.has_changed_settings |= effects.outlives_transaction
            step = effects.savepoint
            await listener(step)
            if effects.deallocates or (step is not None and step.command is SavepointCommand.ROLLBACK):
                self.known_statements.forget()  # psycopg, too, ends all that is prepared after a rollback

    @contextmanager
    def note_failure(self) -> Iterator[None]:
        """Remember why a statement fails."""
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate not in {None, "25P02"}:
                self.failure = error.diag.message_primary
            raise

    def _text(self, query: object) -> str | None:
        if isinstance(query, str):
            return query
        if isinstance(query, bytes):
            return query.decode(errors="replace")
        return query.as_string(self) if isinstance(query, sql.Composable) else None

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,
    ) -> AsyncIterator[psycopg.AsyncTransaction]:
        tell = self._listener or _nobody
        name = f"block {uuid.uuid4()}"
        await tell(SavepointStep(SavepointCommand.SET, name))
        async with super().transaction(savepoint_name, force_rollback) as transaction:
            try:
                yield transaction
            except BaseException:
                await tell(SavepointStep(SavepointCommand.ROLLBACK, name))
                self.known_statements.forget()
                raise
            await tell(SavepointStep(SavepointCommand.ROLLBACK if force_rollback else SavepointCommand.RELEASE, name))
            if force_rollback:
                self.known_statements.forget()


class _WatchedCursor(psycopg.AsyncCursor[Any]):
    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
        connection = _connection(self)
        await connection.heed(query)
        with connection.note_failure():
            return await super().execute(query, *arguments, **options)

    async def executemany(self, query: Any, *arguments: Any, **options: Any) -> None:
        connection = _connection(self)
        await connection.heed(query)
        with connection.note_failure():
            await super().executemany(query, *arguments, **options)

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
        with connection.note_failure():
            return await super().execute(query, *arguments, **options)


async def _nobody(_: SavepointStep | None) -> None:
    """Hear nothing."""


def _connection(cursor: psycopg.AsyncCursor[Any]) -> WatchedConnection:
    connection = cursor.connection
    assert isinstance(connection, WatchedConnection)
    return connection
