"""Running statements in transactions, in libpq's terms: what begins and ends them travels with a statement."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from jmsql.store.runners._async.prepared_runner import OUTDATED, Bound, PreparingRunner, bound
from jmsql.store.runners._async.runner import Runner, copy
from jmsql.store.wire.prepared_statements import PreparedStatements
from jmsql.store.statement import Query, Result

T = TypeVar("T")

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

    async def commit(self, last: Sequence[Query[Any]] = (), question: Query[T] | None = None) -> T | None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange. If one fails, the transaction stays open as failed.
            question: What is asked after that, in the same exchange; it changes nothing.

        Returns:
            The answer, or None if nothing was asked, as through a pooler.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        if not last and self.is_idle:
            return None
        calls = [self._bound(query) for query in last]
        asked = None if question is None or self._prepared is None else self._bound(question)
        begins = self.is_idle
        try:
            try:
                results = await self._connection.wait(self._communicate(calls, b"commit", asked))
            except OUTDATED:
                if not await self._can_begin_again(begins=begins):
                    raise
                results = await self._connection.wait(self._communicate(calls, b"commit", asked))
        except BaseException:
            self._give_up()
            raise
        self._give_up()  # it was lost after the commit
        answered = question is not None and len(results) > len(calls)
        return question.statement.decode(results[-1]) if question is not None and answered else None

    def _bound(self, query: Query[Any]) -> Bound:
        return bound(self._connection, query.statement.encoded(self.schema), query.parameters)

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

    def _communicate(
        self, calls: Sequence[Bound], end: bytes | None = None, asked: Bound | None = None
    ) -> Generator[Any, Any, list[Result]]:
        """Send statements, what ends their transaction, and a question; return the results of those that have some.

        Once the transaction has ended nothing is an error.
        """
        pgconn, prepared = self._pgconn, self._prepared
        places, preparations, uses_listed, end_place = self._send(calls, end, asked)
        results: list[PGresult] = []
        error: psycopg.Error | None = None
        yield from generators.send(pgconn)
        while True:
            try:
                result: PGresult | None = yield from generators.fetch(pgconn)
            except psycopg.OperationalError:
                if asked is None or len(results) <= end_place:
                    raise
                break  # it is lost, after the end
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    if asked is None or len(results) <= end_place:
                        error = error or psycopg.OperationalError("the connection is lost")
                    break
            elif result.status == ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                break
            else:
                results.append(result)
                if result.status == ExecStatus.FATAL_ERROR and len(results) <= end_place + 1:
                    error = error or psycopg.errors.error_from_result(result, encoding=self._connection.info.encoding)
        if prepared is not None:
            for place, call in preparations:
                if len(results) <= place or results[place].status != ExecStatus.COMMAND_OK:
                    prepared.discard(call.text, call.types)
        if error is not None:
            raise error
        self._is_certain |= uses_listed
        read = [call.read(results[place]) for call, place in zip(calls, places, strict=False)]
        if asked is not None:
            if len(results) > places[-1] and results[places[-1]].status == ExecStatus.TUPLES_OK:
                read.append(asked.read(results[places[-1]]))
            elif prepared is not None:
                prepared.forget()  # perhaps it was that
        return read

    def _send(
        self, calls: Sequence[Bound], end: bytes | None, asked: Bound | None
    ) -> tuple[list[int], list[tuple[int, Bound]], bool, int]:
        """Send statements, with what begins and what ends their transaction, and a question after that.

        Returns:
            The places of their results among all those that come, the places of those of what was prepared for them,
            whether one of them was prepared before, and the place of the end.
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
        end_place = 0
        for call in [*calls, *([] if asked is None else [asked])]:
            if call is asked:
                assert end is not None
                pgconn.send_query_params(end, None)
                end_place, count = count, count + 1
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
        if asked is None:
            end_place = count
            if end is not None:
                pgconn.send_query_params(end, None)
        pgconn.pipeline_sync()
        return places, preparations, uses_listed, end_place


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
