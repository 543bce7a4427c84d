"""Running statements in exchanges, on a connection that nobody else uses meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import psycopg

from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import interruptible, sleep
from jmsql.store.statement import CannotCopyError, Query, Result, Steps
from jmsql.store.wire._async.runner import Runner, copy
from jmsql.store.wire._async.wire_connection import WireConnection
from jmsql.store.wire.exchange import BEGIN_READ_COMMITTED, Bound, End, Exchange, bind
from jmsql.store.wire.interruption import Interruption

T = TypeVar("T")

# A decision asks for one statement after the other, since the next one depends on the last answer. So each statement is
# an exchange of its own here, and what belongs to its transaction travels with it: BEGIN with the first one, COMMIT or
# the question with the last. Only `commit` knows which statements are the last.
#
# What was prepared on the connection before is trusted where a failure can be repeated: in an exchange that begins its
# transaction. Some user of the connection before this one may have run DISCARD ALL or DEALLOCATE. A later statement of
# a transaction is therefore sent with its text until one that was prepared has run, which shows that they are still
# there.


class WireRunner(Runner):
    """Runs each statement in an exchange of its own, which may begin its transaction, end it, or both.

    | what statements do | `begin` | `end` |
    | --- | --- | --- |
    | each commits by itself | no | `SYNC` |
    | they take effect with `commit`, which BEGIN and COMMIT enclose | yes | `SYNC` |
    | they take effect with `commit` or `leave_commit`, in a transaction that needs no BEGIN | no | `FLUSH` |
    | each changes nothing, and leaves no transaction open | yes | `COMMIT` |

    Args:
        connection: The connection, with no transaction open but one that is being committed.
        schema: The plain name of the schema.
        begin: Whether a statement begins a transaction where none is open.
        end: What ends the exchange of a statement.
    """

    __slots__ = ("_begin", "_connection", "_end", "answer", "is_certain", "question")

    def __init__(self, connection: WireConnection, schema: str, *, begin: bool = False, end: End = End.SYNC) -> None:
        super().__init__(schema)
        self._connection = connection
        self._begin = begin
        self._end = end
        # A former user of the connection may have ended all that was prepared. A transaction whose first statement
        # is missing is begun again; later ones must not fail.
        self.is_certain = not connection.prepared_statements
        """Whether all that counts as prepared on the connection is."""
        self.question: Query[Any] | None = None
        """What is asked after each statement that commits by itself, in its exchange; it changes nothing."""
        self.answer: Any = None
        """The answer after the last statement; None: nothing was asked or answered, as through a pooler."""

    @property
    def is_idle(self) -> bool:
        return self._connection.is_idle

    if ASYNC:

        async def run(self, work: Query[T] | Steps[T]) -> T:
            """Run statements; of those that end with FLUSH nothing comes if the server is asked to interrupt one."""
            if self._end is not End.FLUSH:
                return await super().run(work)
            return await interruptible(super().run(work), Interruption(self._connection))

    async def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        try:
            call = bind(self._connection, statement, parameters)
            [result] = await self._exchange([call], self._end, self.question if self._connection.is_idle else None)
        except BaseException:
            # With FLUSH nobody else knows of the transaction, and with COMMIT nobody expects one to be open. One that
            # ends with SYNC is the session's, which hears of the failure and rolls back.
            if self._end is not End.SYNC:
                await self._connection.undo()
            raise
        return result

    async def copy(self, statement: bytes, data: bytes) -> Result:
        # COPY does not go through a pipeline, so psycopg does it. Only a transaction with BEGIN can be open then: one
        # that PostgreSQL begins by itself would end with the COPY.
        if not self._begin:
            raise CannotCopyError
        return await copy(self._connection, statement, data)

    async def sleep(self, seconds: float) -> None:
        await sleep(seconds)

    async def commit(self, last: Sequence[Query[Any]] = (), question: Query[T] | None = None) -> T | None:
        """Commit the transaction, if one is open.

        Args:
            last: Statements that run before, in the same exchange. If one fails, the transaction stays open as failed.
            question: What is asked after that, in the same exchange; it changes nothing.

        Returns:
            The answer, or None if nothing was asked or answered, as through a pooler.

        Raises:
            psycopg.Error: PostgreSQL refused, or the connection is lost.
        """
        if not last and self._connection.is_idle:
            return None
        calls = [self._bound(query) for query in last]
        await self._exchange(calls, End.COMMIT if self._begin else End.SYNC, question)
        answer: T | None = self.answer
        return answer

    async def leave_commit(self, failed: Callable[[psycopg.Error], object]) -> None:
        """Have the server commit, and leave its answer to the next use of the connection.

        Args:
            failed: Called if it has failed, or nobody knows.
        """
        await self._connection.leave_commit(failed)

    async def rollback(self) -> None:
        """Roll the transaction back, if one is open; a lost connection has done so already."""
        await self._connection.undo()

    async def _exchange(self, calls: list[Bound], end: End, question: Query[Any] | None) -> list[Result]:
        begins = self._begin and self._connection.is_idle
        exchange = Exchange(
            calls,
            BEGIN_READ_COMMITTED if begins else None,
            end,
            None if question is None else self._bound(question),
            trusts_prepared=begins or not self._begin or self.is_certain,
        )
        outcome = await self._connection.exchange(exchange)
        self.is_certain |= outcome.used_prepared
        self.answer = None
        if question is not None and outcome.answer is not None:
            self.answer = question.statement.decode(outcome.answer)
        return outcome.results

    def _bound(self, query: Query[Any]) -> Bound:
        return bind(self._connection, query.statement.encoded(self.schema), query.parameters)
