"""Handling a transaction's messages inside of that transaction, for tests: blocking, and awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
import sqlalchemy

from jmsql.client import enlistment
from jmsql.client.sending.targets import is_awaited
from jmsql.exceptions import IllegalStateException
from jmsql.selectors import Selector
from jmsql.store.destinations.subscriptions import SubscriptionDefinition, create_durable
from jmsql.store.receiving import own_messages
from jmsql.store.statement import Steps
from jmsql.values.destinations import Queue, Topic, require_destination
from jmsql.worker.handlers._sync.draining import HandlerRuns, SavepointSession
from jmsql.worker.handlers.drained import DrainedMessage
from jmsql.worker.handlers.function import ListenerFunction
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.router import Router

if TYPE_CHECKING:
    from jmsql.messages import Message
    from jmsql.worker.handlers._async import draining as asynchronous


# `drain` handles the messages that a transaction has sent itself, in that transaction, until none is left. Two worlds
# meet here: the transaction may be awaited or not, and so may the handler. A plain function in an awaited transaction
# runs in a greenlet, by SQLAlchemy's `run_sync`; a coroutine function in a plain transaction cannot be called.
#
# Messages are handled in a worker's order, as far as a single thread can have it: ready messages by turns of the
# listeners, then delayed ones by their times. A limit ends handlers that send to themselves for ever.
#
# A handler may ask for SQLAlchemy's connection where the test has a bare one of psycopg. `_over` makes one above it,
# which sends no statement of its own: SQLAlchemy's first queries are switched off, and its commit and rollback do
# nothing, since the transaction is the test's.


Begin: TypeAlias = Callable[[], AbstractContextManager[object]]


class _Round:
    """The order of the messages: ready ones, by turns of the listeners, then delayed ones by their times.

    Args:
        listeners: The listeners.
        with_delayed: Whether messages with a delay are handled, after all others.
        limit: Maximum number of messages to handle.
        raise_failures: Whether a handler that fails ends it.
    """

    def __init__(self, listeners: Sequence[Listener], *, with_delayed: bool, limit: int, raise_failures: bool) -> None:
        self.listeners = listeners
        self.with_delayed = with_delayed
        self._limit = limit
        self._raise_failures = raise_failures
        self.handled: list[DrainedMessage] = []
        self.excluded: list[int] = []

    def add(self, handled: DrainedMessage) -> None:
        """Take note of a message that was handled.

        Raises:
            BaseException: The handler has failed, and that is to be raised.
        """
        self.handled.append(handled)
        if handled.error is not None:
            if self._raise_failures:
                raise handled.error
            self.excluded.append(handled.sequence)

    def refusal(self, listener: Listener, transaction: object) -> Exception | None:
        """Return the error of one more message for a listener; None: it may be handled."""
        if (reason := _refusal(listener, transaction)) is not None:
            return TypeError(reason)
        if len(self.handled) < self._limit:
            return None
        return IllegalStateException(
            f"drain() has handled {len(self.handled)} messages, and does not go on with the next one, of {listener}: a "
            "handler may send messages to itself without end. If there are so many, give a higher `limit`."
        )

    @staticmethod
    def first_due(times: Sequence[tuple[int | None, Listener]]) -> Listener | None:
        """Return the listener whose delayed message is due first; None: there is none."""
        due = [(time, number) for number, (time, _) in enumerate(times) if time is not None]
        return times[min(due)[1]][1] if due else None


def drain(
    transaction: object, schema: str, listeners: Sequence[Listener], begin: Begin | None = None, **options: Any
) -> list[DrainedMessage] | Coroutine[Any, Any, list[DrainedMessage]]:
    """Handle a transaction's messages, as `Application.drain` says; awaited where the transaction is.

    Args:
        transaction: The transaction.
        schema: The schema of jmsql's tables.
        listeners: The listeners.
        begin: Makes the block of a transaction where the connection has none; None: psycopg's own.
        options: The options of `_Round`.
    """
    state = _Round(listeners, **options)
    if is_awaited(transaction):
        return _drain_awaited(transaction, schema, state)
    return _drain(transaction, schema, state, begin)


def _drain(transaction: Any, schema: str, state: _Round, begin: Begin | None) -> list[DrainedMessage]:
    runs = HandlerRuns(_session(transaction, schema, begin))
    _flush(transaction)

    def handle(listener: Listener, *, delayed: bool) -> bool:
        if (refusal := state.refusal(listener, transaction)) is not None:
            if runs.has_next(listener, state.excluded, delayed=delayed):
                raise refusal
            return False
        handled = runs.handle_next(listener, state.excluded, delayed=delayed)
        for each in handled:
            state.add(each)
        return bool(handled)

    try:
        while True:
            found = [handle(listener, delayed=False) for listener in state.listeners]
            if any(found):
                continue
            due = state.first_due([(runs.due(each, state.excluded), each) for each in state.listeners])
            if due is None or not state.with_delayed:
                return state.handled
            handle(due, delayed=True)
    finally:
        _expire(transaction)


async def _drain_awaited(transaction: Any, schema: str, state: _Round) -> list[DrainedMessage]:
    if hasattr(transaction, "flush"):
        await transaction.flush()
    try:
        async with _awaited_runs(transaction, schema) as runs:
            return await _drain_by(runs, transaction, schema, state)
    finally:
        _expire(getattr(transaction, "sync_session", transaction))


async def _drain_by(
    runs: asynchronous.HandlerRuns, transaction: Any, schema: str, state: _Round
) -> list[DrainedMessage]:
    async def handle(listener: Listener, *, delayed: bool) -> bool:
        if (refusal := state.refusal(listener, transaction)) is not None:
            if await runs.has_next(listener, state.excluded, delayed=delayed):
                raise refusal
            return False
        if listener.is_async:
            handled = await runs.handle_next(listener, state.excluded, delayed=delayed)
        else:

            def in_greenlet(synchronous: object) -> list[DrainedMessage]:
                blocking = HandlerRuns(_session(synchronous, schema))
                return blocking.handle_next(listener, state.excluded, delayed=delayed)

            handled = await transaction.run_sync(in_greenlet)
        for each in handled:
            state.add(each)
        return bool(handled)

    while True:
        found = [await handle(listener, delayed=False) for listener in state.listeners]
        if any(found):
            continue
        due = state.first_due([(await runs.due(each, state.excluded), each) for each in state.listeners])
        if due is None or not state.with_delayed:
            return state.handled
        await handle(due, delayed=True)


def sent(transaction: object, schema: str, queue: Queue) -> list[Message] | Coroutine[Any, Any, list[Message]]:
    """Return a transaction's messages in a queue that no handler has received; awaited where the transaction is."""
    if is_awaited(transaction):
        return _sent_awaited(transaction, schema, queue)
    _flush(transaction)
    return HandlerRuns(_session(transaction, schema)).sent(queue)


