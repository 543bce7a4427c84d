"""The application of a worker: listeners, registered with their destinations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.concurrency.functions import is_coroutine_function
from jmsql.public_names import set_module
from jmsql.store.destinations.subscriptions import SubscriptionChange
from jmsql.store.schema.version import DEFAULT_SCHEMA
from jmsql.values.destinations import Destination
from jmsql.values.duration import seconds
from jmsql.worker.handlers.body_checks import check_bodies
from jmsql.worker.handlers.dead_letters import DeadLetterHook, dead_letter_hooks
from jmsql.worker.handlers.drained import DrainedMessage
from jmsql.worker.handlers.function import ListenerFunction, name_of
from jmsql.worker.handlers.listener import Around, Listener, is_asynchronous
from jmsql.worker.handlers.parameters import read_parameters
from jmsql.worker.router import Router
from jmsql.worker.schedules import DeclaredSchedules
from jmsql.worker.settings import HandlerSettings
from jmsql.worker.timings import WorkerTimings

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from prometheus_client import CollectorRegistry
    from sqlalchemy import orm
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

    from jmsql import asyncio as jmsql_asyncio
    from jmsql.client.enlistment import DjangoConnection

    BlockingTransaction = (
        orm.Session | orm.scoped_session[Any] | sqlalchemy.Connection | psycopg.Connection[Any] | DjangoConnection
    )
    Chosen = Callable[..., object] | Router | Destination | str
    AwaitedTransaction = AsyncSession | async_scoped_session[Any] | AsyncConnection | psycopg.AsyncConnection[Any]


# An application is a description: it has listeners, schedules and settings, and no connection. The worker's processes,
# `running` and `drain` each run it in their own way, by the same `HandlerCall`, so that a handler behaves the same in
# all three.
#
# `Router._register` is the one way in. It makes the listeners first and adds them then, so that a refused function
# leaves nothing registered here.


@set_module("jmsql.worker")
class Application(Router):
    """The listeners that a worker runs: ``jmsql worker package.module:name``.

    An asyncio application can run them itself: see `running` and `run_async`.

    Args:
        factory: Where the messages are: a factory of `jmsql` or of `jmsql.asyncio`. None: the worker's database, from
            the environment variable ``JMSQL_URL``, else the embedded server.
        on_dead_letter: Called with each message that a handler has failed with for good, and the error, once it has
            moved to the dead-letter queue; a function, or if all handlers are coroutine functions perhaps one, too. See
            [dead letters](/handlers.md#when-a-message-becomes-a-dead-letter).
        around: Surrounds each call of a handler: a function that takes the [call][jmsql.worker.HandlerCall], and
            returns a context manager, for coroutine functions perhaps an asynchronous one; see
            [around each call](/handlers.md#around-each-call).
        provides: The classes of which it provides values. Parameters of any other class are refused when the handler
            is registered; None: when it is called first.

    Raises:
        TypeError: `around` returns no context manager, or `on_dead_letter` cannot be called.
        ValueError: There is `provides`, and no `around`.
    """

    def __init__(
        self,
        factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None = None,
        *,
        on_dead_letter: DeadLetterHook | None = None,
        around: Around | None = None,
        provides: Iterable[type] | None = None,
    ) -> None:
        super().__init__()
        self._factory = factory
        self._around = around
        self._on_dead_letter = on_dead_letter
        if around is not None:
            is_asynchronous(around)  # which refuses anything but a context manager
        elif provides is not None:
            raise ValueError("provides=… names the classes that around=… provides, and there is none.")
        self._provides = None if provides is None else frozenset(provides)
        self.listeners: list[Listener] = []

    @property
    def factory(self) -> ConnectionFactory | jmsql_asyncio.ConnectionFactory | None:
        """Where the messages are; None: the database that the worker is given."""
        return self._factory

    @factory.setter
    def factory(self, factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None) -> None:
        self._factory = factory

    reaches_transaction = False
    """True if handlers reach their message's transaction by other means than their parameters, as by Django's ORM."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages in which a framework finds listeners."""
        return ()

    @property
    def around(self) -> Around | None:
        """The context manager around each call of a handler, if there is one."""
        return self._around

    @property
    def on_dead_letter(self) -> DeadLetterHook | None:
        """The function that is called with the dead letters of all handlers, if there is one."""
        return self._on_dead_letter

    def dead_letter_hooks(
        self, handler: Callable[..., object], name: str, own: DeadLetterHook | None
    ) -> tuple[DeadLetterHook, ...]:
        """Return the functions to call with a handler's dead letters.

        Args:
            handler: The handler.
            name: Its name, for errors.
            own: The function of its listener, which is called first.

        Raises:
            TypeError: One of them cannot be called there.
        """
        return dead_letter_hooks(handler, name, own, self.on_dead_letter)

    @property
    def arounds(self) -> tuple[Around, ...]:
        """The context managers around each call, the outermost first; the integration of a framework adds its own."""
        return () if self.around is None else (self.around,)

    is_application = True

    def _register(self, functions: Sequence[tuple[ListenerFunction[..., object], str]]) -> None:
        listeners = [self._listener(function, prefix) for function, prefix in functions]
        super()._register(functions)
        for (function, _), listener in zip(functions, listeners, strict=True):
            self.listeners.append(listener)
            function.place(self, listener)

    def _listener(self, function: ListenerFunction[..., object], prefix: str) -> Listener:
        """Return the listener that a function is in this application."""
        handler, options, around = function.function, function.options, self.around
        name = name_of(handler)
        _check_around(handler, name, around)
        provides = self._provides if around is not None else frozenset[type]()
        declared = function.declared_destination
        return Listener(
            **vars(options),
            name=name,
            handler=handler,
            parameters=read_parameters(
                handler,
                name,
                transacted=options.transacted,
                provides=provides,
                in_chunks=options.chunk is not None,
            ),
            destination=type(declared)(prefix + declared.name) if prefix else declared,
            dead_letter_hooks=self.dead_letter_hooks(handler, name, options.on_dead_letter),
            arounds=self.arounds,
            provides=provides,
            application_listeners=self.listeners,
            reaches_transaction=options.transacted and (self.reaches_transaction or around is not None),
        )

    @asynccontextmanager
    async def running(
        self,
        *,
        concurrency: int = 1,
        drain_timeout: float | timedelta = 30.0,
        warn_transaction_after: float | timedelta = 10.0,
        on_subscription_change: SubscriptionChange = SubscriptionChange.REFUSE,
        timings: WorkerTimings = WorkerTimings(),
        registry: CollectorRegistry | None = None,
    ) -> AsyncIterator[None]:
        """Handle messages in this process for as long as an ``async with`` block lasts.

        Coroutine functions run in the event loop of the block, other handlers in threads. At the end of the block no
        more messages are taken, and running handlers are waited for; after `drain_timeout` they are cancelled, and
        their transactions are rolled back. If something goes wrong by which a listener takes no more
        messages (a handler that fails is not), the task of the block is cancelled, and the error raised at its end.

        Args:
            concurrency: How many messages of each listener are handled at a time, unless it says so itself.
            drain_timeout: For how many seconds (or a `timedelta`) handlers may run on at the end.
            warn_transaction_after: Seconds (or a `timedelta`) after which the log names a handler that holds a
                transaction open.
            on_subscription_change: The action on a durable subscription that a listener has with another selector.
            timings: The intervals and time-outs.
            registry: Shows the handlers' [metrics](/metrics.md#a-worker) while the block lasts, such as
                `prometheus_client.REGISTRY`; None: they are not shown. `jmsql.metrics.register` adds the connections'
                metrics.

        Raises:
            ValueError: The concurrency is less than 1, or a time is negative.
            TypeError: A handler's body has an annotation that means nothing, so that it could read no message; or a
                schedule sends a body that its handler cannot read.
            ResourceAllocationException: The server cannot be reached.
            JMSException: It refuses; or a durable subscription has another topic or selector, and is not changed; or a
                listener takes no more messages.
        """
        from jmsql.worker.running import Running

        if concurrency < 1:
            raise ValueError(f"Expected a concurrency of at least 1, got {concurrency}.")
        settings = HandlerSettings(
            concurrency=concurrency,
            drain_timeout=seconds(drain_timeout, "drain_timeout"),
            warn_transaction_after=seconds(warn_transaction_after, "warn_transaction_after"),
            on_subscription_change=on_subscription_change,
            timings=timings,
        )
        check_bodies(self.listeners, self.schedules)
        declared = DeclaredSchedules(self.factory, self.schedules)
        await asyncio.to_thread(declared.declare)
        try:
            running = await Running.open(self.factory, self.listeners, settings)
        except BaseException:
            declared.end()
            raise
        try:
            with nullcontext() if registry is None else running.measured(registry):
                async with running.watching():
                    yield
        finally:
            declared.end()
            await running.end()

    async def run_async(
        self,
        *,
        concurrency: int = 1,
        drain_timeout: float | timedelta = 30.0,
        warn_transaction_after: float | timedelta = 10.0,
        on_subscription_change: SubscriptionChange = SubscriptionChange.REFUSE,
        timings: WorkerTimings = WorkerTimings(),
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Handle messages in this process until the task is cancelled, as Ctrl-C does under `asyncio.run`.

        The cancellation takes effect when running handlers have finished, as at the end of the block of `running`.

        Args:
            concurrency: As for `running`, like the others.
            drain_timeout: For how many seconds (or a `timedelta`) handlers may run on at the end.
            warn_transaction_after: Seconds (or a `timedelta`) after which the log names a handler that holds a
                transaction open.
            on_subscription_change: The action on a durable subscription that a listener has with another selector.
            timings: The intervals and time-outs.
            registry: Shows the handlers' metrics; None: they are not shown.

        Raises:
            ValueError: As for `running`.
            TypeError: As for `running`.
            JMSException: As for `running`.
        """
        async with self.running(
            concurrency=concurrency,
            drain_timeout=drain_timeout,
            warn_transaction_after=warn_transaction_after,
            on_subscription_change=on_subscription_change,
            timings=timings,
            registry=registry,
        ):
            await asyncio.get_running_loop().create_future()

    @overload
    def drain(
        self,
        *,
        transaction: BlockingTransaction | None = None,
        with_delayed: bool = True,
        limit: int = 1000,
        raise_failures: bool = True,
        only: Chosen | Iterable[Chosen] | None = None,
        without: Chosen | Iterable[Chosen] = (),
    ) -> list[DrainedMessage]: ...

    @overload
    def drain(
        self,
        *,
        transaction: AwaitedTransaction,
        with_delayed: bool = True,
        limit: int = 1000,
        raise_failures: bool = True,
        only: Chosen | Iterable[Chosen] | None = None,
        without: Chosen | Iterable[Chosen] = (),
    ) -> Coroutine[Any, Any, list[DrainedMessage]]: ...

    def drain(
        self,
        *,
        transaction: BlockingTransaction | AwaitedTransaction | None = None,
        with_delayed: bool = True,
        limit: int = 1000,
        raise_failures: bool = True,
        only: Chosen | Iterable[Chosen] | None = None,
        without: Chosen | Iterable[Chosen] = (),
    ) -> list[DrainedMessage] | Coroutine[Any, Any, list[DrainedMessage]]:
        """Handle the messages that a transaction has sent, inside of it, until none is left: for [tests](/testing.md).

        Handlers are called as a worker calls them, each with a savepoint in place of a transaction of its own. Messages
        of other transactions are left alone, and nothing is committed. Topics need their subscriptions before something
        is published: see [`subscribe`][jmsql.testing.subscribe].

        Args:
            transaction: As for `jmsql.enlist`, such as an SQLAlchemy `Session` or Django's `connection`; or as for
                `jmsql.asyncio.enlist`: then the call is awaited. Coroutine functions need one that is awaited. None,
                for the application of a Django project alone: Django's connection.
            with_delayed: Whether messages with a delivery delay are handled as well, after all others, in the order in
                which they would be due.
            limit: Maximum number of messages to handle.
            raise_failures: Whether the error of a handler is raised here, and ends it. If not, the failed message
                stays, with the other results, and is not tried again.
            only: Handlers, routers or destinations; a string names a queue. Messages of other listeners are left. None:
                all are handled.
            without: The same: their messages are left.

        Returns:
            The messages, in the order in which they were handled; under asyncio an awaitable of them.

        Raises:
            IllegalStateException: There were more than `limit`.
            TypeError: That is no transaction, or there is a message for a function that cannot be called in it.
            ValueError: There is no listener that `only` or `without` names.
            BaseException: The error of a handler, whose work is undone.
        """
        from jmsql.worker import draining

        if transaction is None:
            transaction = self.own_transaction
        options = {"with_delayed": with_delayed, "limit": limit, "raise_failures": raise_failures}
        listeners = draining.chosen(self.listeners, only, without)
        return draining.drain(transaction, self.schema, listeners, self.transaction_block, **options)

    @property
    def own_transaction(self) -> Any:
        """The default transaction of `drain`, if the integration of a framework knows one."""
        raise TypeError("drain() and call() need the transaction of the test: transaction=…")

    transaction_block: Callable[[], AbstractContextManager[object]] | None = None
    """Makes the block of a transaction in which `drain` calls a handler if there is none; None: psycopg's own."""

    @property
    def schema(self) -> str:
        """The schema of jmsql's tables: the factory's, else the default one."""
        return DEFAULT_SCHEMA if self.factory is None else self.factory.schema

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(str, self.listeners)) or 'without listeners'}>"


def _check_around(handler: Callable[..., object], name: str, around: Around | None) -> None:
    if around is not None and is_asynchronous(around) and not is_coroutine_function(handler):
        raise TypeError(
            f"The handler {name} is a plain function, and around=… of its application an asynchronous context manager, "
            "which can surround coroutine functions alone. Make the handler a coroutine function, or around=… a plain "
            "context manager; or give the plain functions an application of their own."
        )
