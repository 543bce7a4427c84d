"""A connection that a session shares with the application, and that tells the session what the application runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import psycopg
from psycopg import sql

from jmsql.store.savepoints import SavepointCommand, SavepointStep, read_savepoint_step

__all__ = ["StatementListener", "WatchedConnection"]

StatementListener = Callable[[SavepointStep | None], None]
"""Called before each statement of the application's, with what the statement does with a savepoint."""


class WatchedConnection(psycopg.Connection[Any]):
    """Tells a listener of what runs through its cursors and its `transaction` blocks.

    The session's own statements run on cursors of plain classes, of which the listener hears nothing.
    """

    _listener: StatementListener | None = None

    def watch(self, listener: StatementListener) -> None:
        """Call the listener before each statement from now on."""
        self._listener = listener
        self.cursor_factory = _WatchedCursor
        self.server_cursor_factory = _WatchedServerCursor

    def heed(self, query: object) -> None:
        """Tell the listener of a statement that is about to run."""
        if self._listener is not None:
            text = self._text(query)
            unknown = SavepointStep(SavepointCommand.ROLLBACK, None)
            self._listener(unknown if text is None else read_savepoint_step(text))

    def _text(self, query: object) -> str | None:
        if isinstance(query, str):
            return query
        if isinstance(query, bytes):
            return query.decode(errors="replace")
        return query.as_string(self) if isinstance(query, sql.Composable) else None

    @contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,
        force_rollback: bool = False,
    ) -> Iterator[psycopg.Transaction]:
        tell = self._listener or (lambda _: None)
        name = f"block {uuid.uuid4()}"
        tell(SavepointStep(SavepointCommand.SET, name))
        with super().transaction(savepoint_name, force_rollback) as transaction:
            try:
                yield transaction
            except BaseException:
                tell(SavepointStep(SavepointCommand.ROLLBACK, name))
                raise
            tell(SavepointStep(SavepointCommand.ROLLBACK if force_rollback else SavepointCommand.RELEASE, name))


class _WatchedCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
        _connection(self).heed(query)
        return super().execute(query, *arguments, **options)

    def executemany(self, query: Any, *arguments: Any, **options: Any) -> None:
        _connection(self).heed(query)
        super().executemany(query, *arguments, **options)

    def stream(self, query: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        _connection(self).heed(query)
        return super().stream(query, *arguments, **options)

    @contextmanager
    def copy(self, statement: Any, *arguments: Any, **options: Any) -> Iterator[psycopg.Copy]:
        _connection(self).heed(statement)
        with super().copy(statement, *arguments, **options) as copy:
            yield copy


class _WatchedServerCursor(psycopg.ServerCursor[Any]):
    def execute(self, query: Any, *arguments: Any, **options: Any) -> Self:
        _connection(self).heed(query)
        return super().execute(query, *arguments, **options)


def _connection(cursor: psycopg.Cursor[Any]) -> WatchedConnection:
    connection = cursor.connection
    assert isinstance(connection, WatchedConnection)
    return connection