async def _sent_awaited(transaction: Any, schema: str, queue: Queue) -> list[Message]:
    async with _awaited_runs(transaction, schema) as runs:
        return await runs.sent(queue)


def empty(transaction: object, schema: str) -> Coroutine[Any, Any, None] | None:
    """Delete all messages in a transaction, or for good in autocommit mode; awaited where the transaction is."""
    if is_awaited(transaction):
        return _empty_awaited(transaction, schema)
    _session(transaction, schema).run_steps(own_messages.empty)
    return None


async def _empty_awaited(transaction: Any, schema: str) -> None:
    async with _awaited_runs(transaction, schema) as runs:
        await runs.session.run_steps(own_messages.empty)


def subscribe(transaction: object, schema: str, listeners: Sequence[Listener]) -> Coroutine[Any, Any, None] | None:
    """Make the subscriptions of listeners in a transaction; awaited where the transaction is."""
    if is_awaited(transaction):
        return _subscribe_awaited(transaction, schema, listeners)
    _session(transaction, schema).run_steps(_subscriptions(listeners))
    return None


async def _subscribe_awaited(transaction: Any, schema: str, listeners: Sequence[Listener]) -> None:
    async with _awaited_runs(transaction, schema) as runs:
        await runs.session.run_steps(_subscriptions(listeners))


