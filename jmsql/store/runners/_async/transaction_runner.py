"""Running statements in transactions, in libpq's terms: what begins and ends them travels with a statement."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import generators
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from jmsql.store.runners._async.prepared_runner import OUTDATED, Bound, PreparingRunner, bound
from jmsql.store.runners._async.runner import Runner, copy
from jmsql.store.runners.prepared_statements import PreparedStatements
from jmsql.store.statement import Query, Result

__all__ = ["LookingRunner", "TransactionRunner"]

_BEGIN = b"begin isolation level read committed"


class TransactionRunner(PreparingRunner):
    """Runs statements in one transaction after another, for somebody who has the connection alone.

    BEGIN goes with the first statement of a transaction, and the last ones go with COMMIT: one exchange with the server
    each, where statements one by one take four.

    Args:
        connection: The connection, with no transaction open.
        schema: The plain name of the schema.
        prepared: What the connection has prepared; None: it leads through a pooler that loses prepared statements.
    """

    __slots__ = ("_is_certain",)

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], schema: str, prepared: PreparedStatements | None
    ) -> None:
        super().__init__(connection, schema, prepared)
        # A former user of the connection may have ended all that was prepared. A transaction whose first statement
        # is missing is begun again; later ones must not fail.
        self._is_certain = not prepared

    @property
    def is_idle(self) -> bool:
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    def notice_loss(self) -> None:
        """Have the connection count as closed if the server has ended it, before anything is sent."""
        with contextlib.suppress(psycopg.OperationalError):
            self._pgconn.consume_input()  # the server's last words
            self._pgconn.consume_input()

    async def execute(self, statement: bytes, parameters: Mapping[str, Any], end: bytes | None = None) -> Result:
        begins = self.is_idle
        call = bound(self._connection, statement, parameters)
        try:
            try:
                [result] = await self._connection.wait(self._communicate([call], end))
            except OUTDATED:
                if not await self._can_begin_again(begins=begins):
                    raise
                [result] = await self._connection.wait(self._communicate([call], end))
        except BaseException:
            self._give_up()
            raise
        return result

    async def look(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        """Run SQL that changes nothing in a transaction of its own, while none is open."""
        try:
            return await self.execute(statement, parameters, b"commit")
        except psycopg.Error:
            with contextlib.suppress(psycopg.Error):
                await self.rollback()
            raise

    async def copy(self, statement: bytes, data: bytes) -> Result:
        return await copy(self._connection, statement, data)

    async def commit(self, last: Sequence[Query[Any]] = ()) -> None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange. If one fails, the transaction stays open as failed.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        if last or not self.is_idle:
            calls = [bound(self._connection, query.statement.encoded(self.schema), query.parameters) for query in last]
            begins = self.is_idle
            try:
                try:
                    await self._connection.wait(self._communicate(calls, b"commit"))
                except OUTDATED:
                    if not await self._can_begin_again(begins=begins):
                        raise
                    await self._connection.wait(self._communicate(calls, b"commit"))
            except BaseException:
                self._give_up()
                raise

    async def rollback(self) -> None:
        """Roll the transaction back, if one is open.

        Raises:
            psycopg.Error: The connection is lost.
        """
        if not self.is_idle:
            try:
                await self._connection.wait(self._communicate([], b"rollback"))
            except BaseException:
                self._give_up()
                raise

    async def _can_begin_again(self, *, begins: bool) -> bool:
        """Rely no more on what was prepared, and roll back a transaction that nothing came of; tell whether it was one.

        Args:
            begins: Whether what has failed was to begin the transaction.
        """
        if self._prepared is None:
            return False
        self._prepared.forget()
        self._is_certain = True
        if begins:
            await self.rollback()
        return begins

    def _give_up(self) -> None:
        """End a connection of which nobody knows where it is."""
        if self._pgconn.pipeline_status != PipelineStatus.OFF:
            self._pgconn.finish()

    # The messages to the server and back

    def _communicate(self, calls: Sequence[Bound], end: bytes | None = None) -> Generator[Any, Any, list[Result]]:
        pgconn, prepared = self._pgconn, self._prepared
        places, preparations, uses_listed = self._send(calls, end)
        results: list[PGresult] = []
        error: psycopg.Error | None = None
        yield from generators.send(pgconn)
        while True:
            result: PGresult | None = yield from generators.fetch(pgconn)
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    error = error or psycopg.OperationalError("the connection is lost")
                    break
            elif result.status == ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                break
            else:
                results.append(result)
                if result.status == ExecStatus.FATAL_ERROR:
                    error = error or psycopg.errors.error_from_result(result, encoding=self._connection.info.encoding)
        if prepared is not None:
            for place, call in preparations:
                if len(results) <= place or results[place].status != ExecStatus.COMMAND_OK:
                    prepared.discard(call.text, call.types)
        if error is not None:
            raise error
        self._is_certain |= uses_listed
        return [call.read(results[place]) for call, place in zip(calls, places, strict=True)]

    def _send(self, calls: Sequence[Bound], end: bytes | None) -> tuple[list[int], list[tuple[int, Bound]], bool]:
        """Send statements, with what begins and what ends their transaction.

        Returns:
            The places of their results among all those that come, the places of those of what was prepared for them,
            and whether one of them was prepared before.
        """
        pgconn, prepared = self._pgconn, self._prepared
        begins = bool(calls) and self.is_idle
        places: list[int] = []
        preparations: list[tuple[int, Bound]] = []
        uses_listed = False
        count = 0
        pgconn.enter_pipeline_mode()
        if begins:
            pgconn.send_query_params(_BEGIN, None)
            count += 1
        for call in calls:
            name = None if prepared is None else prepared.name(call.text, call.types)
            if prepared is None or (name is not None and not (begins or self._is_certain)):
                pgconn.send_query_params(call.text, call.values, call.types, call.formats, Format.BINARY)
            else:
                if name is None:
                    preparations.append((count, call))
                    name, sent = self._send_preparation(prepared, call)
                    count += sent
                else:
                    uses_listed = True
                pgconn.send_query_prepared(name, call.values, call.formats, Format.BINARY)
            places.append(count)
            count += 1
        if end is not None:
            pgconn.send_query_params(end, None)
        pgconn.pipeline_sync()
        return places, preparations, uses_listed

    def _send_preparation(self, prepared: PreparedStatements, call: Bound) -> tuple[bytes, int]:
        """Prepare a statement, and close another if there are too many; return its name, and how many results come."""
        name = prepared.new_name()
        self._pgconn.send_prepare(name, call.text, call.types)
        outdated = prepared.add(call.text, call.types, name)
        if outdated is None:
            return name, 1
        self._send_close(outdated)
        return name, 2


class LookingRunner(Runner):
    """Runs statements that change nothing, each in a transaction of its own, which takes one exchange with the server.

    Args:
        transactions: Runs other statements on the same connection; no transaction is open.
    """

    __slots__ = ("_transactions",)

    def __init__(self, transactions: TransactionRunner) -> None:
        super().__init__(transactions.schema)
        self._transactions = transactions

    @property
    def is_idle(self) -> bool:
        return self._transactions.is_idle

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        return await self._transactions.look(statement, parameters)

    async def sleep(self, seconds: float) -> None:
        await self._transactions.sleep(seconds)
