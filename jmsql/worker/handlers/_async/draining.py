"""Handlers in the caller's transaction, with a savepoint for each message: for tests that roll back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from jmsql.client._async.session.enlisted_session import EnlistedSession
from jmsql.client._async.session.transactions.caller import CallerTransaction
from jmsql.client._async.shared.redelivery import Failure, failure_of
from jmsql.concurrency.tasks import entered, obtain
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.errors import jms_errors
from jmsql.store.receiving import own_messages
from jmsql.store.receiving.progress import Progress
from jmsql.store.receiving.redelivery import policy as queue_policy
from jmsql.store.receiving.results import Handled, Keeping, keep
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Query, Steps
from jmsql.store.wire._async.runner import PsycopgRunner
from jmsql.store.wire.roles import Role, read_role
from jmsql.timings import Timings, complete
from jmsql.values.destinations import Destination, Queue
from jmsql.values.outcomes import Reject, RetryAfter
from jmsql.values.policies import DEFAULT_DEAD_LETTER_QUEUE, RedeliveryPolicy
from jmsql.worker.handlers._async.call import HandlerCall
from jmsql.worker.handlers._async.chunks import ChunkCall
from jmsql.worker.handlers.drained import DrainedMessage
from jmsql.worker.handlers.listener import DEFAULT_REDELIVERY, Listener

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection as DatabaseConnection


# A test calls handlers in its own transaction, which it rolls back at the end. So a savepoint stands for each message's
# transaction, and messages are taken by a statement that sees the transaction's own sends, which no session of a worker
# could.
#
# The session has the methods that `HandlerCall` uses of a worker's session, and nothing else of it: nothing is claimed,
# extended, cancelled or instrumented. `HandlerRuns._run` passes it where a `HandlerSession` is expected, so a method
# that `HandlerCall` begins to use has to come here as well; the tests of `drain` notice.
#
# In autocommit mode, where the test has no transaction, each message has one of its own.


class SavepointSession(EnlistedSession):
    """A session in the caller's transaction, with a savepoint in place of each message's transaction.

    Where the caller has none, on a connection in autocommit mode, each message has a transaction.

    Args:
        transaction: The caller's transaction.
        schema: The name of the schema.
        database: Returns the handler's `database`, or under asyncio an awaitable of it.
        begin: Makes the block of a transaction in autocommit mode; None: psycopg's own.
    """

    def __init__(
        self, transaction: CallerTransaction, schema: str, database: Any, begin: Callable[[], Any] | None = None
    ) -> None:
        super().__init__(transaction, schema, complete(Timings()))
        self._caller = transaction
        self._name = schema
        self._get_database = database
        self._make_block = begin
        self._block: AsyncExitStack | None = None
        """The open transaction of a message in autocommit mode."""
        self._role: Role | None = None
        self._result: Steps[None] | None = None
        """The statements that store the result of the message; None: no result is kept."""

    async def autocommit_connection(self) -> psycopg.AsyncConnection[Any] | None:
        """Return the connection if each of its statements commits by itself now, as without a transaction."""
        runner = await self._caller.runner(self._name)
        if isinstance(runner, PsycopgRunner) and runner.connection.autocommit and runner.is_idle:
            return runner.connection
        return None

    @property
    def takes_committed(self) -> bool:
        """True if the message is taken in a transaction of its own, which has sent none."""
        return self._block is not None

    async def run_steps(self, work: Query[Any] | Steps[Any]) -> Any:
        """Run statements in the transaction."""
        runner = await self._caller.runner(self._name)
        return await runner.run(work)

    async def begin(self) -> None:
        """Set the savepoint, or begin the transaction of the message."""
        connection = await self.autocommit_connection()
        if connection is None:
            self._block = None
            await self.run_steps(own_messages.end_batches())
            await self.run_steps(own_messages.set_savepoint)
        else:
            self._block = AsyncExitStack()
            await entered(self._block, (self._make_block or connection.transaction)())

    async def note_role(self) -> None:
        """Note the role, which `commit` sets again: in a worker the handler's own ends with the message."""
        self._role = await self.run_steps(read_role) if self._block is None else None

    async def commit(self) -> None:
        """Release the savepoint, or commit the message's transaction."""
        role, self._role = self._role, None
        result, self._result = self._result, None
        if role is not None:
            await self.run_steps(role.set())
        if result is not None:
            await self.run_steps(result)
        if self._block is None:
            await self.run_steps(own_messages.release_savepoint)
        else:
            await self._end_block(None)

    async def rollback(self, error: BaseException | str | None = None) -> None:  # noqa: ARG002
        """Go back to the savepoint, or roll the transaction of the message back."""
        self._result = None
        if self._block is None:
            await self.run_steps(own_messages.undo_savepoint)
            await self.run_steps(own_messages.release_savepoint)
        else:
            await self._end_block(psycopg.Rollback())

    async def _end_block(self, error: Exception | None) -> None:
        assert self._block is not None
        block, self._block = self._block, AsyncExitStack()  # which has nothing to end, if the commit fails
        with jms_errors("ending the transaction of a message"), suppress(psycopg.Rollback):
            await block.__aexit__(None if error is None else type(error), error, None)

    async def acknowledge(self) -> None:
        await self.commit()

    async def recover(self, error: BaseException | str | None = None) -> None:
        await self.rollback(error)

    async def keep_results(self, keeping: Keeping) -> None:
        """Do nothing: nothing here dies, nor expires."""

    async def keep_result(self, message: Message, handled: Handled, keeping: Keeping) -> None:
        """Have the result of a message stored with `commit`."""
        self._result = _keeping(message, handled, keeping)

    async def keep_failure(self, message: Message, failure: Failure, keeping: Keeping, seconds: float) -> None:
        """Store that a message has failed, which is rolled back."""
        await self.run_steps(_keeping(message, Handled("failed", None, failure.text, seconds), keeping))

    def processing(self, *messages: Message) -> AbstractContextManager[object]:  # noqa: ARG002 - not instrumented
        """Do nothing: tests are not instrumented."""
        return nullcontext()

    def extend_claims(self) -> AbstractContextManager[None]:
        """Do nothing: nothing is claimed."""
        return nullcontext()

    @property
    def claim(self) -> None:
        """None: no claim holds the message."""
        return None

    def progress_reporter(self) -> Callable[[Progress | None], object]:
        """Return a function that does nothing: uncommitted progress is not visible."""
        return lambda _: None

    def call_in(self, handler: object) -> None:
        """Note nothing: a handler may close it."""

    def check_calls(self, guard: object) -> None:
        """Do nothing: no other thread watches it."""

    async def interrupt(self, timeout: float) -> bool:  # noqa: ARG002
        """Return False: no other thread watches it."""
        return False

    async def get_database(self) -> DatabaseConnection:
        """Return SQLAlchemy's connection of the transaction."""
        database: DatabaseConnection = await obtain(self._get_database)
        return database

    async def get_driver_connection(self) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection of the transaction, which the caller alone may end.

        Raises:
            TypeError: It is another driver's, or of the other world.
        """
        runner = await self._caller.runner(self._name)
        if not isinstance(runner, PsycopgRunner):
            raise TypeError(
                "A handler asks for psycopg's connection, and the transaction has none that it could use: drain a "
                "transaction of psycopg's, or of SQLAlchemy with psycopg, of asyncio for coroutine functions alone."
            )
        return runner.connection


class _DrainedCall(HandlerCall):
    """A call whose failure is raised, and so not logged."""

    def _tell_failure(self, error: BaseException) -> None:
        """Do nothing: the caller of `drain` gets the error."""

    async def _is_dead_letter(self, verdict: BaseException) -> bool:
        """Return whether a worker would have moved the message to a dead-letter queue, where it stays here."""
        listener = self.listener
        if listener.destination == Queue(DEFAULT_DEAD_LETTER_QUEUE):
            return False
        if isinstance(verdict, Reject | RetryAfter):
            return isinstance(verdict, Reject)
        session: Any = self.session  # one with a savepoint
        policy: RedeliveryPolicy | None = listener.redelivery or await session.run_steps(_policy(listener))
        return (policy or DEFAULT_REDELIVERY).is_exhausted(self.delivery_count or 1)


class _DrainedChunkCall(_DrainedCall, ChunkCall):
    """The same with a chunk."""

    async def _pop_dead_letters(self, verdict: BaseException) -> Sequence[Message]:
        named = self.rejected(verdict)
        if named is not None:
            return [named]
        return [] if self.is_divided(verdict) or not await self._is_dead_letter(verdict) else self.messages


class _Run(NamedTuple):
    """A call that has ended, with its error."""

    error: BaseException | None
    call: HandlerCall


class HandlerRuns:
    """Calls handlers with messages that the transaction has sent.

    Args:
        session: The session.
    """

    def __init__(self, session: SavepointSession) -> None:
        self.session = self._session = session

    async def handle_next(
        self, listener: Listener, excluded: Collection[int], *, delayed: bool
    ) -> list[DrainedMessage]:
        """Handle the next message for a listener, or the next chunk, and return the handled messages.

        Args:
            listener: The listener.
            excluded: The sequences of messages that are left alone.
            delayed: True to handle a delayed message, before it is due.
        """
        return await self._handle_up_to(1 if delayed else listener.chunk or 1, listener, excluded, delayed=delayed)

    async def _handle_up_to(
        self, most: int, listener: Listener, excluded: Collection[int], *, delayed: bool
    ) -> list[DrainedMessage]:
        """Handle up to so many messages together, and those that fail together in parts, as a worker does."""
        await self._session.begin()
        rows: list[MessageRow] = []
        while len(rows) < most:
            taking = _taking(listener, excluded, delayed=delayed, committed=self._session.takes_committed)
            row: MessageRow | None = await self._session.run_steps(taking)
            if row is None:
                break
            rows.append(row)
        if not rows:
            await self._session.commit()
            return []
        handling = await self._run(listener, [row.message(listener.destination) for row in rows])
        error, verdict = handling.error, handling.call.verdict
        drained = [
            DrainedMessage(listener.name, row.message(listener.destination), error, row.sequence) for row in rows
        ]
        if verdict is None or not isinstance(handling.call, ChunkCall) or not handling.call.is_divided(verdict):
            return drained
        named = handling.call.rejected(verdict)
        if named is not None:
            rejected = drained[handling.call.messages.index(named)]
            left = {*excluded, rejected.sequence}
            return [rejected, *await self._handle_up_to(len(rows) - 1, listener, left, delayed=delayed)]
        first = await self._handle_up_to(len(rows) // 2, listener, excluded, delayed=delayed)
        left = {*excluded, *(each.sequence for each in first if each.error is not None)}
        return first + await self._handle_up_to(len(rows) - len(rows) // 2, listener, left, delayed=delayed)

    async def has_next(self, listener: Listener, excluded: Collection[int], *, delayed: bool) -> bool:
        """Return True if there is a message for a listener, which stays; arguments as for `handle_next`."""
        await self._session.begin()
        taking = _taking(listener, excluded, delayed=delayed, committed=self._session.takes_committed)
        row: MessageRow | None = await self._session.run_steps(taking)
        await self._session.rollback()
        return row is not None

    async def due(self, listener: Listener, excluded: Collection[int]) -> int | None:
        """Return when the first delayed message for a listener is due; None: there is none."""
        committed = await self._session.autocommit_connection() is not None
        due: int | None = await self._session.run_steps(_due(listener, excluded, committed=committed))
        return due

    async def handle(self, listener: Listener, messages: Sequence[Message]) -> object:
        """Call a handler with a message, or with a chunk, and return its value.

        Raises:
            BaseException: The handler's error; its work is rolled back.
        """
        await self._session.begin()
        handling = await self._run(listener, messages)
        if handling.error is not None:
            raise handling.error
        return handling.call.result

    async def _run(self, listener: Listener, messages: Sequence[Message]) -> _Run:
        await self._session.note_role()
        session: Any = self._session  # which does the same as a handler's
        call = (
            _DrainedCall(listener, messages[0], session)
            if listener.chunk is None
            else _DrainedChunkCall(listener, messages, session)
        )
        error = await call.run()
        keeping, failure = listener.keep_result, failure_of(call.verdict)
        if keeping is not None and failure is not None and failure.retry is None:
            # It is not tried again here, and so has failed for good.
            await self._session.keep_failure(messages[0], failure, keeping, call.seconds)
        return _Run(error, call)

    async def sent(self, queue: Queue) -> list[Message]:
        """Return the transaction's unreceived messages in a queue; in autocommit mode all of the queue's."""
        committed = await self._session.autocommit_connection() is not None
        rows: list[MessageRow] = await self._session.run_steps(_reading(queue, committed=committed))
        return [row.message(queue) for row in rows]


def _keeping(message: Message, handled: Handled, keeping: Keeping) -> Steps[None]:
    destination = message.jms_destination
    if message.jms_message_id is None or not isinstance(destination, Queue):
        return  # a test has made the message
    queue_id = yield from own_messages.queue_of(destination.name)
    if queue_id is not None:
        yield from keep(queue_id, message, handled, keeping)


def _queue(listener: Listener) -> Steps[int | None]:
    destination: Destination = listener.destination
    if isinstance(destination, Queue):
        return (yield from own_messages.queue_of(destination.name))
    assert listener.subscription is not None
    return (yield from own_messages.queue_of_subscription(listener.subscription, durable=listener.durable))


def _policy(listener: Listener) -> Steps[RedeliveryPolicy | None]:
    queue_id = yield from _queue(listener)
    if queue_id is None:
        return None
    rules = (yield from queue_policy(queue_id)).rules
    return None if rules is None else rules.policy


def _taking(
    listener: Listener, excluded: Collection[int], *, delayed: bool, committed: bool
) -> Steps[MessageRow | None]:
    queue_id = yield from _queue(listener)
    if queue_id is None:
        return None
    take = own_messages.take_delayed if delayed else own_messages.take
    return (yield from take(queue_id, _selector(listener), excluded, committed=committed))


def _due(listener: Listener, excluded: Collection[int], *, committed: bool) -> Steps[int | None]:
    queue_id = yield from _queue(listener)
    if queue_id is None:
        return None
    return (yield from own_messages.due(queue_id, _selector(listener), excluded, committed=committed))


def _selector(listener: Listener) -> Selector | None:
    # The selector of a subscription chose when the message was published.
    return Selector.parse(listener.selector) if isinstance(listener.destination, Queue) else None


def _reading(queue: Queue, *, committed: bool) -> Steps[list[MessageRow]]:
    queue_id = yield from own_messages.queue_of(queue.name)
    return [] if queue_id is None else (yield from own_messages.read(queue_id, committed=committed))