def _subscriptions(listeners: Sequence[Listener]) -> Steps[None]:
    for each in listeners:
        if isinstance(each.destination, Topic):
            yield from create_durable(
                SubscriptionDefinition(
                    each.destination.name,
                    Selector.parse(each.selector),
                    each.subscription,
                    durable=each.durable,
                    shared=True,
                )
            )


def call(
    transaction: object, schema: str, listener: Listener, messages: Sequence[Message], begin: Begin | None = None
) -> object:
    """Call a handler with a message, or a chunk, in a savepoint of a transaction; awaited where the transaction is."""
    if is_awaited(transaction):
        return _call_awaited(transaction, schema, listener, messages)
    if (refusal := _refusal(listener, transaction)) is not None:
        raise TypeError(refusal)
    _flush(transaction)
    try:
        return HandlerRuns(_session(transaction, schema, begin)).handle(listener, messages)
    finally:
        _expire(transaction)


async def _call_awaited(transaction: Any, schema: str, listener: Listener, messages: Sequence[Message]) -> object:
    if hasattr(transaction, "flush"):
        await transaction.flush()
    try:
        if listener.is_async:
            async with _awaited_runs(transaction, schema) as runs:
                return await runs.handle(listener, messages)
        if (refusal := _refusal(listener, transaction)) is not None:
            raise TypeError(refusal)
        return await transaction.run_sync(
            lambda synchronous: HandlerRuns(_session(synchronous, schema)).handle(listener, messages)
        )
    finally:
        _expire(getattr(transaction, "sync_session", transaction))


def _session(transaction: Any, schema: str, begin: Begin | None = None) -> SavepointSession:
    joined = enlistment.caller_transaction(transaction)
    is_of_framework = hasattr(transaction, "ensure_connection")  # Django's
    return SavepointSession(joined, schema, lambda: _database(transaction), begin if is_of_framework else None)


@asynccontextmanager
async def _awaited_runs(transaction: Any, schema: str) -> AsyncIterator[asynchronous.HandlerRuns]:
    from jmsql.client import asynchronous_enlistment
    from jmsql.worker.handlers._async import draining as asynchronous

    async with AsyncExitStack() as exits:
        over: list[object] = []

        async def database() -> object:
            from sqlalchemy.ext.asyncio import AsyncConnection

            if isinstance(transaction, AsyncConnection):
                return transaction
            if isinstance(transaction, psycopg.AsyncConnection):
                if not over:
                    over.append(await exits.enter_async_context(_over_awaited(transaction)))
                return over[0]
            if hasattr(transaction, "connection"):
                return await transaction.connection()
            raise TypeError(
                "A handler asks for SQLAlchemy's connection, which cannot be made over one of asyncpg's: drain the "
                "transaction of an AsyncSession or AsyncConnection of SQLAlchemy, or of psycopg's AsyncConnection."
            )

        joined = asynchronous_enlistment.caller_transaction(transaction)
        yield asynchronous.HandlerRuns(asynchronous.SavepointSession(joined, schema, database))


def _database(transaction: Any) -> sqlalchemy.Connection:
    """Return SQLAlchemy's connection of a transaction."""
    from sqlalchemy import orm

    if isinstance(transaction, orm.Session | orm.scoped_session):
        return transaction.connection()
    if isinstance(transaction, sqlalchemy.Connection):
        return transaction
    driver = transaction
    if not isinstance(transaction, psycopg.Connection):  # Django's
        transaction.ensure_connection()
        driver = transaction.connection
    return _over(driver)


class _Lent:
    """A driver's connection whose transaction is not SQLAlchemy's to end."""

    def __init__(self, connection: psycopg.BaseConnection[Any]) -> None:
        self.lent = connection

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the driver's connection, by which `enlist` knows it."""
        return type(self.lent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lent, name)


