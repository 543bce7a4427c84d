"""Running statements in libpq's terms: psycopg's cursors take twice as long for each."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from jmsql.concurrency.tasks import sleep
from jmsql.store.runners._async.runner import Runner
from jmsql.store.wire.prepared_statements import PreparedStatements, numbered
from jmsql.store.statement import Query, Result

if TYPE_CHECKING:
    from psycopg import abc


T = TypeVar("T")

OUTDATED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported)
"""What PostgreSQL says of a prepared statement that was deallocated, or whose result has other columns by now."""


class Bound(NamedTuple):
    """A statement with its parameters, as libpq takes them.

    Args:
        transformer: Reads the result.
        text: The SQL, with numbered parameters.
        values: The values of the parameters.
        types: Their types.
        formats: How they are written.
    """

    transformer: abc.Transformer
    text: bytes
    values: Sequence[Any]
    types: tuple[int, ...]
    formats: Sequence[Format] | None

    def read(self, result: PGresult) -> Result:
        """Return what the statement has brought."""
        if not result.nfields:
            return Result([], result.command_tuples or 0)
        self.transformer.set_pgresult(result)
        return Result(self.transformer.load_rows(0, result.ntuples, tuple), result.command_tuples or 0)


def bound(connection: psycopg.AsyncConnection[Any], statement: bytes, parameters: Mapping[str, Any]) -> Bound:
    """Write the parameters of a statement."""
    text, names = numbered(statement)
    transformer = Transformer(connection)
    values = transformer.dump_sequence([parameters[name] for name in names], [PyFormat.AUTO] * len(names))
    return Bound(transformer, text, values, transformer.types or (), transformer.formats)


class PreparingRunner(Runner):
    """Prepares statements under names of its own, and runs them.

    Args:
        connection: The connection.
        schema: The plain name of the schema.
        prepared: What the connection has prepared; None: it leads through a pooler that loses prepared statements.
    """

    __slots__ = ("_connection", "_pgconn", "_prepared")

    def __init__(
        self, connection: psycopg.AsyncConnection[Any], schema: str, prepared: PreparedStatements | None
    ) -> None:
        super().__init__(schema)
        self._connection = connection
        self._pgconn = connection.pgconn
        self._prepared = prepared

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)

    def _send_preparation(self, prepared: PreparedStatements, call: Bound) -> tuple[bytes, int]:
        """Prepare a statement, and close another if there are too many; return its name, and how many results come."""
        name = prepared.new_name()
        self._pgconn.send_prepare(name, call.text, call.types)
        outdated = prepared.add(call.text, call.types, name)
        if outdated is None:
            return name, 1
        self._send_close(outdated)
        return name, 2

    def _send_close(self, name: bytes) -> None:
        if psycopg.capabilities.has_send_close_prepared():  # which a pooler understands, too
            self._pgconn.send_close_prepared(name)
        else:
            self._pgconn.send_query_params(b"deallocate " + name, None)


class PreparedRunner(PreparingRunner):
    """Runs statements each of which commits by itself."""

    __slots__ = ()

    @property
    def is_idle(self) -> bool:
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            return await self._connection.wait(self._execute(statement, parameters))
        except OUTDATED:
            if self._prepared is None or not self.is_idle:
                raise
            self._prepared.forget()
            return await self._connection.wait(self._execute(statement, parameters))

    def _execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Generator[Any, Any, Result]:
        call = bound(self._connection, statement, parameters)
        if self._prepared is None:
            self._pgconn.send_query_params(call.text, call.values, call.types, call.formats, Format.BINARY)
        else:
            name = self._prepared.name(call.text, call.types)
            if name is None:
                name = yield from self._prepare(self._prepared, call)
            self._pgconn.send_query_prepared(name, call.values, call.formats, Format.BINARY)
        return call.read(self._last((yield from generators.execute(self._pgconn))))

    def _prepare(self, prepared: PreparedStatements, call: Bound) -> Generator[Any, Any, bytes]:
        name = prepared.new_name()
        self._pgconn.send_prepare(name, call.text, call.types)
        yield from self._result()
        outdated = prepared.add(call.text, call.types, name)
        if outdated is not None:
            self._send_close(outdated)
            yield from self._result()
        return name

    def _result(self) -> Generator[Any, Any, PGresult]:
        """Send what waits to be sent, and return its result, or raise the error that it is."""
        return self._last((yield from generators.execute(self._pgconn)))

    async def execute_and_ask(
        self, statement: bytes, parameters: Mapping[str, Any], question: Query[T]
    ) -> tuple[Result, T | None]:
        """Run SQL that commits by itself, and ask something after that, in the same exchange with the server.

        Returns:
            The result of the SQL, and the answer, or None if nothing was asked, as through a pooler.
        """
        prepared = self._prepared
        if prepared is None or not self.is_idle:
            return await self.execute(statement, parameters), None
        try:
            try:
                return await self._connection.wait(self._execute_and_ask(prepared, statement, parameters, question))
            except OUTDATED:
                prepared.forget()
                return await self._connection.wait(self._execute_and_ask(prepared, statement, parameters, question))
        except BaseException:
            if self._pgconn.pipeline_status != PipelineStatus.OFF:
                self._pgconn.finish()  # nobody knows where it is
            raise

    def _execute_and_ask(
        self, prepared: PreparedStatements, statement: bytes, parameters: Mapping[str, Any], question: Query[T]
    ) -> Generator[Any, Any, tuple[Result, T | None]]:
        pgconn = self._pgconn
        first = bound(self._connection, statement, parameters)
        second = bound(self._connection, question.statement.encoded(self.schema), question.parameters)
        for call in (first, second):
            if prepared.name(call.text, call.types) is None:
                yield from self._prepare(prepared, call)
        pgconn.enter_pipeline_mode()
        for call in (first, second):
            name = prepared.name(call.text, call.types)
            assert name is not None
            pgconn.send_query_prepared(name, call.values, call.formats, Format.BINARY)
            pgconn.pipeline_sync()  # each commits
        yield from generators.send(pgconn)
        results: list[PGresult] = []
        syncs = 0
        while syncs < 2:
            try:
                result: PGresult | None = yield from generators.fetch(pgconn)
            except psycopg.OperationalError:
                if not syncs:
                    raise
                break  # it is lost, after the commit
            if result is None:
                if pgconn.status == ConnStatus.BAD:
                    break
            elif result.status == ExecStatus.PIPELINE_SYNC:
                syncs += 1
            else:
                results.append(result)
        else:
            pgconn.exit_pipeline_mode()
        sent = first.read(self._last(results[:1]))
        if syncs < 2:
            pgconn.finish()
            if not syncs:
                raise psycopg.OperationalError("the connection is lost")
        elif results[1].status == ExecStatus.TUPLES_OK:
            return sent, question.statement.decode(second.read(results[1]))
        else:
            prepared.forget()  # perhaps it was that
        return sent, None

    def _last(self, results: Sequence[PGresult]) -> PGresult:
        if not results:
            raise psycopg.OperationalError("the server has sent no result")
        result = results[-1]
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding=self._connection.info.encoding)
        return result


class AskingRunner(Runner):
    """Runs statements each of which commits by itself, and asks the same after each of them, in its exchange.

    Args:
        runner: Runs them.
        question: What is asked; it changes nothing.
    """

    __slots__ = ("_question", "_runner", "answer")

    def __init__(self, runner: PreparedRunner, question: Query[list[int]]) -> None:
        super().__init__(runner.schema)
        self._runner = runner
        self._question = question
        self.answer: list[int] | None = None
        """The answer after the last statement; None: there is none."""

    @property
    def is_idle(self) -> bool:
        return self._runner.is_idle

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        result, self.answer = await self._runner.execute_and_ask(statement, parameters, self._question)
        return result

    async def sleep(self, seconds: float) -> None:
        await self._runner.sleep(seconds)
