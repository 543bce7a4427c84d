"""Runners: they run queries and steps on any connection of psycopg, and translate the errors of the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import psycopg
from psycopg.pq import ExecStatus, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from jmsql.concurrency.tasks import interruptible, sleep, unlocked
from jmsql.store.errors import is_driver_error, jms_errors, translate
from jmsql.store.statement import CannotCopyError, Item, Items, Query, Result, Steps
from jmsql.store.wire.interruption import Interruption

T = TypeVar("T")

# A decision of the store is a generator: it yields statements, and is sent their results. So it can be read and tested
# without a database, and is the same for threads and asyncio, and for every driver. `run` below is where the two meet.
#
# - What goes wrong is raised in the decision, at the statement, as a JMS exception: it may know what to do, and yields
#   other statements then. What it does not catch is raised to the caller of `run`.
# - Not everything that is raised is an error of the database's: a cancellation and Ctrl-C pass through the decision,
#   too, so that its `finally` blocks run, but are not translated.


class Runner(ABC):
    """Runs statements, and decisions that take several, in whatever transaction its connection is in.

    Args:
        schema: The plain name of the schema.
    """

    __slots__ = ("before", "failed", "schema")

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.before: Callable[[], Awaitable[None]] | None = None
        """Called before each statement; what it raises is raised in place of the statement."""
        self.failed: Callable[[Exception], Awaitable[None]] | None = None
        """Called with each error of a statement, before that is raised."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether no transaction is open."""

    @abstractmethod
    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        """Run SQL. What goes wrong is the driver's own error."""

    async def copy(self, statement: bytes, data: bytes) -> Result:  # noqa: ARG002 - refused, whatever it is
        """Run a COPY from the client. What goes wrong is the driver's own error.

        Raises:
            CannotCopyError: The connection cannot do that now.
        """
        raise CannotCopyError

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Let time pass, without holding up others."""

    async def wait_for_others(self) -> None:  # noqa: B027 - most connections have one user
        """Wait until no other task runs a statement on the connection, or a COPY: neither is to be interrupted."""

    async def run(self, work: Query[T] | Steps[T]) -> T:
        """Run a statement, or all those of a decision, and return what comes out.

        Raises:
            JMSException: PostgreSQL refused, or the connection is lost. The cause is the driver's own error.
        """
        steps: Steps[T] = iter(work)
        try:
            query: Query[Any] = next(steps)
            while True:
                try:
                    try:
                        if self.before is not None:
                            await self.before()
                        statement = query.statement.encoded(self.schema)
                        if query.data is None:
                            result = await self.execute(statement, query.parameters)
                        else:
                            result = await self.copy(statement, query.data)
                    except Exception as error:
                        if self.failed is not None:
                            await self.failed(error)
                        if is_driver_error(error) or isinstance(error, OSError):
                            raise translate(error, query.doing) from error
                        raise
                    outcome = query.statement.decode(result)
                except BaseException as error:  # noqa: BLE001 - for the decision to handle, or to pass on
                    query = steps.throw(error)
                else:
                    query = steps.send(outcome)
        except StopIteration as end:
            returned: T = end.value
            return returned

    async def iterate(self, work: Items[T]) -> AsyncIterator[T]:
        """Run the statements of a decision, and return its results one by one, each when it is asked for.

        Raises:
            JMSException: As `run`.
        """
        try:
            step = next(work)
            while True:
                if isinstance(step, Item):
                    yield step.value
                    step = next(work)
                    continue
                try:
                    outcome = await self.run(step)
                except BaseException as error:  # noqa: BLE001 - for the decision to handle, or to pass on
                    step = work.throw(error)
                else:
                    step = work.send(outcome)
        except StopIteration:
            pass


class Origin(NamedTuple):
    """Where a connection comes from, of a runner whose user ends it.

    Args:
        close: Ends the connection, or gives it back.
        another: Connects once more to the same place.
        is_pooled: Whether it leads through a pooler.
    """

    close: Callable[[], Awaitable[None]]
    another: Callable[[], Awaitable[PsycopgRunner]]
    is_pooled: bool


class PsycopgRunner(Runner):
    """Runs statements on a psycopg connection. A context manager, if the connection is its user's to end.

    Args:
        connection: The connection; its row factory, cursor factory and adapters are left alone.
        schema: The plain name of the schema.
        prepares: Whether statements are prepared, which takes a round trip more the first time.
        origin: Where the connection comes from; None: somebody else ends it.
    """

    __slots__ = ("_origin", "_prepares", "connection")

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        schema: str,
        *,
        prepares: bool = True,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(schema)
        self.connection = connection
        """The connection, for what is no statement."""
        self._prepares = prepares
        self._origin = origin

    @property
    def is_idle(self) -> bool:
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        # Only what has the connection to itself is known to be interrupted alone. psycopg takes its lock without a wait
        # where it is free, so nobody comes in between.
        await unlocked(self.connection.lock)
        work = self._execute(statement, parameters)
        return await interruptible(work, Interruption(self.connection), is_apart=True)

    async def wait_for_others(self) -> None:
        """Wait until no other task runs a statement on the connection; threads do when they run theirs."""
        await unlocked(self.connection.lock)

    async def _execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        cursor = psycopg.AsyncCursor(self.connection, row_factory=tuple_row)
        await cursor.execute(statement, parameters, prepare=self._prepares, binary=True)
        # Not `cursor.description`, which is made again each time, at more cost than many a statement.
        result = cursor.pgresult
        if result is not None:
            return Result(await cursor.fetchall() if result.nfields else [], cursor.rowcount)
        try:  # in a pipeline there is no result before it is fetched
            return Result(await cursor.fetchall(), cursor.rowcount)
        except psycopg.ProgrammingError:
            _require_no_rows(cursor)
            return Result([], cursor.rowcount)

    async def copy(self, statement: bytes, data: bytes) -> Result:
        if self.connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise CannotCopyError
        await unlocked(self.connection.lock)
        work = copy(self.connection, statement, data)
        return await interruptible(work, Interruption(self.connection), is_apart=True)

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)

    @property
    def is_pooled(self) -> bool:
        """Whether the connection leads through a pooler, as far as is known."""
        return self._origin is not None and self._origin.is_pooled

    async def open_another(self) -> PsycopgRunner:
        """Connect once more to the same place.

        Raises:
            JMSException: The database cannot be reached.
        """
        assert self._origin is not None
        return await self._origin.another()

    async def wait_for_notification(self, timeout: float) -> bool:
        """Tell whether a notification comes within so many seconds."""
        with jms_errors("listening for a notification"):
            async for _ in self.connection.notifies(timeout=timeout, stop_after=1):
                return True
        return False

    async def close(self) -> None:
        """End the connection, also if the server has ended it, unless somebody else does."""
        if self._origin is not None:
            await self._origin.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


async def copy(connection: psycopg.AsyncConnection[Any], statement: bytes, data: bytes) -> Result:
    """Run a COPY from the client on a connection that is in no pipeline."""
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    # Without parameters psycopg reads no placeholders, for which the name of the schema is written otherwise.
    try:
        async with cursor.copy(statement.replace(b"%%", b"%")) as copying:
            await copying.write(data)
    except ValueError as error:  # psycopg expects one answer: after an error, the server has said why it leaves
        connection.pgconn.finish()
        raise psycopg.OperationalError("the server has ended the connection after an error") from error
    return Result([], cursor.rowcount)


def _require_no_rows(cursor: psycopg.AsyncCursor[Any]) -> None:
    """Raise the error that is being handled again, unless it says that the statement returns no rows."""
    if cursor.pgresult is None or cursor.pgresult.status != ExecStatus.COMMAND_OK:
        raise  # noqa: PLE0704 - called while it is handled