class _LentConnection(_Lent):
    """One for threads."""

    def commit(self) -> None:
        """Leave that to the owner."""

    rollback = close = commit


class _LentAwaitedConnection(_Lent):
    """One for asyncio."""

    async def commit(self) -> None:
        """Leave that to the owner."""

    rollback = close = commit


@asynccontextmanager
async def _over_awaited(driver: psycopg.AsyncConnection[Any]) -> AsyncIterator[object]:
    """Return an SQLAlchemy connection over an asyncio connection of psycopg, while a block lasts."""
    from sqlalchemy.ext.asyncio import create_async_engine

    async def lend(*_: object, **__: object) -> _LentAwaitedConnection:
        return _LentAwaitedConnection(driver)

    engine = create_async_engine(  # it opens nothing
        "postgresql+psycopg://",
        async_creator=lend,
        poolclass=sqlalchemy.StaticPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
        _initialize=False,
    )
    async with engine.connect() as connection:
        await connection.begin()  # so that a session of the ORM sets savepoints in it
        yield connection
    await engine.dispose()


def _over(driver: psycopg.Connection[Any]) -> sqlalchemy.Connection:
    """Return an SQLAlchemy connection over a psycopg connection, with constant answers to its first queries."""
    engine = sqlalchemy.create_engine(  # noqa: TID251 - it opens nothing
        "postgresql+psycopg://",
        creator=lambda: _LentConnection(driver),
        poolclass=sqlalchemy.StaticPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
        _initialize=False,
    )
    connection = engine.connect()
    connection.begin()  # so that a session of the ORM sets savepoints in it
    return connection


def _refusal(listener: Listener, transaction: object) -> str | None:
    """Return why a handler cannot be called in a transaction; None: it can."""
    kind = type(transaction).__qualname__
    if listener.is_async:
        if is_awaited(transaction):
            return None
        return (
            f"{listener} is a coroutine function, which has to be awaited: drain a transaction of asyncio's, such as "
            f"an AsyncSession, not of {kind}; or leave its messages, without=…"
        )
    if not is_awaited(transaction) or hasattr(transaction, "run_sync"):
        return None
    return (
        f"{listener} is a plain function, and is called in the transaction of an AsyncSession or AsyncConnection of "
        f"SQLAlchemy, not of {kind}; or leave its messages, without=…"
    )


def chosen(listeners: Sequence[Listener], only: object = None, without: object = ()) -> list[Listener]:
    """Return the listeners of some handlers and destinations; arguments as for `Application.drain`.

    Raises:
        ValueError: There is none of that handler or destination.
    """
    left_out = _named(listeners, without)
    wanted = listeners if only is None else _named(listeners, only)
    return [each for each in listeners if each in wanted and each not in left_out]


def is_named(listener: Listener, given: object) -> bool:
    """Return True if a listener is named: by its function, registered or as written, its router or destination."""
    if isinstance(given, ListenerFunction | Router):
        return given.has(listener)
    return given in (listener.handler, listener.destination)


def _named(listeners: Sequence[Listener], given: Any) -> list[Listener]:
    named: list[Listener] = []
    for each in (given,) if callable(given) or isinstance(given, str | Queue | Topic | Router) else given:
        destination = require_destination(each) if isinstance(each, str) else each
        found = [listener for listener in listeners if is_named(listener, destination)]
        if not found:
            raise ValueError(f"The application has no listener with {each!r}; it has {', '.join(map(str, listeners))}.")
        named += found
    return named


def _flush(transaction: object) -> None:
    """Write the pending changes of an SQLAlchemy session to the transaction."""
    for session in _sessions(transaction):
        session.flush()


def _expire(transaction: object) -> None:
    """Expire an SQLAlchemy session's objects, which handlers may have changed, as after its own commit."""
    for session in _sessions(transaction):
        if session.expire_on_commit:
            session.expire_all()


def _sessions(transaction: object) -> Iterator[Any]:
    from sqlalchemy import orm

    if isinstance(transaction, orm.scoped_session):
        yield transaction()
    elif isinstance(transaction, orm.Session):
        yield transaction
