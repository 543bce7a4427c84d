"""Transactions without BEGIN and COMMIT: what comes back is here before the commit is asked for, in two round trips."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import psycopg
from psycopg import generators
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus
from psycopg.pq.abc import PGresult

from jmsql.store.runners._async.prepared_runner import OUTDATED, WaitingRunner, bound
from jmsql.store.statement import Result

__all__ = ["ImplicitTransaction"]


class ImplicitTransaction(WaitingRunner):
    """Runs statements in one transaction, which PostgreSQL begins with the first of them.

    It lasts until the client's message Sync: `commit` sends it. It is spoken in libpq's terms: psycopg's pipeline
    waits four times where two are enough, and takes longer for that than the server does for the statement.

    Args:
        connection: The connection, in autocommit mode, with no transaction open.
        schema: The plain name of the schema.
        prepared: What the connection has prepared; None: it leads through a pooler that loses prepared statements.
    """

    __slots__ = ()

    @property
    def is_idle(self) -> bool:
        return self._pgconn.pipeline_status == PipelineStatus.OFF

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            try:
                return await self._connection.wait(self._execute(statement, parameters))
            except OUTDATED:
                if self._prepared is None:
                    raise
                # Nothing has come of it, nor of those before it: a transaction is over once it has received something.
                await self.roll_back()
                self._prepared.forget()
                return await self._connection.wait(self._execute(statement, parameters))
        except BaseException:
            await self.roll_back()
            raise

    async def commit(self) -> None:
        """Commit.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        try:
            await self._connection.wait(self._sync())
        except BaseException:
            self._give_up()
            raise

    async def roll_back(self) -> None:
        """Undo what the statements have done, unless that has happened; a lost connection has done so already."""
        if not self.is_idle:
            with contextlib.suppress(psycopg.Error):
                await self._connection.wait(self._undo())
            self._give_up()

    def _give_up(self) -> None:
        """End a connection of which nobody knows where it is."""
        if not self.is_idle:
            self._pgconn.finish()

    # The messages to the server and back

    def _execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Generator[Any, Any, Result]:
        if self._pgconn.pipeline_status == PipelineStatus.OFF:
            self._pgconn.enter_pipeline_mode()
        call = bound(self._connection, statement, parameters)
        yield from self._send(call)
        return call.read((yield from self._result()))

    def _result(self) -> Generator[Any, Any, PGresult]:
        """Fetch the result of one message, and raise the error that it may be."""
        pgconn = self._pgconn
        pgconn.send_flush_request()
        yield from generators.send(pgconn)
        result: PGresult | None = yield from generators.fetch(pgconn)
        if result is None:
            raise psycopg.OperationalError("the server has sent no result")
        if result.status == ExecStatus.FATAL_ERROR:
            raise self._error(result)
        yield from generators.fetch(pgconn)  # the end of what comes back
        return result

    def _error(self, result: PGresult) -> psycopg.Error:
        return psycopg.errors.error_from_result(result, encoding=self._connection.info.encoding)

    def _sync(self) -> Generator[Any, Any, None]:
        pgconn = self._pgconn
        pgconn.pipeline_sync()
        yield from generators.send(pgconn)
        error: psycopg.Error | None = None
        while True:
            result = yield from generators.fetch(pgconn)
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    raise error or psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                break
            elif result.status == ExecStatus.FATAL_ERROR:
                error = error or self._error(result)
        pgconn.exit_pipeline_mode()
        if error is not None:
            raise error

    def _undo(self) -> Generator[Any, Any, None]:
        # A transaction that began by itself cannot be rolled back before it is made one that can be ended.
        self._pgconn.send_query_params(b"begin", None)
        self._pgconn.send_query_params(b"rollback", None)
        yield from self._sync()
