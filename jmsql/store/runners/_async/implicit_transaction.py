"""Transactions without BEGIN and COMMIT: what comes back is here before the commit is asked for, in two round trips."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping
from typing import Any

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus, Format, PipelineStatus
from psycopg.pq.abc import PGresult

from jmsql.store.runners._async.committing_connection import CommittingConnection
from jmsql.store.runners._async.prepared_runner import OUTDATED, PreparingRunner, bound
from jmsql.store.wire.prepared_statements import PreparedStatements
from jmsql.store.statement import Result


class ImplicitTransaction(PreparingRunner):
    """Runs statements in one transaction, which PostgreSQL begins with the first of them.

    It lasts until the client's message Sync, which `commit` sends. It is spoken in libpq's terms: psycopg's pipeline
    waits four times where once is enough, and takes longer for that than the server does for the statement.

    Args:
        connection: The connection, in autocommit mode, with no transaction open but one that is being committed.
        schema: The plain name of the schema.
        prepared: What the connection has prepared; None: it leads through a pooler that loses prepared statements.
    """

    __slots__ = ("_committing", "_is_idle")

    def __init__(self, connection: CommittingConnection, schema: str, prepared: PreparedStatements | None) -> None:
        super().__init__(connection, schema, prepared)
        self._committing = connection
        self._is_idle = True

    @property
    def is_idle(self) -> bool:
        return self._is_idle

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            try:
                result: Result = await self._committing.converse(self._execute(statement, parameters))
            except OUTDATED:
                if self._prepared is None:
                    raise
                # Nothing has come of it, nor of those before it: a transaction is over once it has received something.
                await self.roll_back()
                self._prepared.forget()
                result = await self._committing.converse(self._execute(statement, parameters))
        except BaseException:
            await self.roll_back()
            raise
        return result

    async def commit(self) -> None:
        """Commit, and wait for the answer.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        await self._end(self._sync())

    async def send_commit(self, failed: Callable[[psycopg.Error], object]) -> None:
        """Have the server commit, and leave its answer to the next use of the connection.

        Args:
            failed: Called if it has failed, or nobody knows.
        """
        try:
            await self._end(self._send_sync())
        except psycopg.Error as error:
            failed(error)
        else:
            self._committing.leave(failed)

    async def _end(self, messages: Generator[Any, Any, None]) -> None:
        try:
            await self._committing.converse(messages)
        except BaseException:
            self._give_up()
            raise
        self._is_idle = True

    async def roll_back(self) -> None:
        """Undo what the statements have done, unless that has happened; a lost connection has done so already."""
        if not self.is_idle:
            with contextlib.suppress(psycopg.Error):
                await self._committing.converse(self._undo())
            self._give_up()

    def _give_up(self) -> None:
        """End a connection of which nobody knows where it is."""
        self._is_idle = True
        if self._pgconn.pipeline_status != PipelineStatus.OFF:
            self._pgconn.finish()

    # The messages to the server and back

    def _execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Generator[Any, Any, Result]:
        pgconn, prepared = self._pgconn, self._prepared
        call = bound(self._connection, statement, parameters)
        self._is_idle = False
        if pgconn.pipeline_status == PipelineStatus.OFF:
            pgconn.enter_pipeline_mode()
        name = None if prepared is None else prepared.name(call.text, call.types)
        preparations = 0
        if prepared is None:
            pgconn.send_query_params(call.text, call.values, call.types, call.formats, Format.BINARY)
        else:
            if name is None:
                # The statement itself follows at once: PgBouncer answers for what it has prepared on the server before,
                # but not until the server sends something.
                name, preparations = self._send_preparation(prepared, call)
            pgconn.send_query_prepared(name, call.values, call.formats, Format.BINARY)
        pgconn.send_flush_request()
        try:
            yield from generators.send(pgconn)
            yield from self._committing.answer()
            for _ in range(preparations):
                yield from self._result()
        except BaseException:
            if prepared is not None and preparations:
                prepared.discard(call.text, call.types)
            raise
        return call.read((yield from self._result()))

    def _result(self) -> Generator[Any, Any, PGresult]:
        """Fetch the result of one message, and raise the error that it may be."""
        result: PGresult | None = yield from generators.fetch(self._pgconn)
        if result is None:
            raise psycopg.OperationalError("the server has sent no result")
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding=self._connection.info.encoding)
        yield from generators.fetch(self._pgconn)  # the end of what comes back
        return result

    def _send_sync(self) -> Generator[Any, Any, None]:
        self._pgconn.pipeline_sync()
        yield from generators.send(self._pgconn)

    def _sync(self) -> Generator[Any, Any, None]:
        yield from self._send_sync()
        yield from self._committing.answer()
        error = yield from self._committing.synchronized()
        self._pgconn.exit_pipeline_mode()
        if error is not None:
            raise error

    def _undo(self) -> Generator[Any, Any, None]:
        # A transaction that began by itself cannot be rolled back before it is made one that can be ended.
        self._pgconn.send_query_params(b"begin", None)
        self._pgconn.send_query_params(b"rollback", None)
        yield from self._sync()
