"""Handlers in a transaction of the caller's, a savepoint for each message: for tests in a transaction of their own."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from jmsql.client._async.session.enlisted_session import EnlistedSession
from jmsql.client._async.session.transactions.caller import CallerTransaction
from jmsql.concurrency.tasks import obtain
from jmsql.messages import Message
from jmsql.selectors import Selector
from jmsql.store.receiving import own_messages
from jmsql.store.rows.message_rows import MessageRow
from jmsql.store.statement import Query, Steps
from jmsql.store.wire._async.runner import PsycopgRunner
from jmsql.timings import Timings, complete
from jmsql.values.destinations import Destination, Queue
from jmsql.worker.handlers._async.call import HandlerCall
from jmsql.worker.handlers.drained import DrainedMessage
from jmsql.worker.handlers.listener import Listener

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection as DatabaseConnection


class SavepointSession(EnlistedSession):
    """A session in a transaction of the caller's, in which a savepoint stands for the transaction of each message.

    Args:
        transaction: The caller's.
        schema: The name of the schema.
        database: What a handler is given as its `database`; a function returns it, or under asyncio what is awaited.
    """

    def __init__(self, transaction: CallerTransaction, schema: str, database: Any) -> None:
        super().__init__(transaction, schema, complete(Timings()))
        self._caller = transaction
        self._name = schema
        self._get_database = database

    async def run_steps(self, work: Query[Any] | Steps[Any]) -> Any:
        """Run statements in the transaction."""
        runner = await self._caller.runner(self._name)
        return await runner.run(work)

    async def begin(self) -> None:
        """Set the savepoint."""
        await self.run_steps(own_messages.set_savepoint)

    async def commit(self) -> None:
        """Release the savepoint, with what was done since."""
        await self.run_steps(own_messages.release_savepoint)

    async def rollback(self, error: BaseException | str | None = None) -> None:  # noqa: ARG002
        """Go back to the savepoint."""
        await self.run_steps(own_messages.undo_savepoint)
        await self.run_steps(own_messages.release_savepoint)

    async def acknowledge(self) -> None:
        await self.commit()

    async def recover(self, error: BaseException | str | None = None) -> None:
        await self.rollback(error)

    def processing(self, message: Message) -> AbstractContextManager[object]:  # noqa: ARG002 - nobody follows it
        """Do nothing: no instrumentation follows what is tested."""
        return nullcontext()

    def extend_claims(self) -> AbstractContextManager[None]:
        """Do nothing: nothing is claimed."""
        return nullcontext()

    async def interrupt(self, timeout: float) -> None:
        """Do nothing: nobody waits for it."""

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
        """Do nothing: who calls `drain` is told."""


class HandlerRuns:
    """Calls handlers with messages that the transaction has sent.

    Args:
        session: The session.
    """

    def __init__(self, session: SavepointSession) -> None:
        self.session = self._session = session

    async def handle_next(
        self, listener: Listener, excluded: Collection[int], *, delayed: bool
    ) -> DrainedMessage | None:
        """Handle the next message for a listener; None: there is none.

        Args:
            listener: The listener.
            excluded: The sequences of messages that are left alone.
            delayed: Whether it is one of those with a delay, whenever it is due.
        """
        await self._session.begin()
        row: MessageRow | None = await self._session.run_steps(_taking(listener, excluded, delayed=delayed))
        if row is None:
            await self._session.commit()
            return None
        error, _ = await self._run(listener, row.message(listener.destination))
        return DrainedMessage(listener.name, row.message(listener.destination), error, row.sequence)

    async def due(self, listener: Listener, excluded: Collection[int]) -> int | None:
        """Return when the first delayed message for a listener is due; None: there is none."""
        due: int | None = await self._session.run_steps(_due(listener, excluded))
        return due

    async def handle(self, listener: Listener, message: Message) -> object:
        """Call a handler with a message, and return what it returns.

        Raises:
            BaseException: What the handler raises; nothing of what it did is left then.
        """
        await self._session.begin()
        error, result = await self._run(listener, message)
        if error is not None:
            raise error
        return result

    async def _run(self, listener: Listener, message: Message) -> tuple[BaseException | None, object]:
        handling: Any = _DrainedCall(listener, message, self._session)  # type: ignore[arg-type]  # which does the same
        return await handling.run(), handling.result

    async def sent(self, queue: Queue) -> list[Message]:
        """Return what the transaction has sent to a queue and no handler has received."""
        rows: list[MessageRow] = await self._session.run_steps(_reading(queue))
        return [row.message(queue) for row in rows]


def _queue(listener: Listener) -> Steps[int | None]:
    destination: Destination = listener.destination
    if isinstance(destination, Queue):
        return (yield from own_messages.queue_of(destination.name))
    assert listener.subscription is not None
    return (yield from own_messages.queue_of_subscription(listener.subscription, durable=listener.durable))


def _taking(listener: Listener, excluded: Collection[int], *, delayed: bool) -> Steps[MessageRow | None]:
    queue_id = yield from _queue(listener)
    if queue_id is None:
        return None
    take = own_messages.take_delayed if delayed else own_messages.take
    return (yield from take(queue_id, _selector(listener), excluded))


def _due(listener: Listener, excluded: Collection[int]) -> Steps[int | None]:
    queue_id = yield from _queue(listener)
    return None if queue_id is None else (yield from own_messages.due(queue_id, _selector(listener), excluded))


def _selector(listener: Listener) -> Selector | None:
    # The selector of a subscription chose when the message was published.
    return Selector.parse(listener.selector) if isinstance(listener.destination, Queue) else None


def _reading(queue: Queue) -> Steps[list[MessageRow]]:
    queue_id = yield from own_messages.queue_of(queue.name)
    return [] if queue_id is None else (yield from own_messages.read(queue_id))
