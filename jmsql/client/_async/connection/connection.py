"""Connections: a client's link to the provider, which its sessions share."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from jmsql.client._async.connection.connection_consumer import ConnectionConsumer
from jmsql.client._async.connection.requestor import Replies, Requestor
from jmsql.client._async.link.pool import ConnectionPool
from jmsql.client._async.session.session import Session
from jmsql.client._async.session.sessions import Sessions
from jmsql.client._async.shared.client_context import ClientContext
from jmsql.client._async.shared.connection_destinations import ConnectionDestinations
from jmsql.client._async.shared.endings import ClientEndings, Endings
from jmsql.client._async.shared.exception_listening import ExceptionListener, ExceptionListening
from jmsql.client._async.shared.redelivery import Redelivery
from jmsql.client._async.shared.side_connection import SideConnection
from jmsql.client._async.shared.subscription_registry import SubscriptionRegistry
from jmsql.client.acknowledge_mode import AcknowledgeMode, mode_of_session
from jmsql.client.metadata import ConnectionMetaData
from jmsql.client.start_reminder import StartReminder
from jmsql.concurrency import ASYNC, settable
from jmsql.concurrency.tasks import from_thread, in_thread, is_over, opened_in_thread, run_detached
from jmsql.exceptions import IllegalStateException, InvalidClientIDException, JMSException
from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.store.connections.database_url import without_secrets
from jmsql.store.connections.engine import Endpoint
from jmsql.store.control.control import Abandonment, ControlConnection, open_control
from jmsql.store.control.counters import Consumption, DestinationCounters
from jmsql.store.control.server import ServerClock
from jmsql.store.receiving.reader import ScanPositions
from jmsql.timings import InternalTimings, Timings
from jmsql.values.destinations import (
    AnyDestination,
    AnyQueue,
    AnyTopic,
    Destination,
    TemporaryQueue,
    require_destination,
    require_queue,
)

if TYPE_CHECKING:
    from jmsql.client._async.connection.connection_consumer import ServerSessionPool
    from jmsql.client._async.session.consumer import MessageConsumer


logger = contained_logger("jmsql")

# A connection is two links to the server and the sessions' pool. The control connection (`ControlConnection`, with a
# thread of its own) keeps the client's number alive, hears notifications and does the maintenance. The side connection
# runs statements beside the sessions' transactions. Neither holds a message.
#
# Nothing that lives as long as the control connection may refer to this object strongly: `_serve` passes weak
# references. So a connection that the application forgets to close is collected. The control connection notices that
# (`Abandonment`), ends the links, and warns of the leak.
#
# `close` ends the parts in this order: listeners; then sessions, which roll back and release their messages; and with
# the last session the links to the server (`_close_if_unused`). A listener may call it: its own session, and with it
# the links, close when the listener returns.


AnySession = TypeVar("AnySession", bound=Session)


@set_module("jmsql.asyncio")
class Connection:
    """A client's connection (JMS 1.1, chapter 4.3).

    Made by [`ConnectionFactory.create_connection`][jmsql.ConnectionFactory.create_connection]. It starts out stopped:
    it can send, and delivers nothing until `start`. It may be shared between threads. As a context manager it closes
    at the end of the block.
    """

    # Validate a connection consumer's destination; raise InvalidDestinationException for any other object.
    _require_destination: Callable[[object], Destination] = staticmethod(require_destination)

    def __init__(
        self,
        pool: ConnectionPool,
        side_pool: ConnectionPool,
        control: ControlConnection,
        schema: str,
        clock: ServerClock,
        *,
        automatic_creation: bool,
        timings: InternalTimings,
    ) -> None:
        self._side_pool = side_pool
        self._control = control
        self._metadata = ConnectionMetaData(control.server.version)
        self._exceptions = ExceptionListening(self)
        self._counters = DestinationCounters()
        self._side = SideConnection(
            side_pool,
            restricted=control.server.is_restricted,
            lock_timeout=timings.lock_timeout,
            is_transaction_open=lambda: pool.has_open_transaction,
        )
        self._destinations = ConnectionDestinations(
            self._side, lambda: control.connection_id, automatic_creation=automatic_creation
        )
        self._subscription_registry = SubscriptionRegistry(self._destinations, control, self.tell_exception_listener)
        self._client = ClientContext(
            pool=pool,
            schema=schema,
            timings=timings,
            control=control,
            side=self._side,
            destinations=self._destinations,
            subscription_registry=self._subscription_registry,
            redelivery=Redelivery(self._side, self._destinations, control, timings.policy_refresh_interval),
            counters=self._counters,
            clock=clock,
            start_reminder=StartReminder(timings.start_reminder_delay),
            failed=self.tell_exception_listener,
            positions=ScanPositions(timings.sweep_interval),
        )
        self._sessions = Sessions(self._client, self._close_if_unused)
        self._replies: Replies | None = None

    @classmethod
    async def open(
        cls,
        sessions: Endpoint,
        control_endpoint: Endpoint,
        schema: str,
        client_id: str | None,
        *,
        automatic_creation: bool,
        timings: InternalTimings,
    ) -> Self:
        """Connect: the control connection alone, if it goes where the sessions' connections will."""
        clock = ServerClock(timings)
        control, is_pooled = await opened_in_thread(
            lambda opened: opened[0].close(), open_control, control_endpoint, sessions, schema, clock, timings
        )
        try:
            # Past the pooler, if possible: sessions wait for this work with their transactions open, which may occupy
            # all of the pooler's connections.
            pool = ConnectionPool(sessions, control.server.dialect, schema)
            is_apart = is_pooled or pool.limit.can_be_set  # nor does it wait for other sessions' connections
            side_pool = ConnectionPool(control_endpoint, control.server.dialect, schema) if is_apart else pool
            opened = cls(
                pool, side_pool, control, schema, clock, automatic_creation=automatic_creation, timings=timings
            )
            if client_id is not None:
                await opened._take_client_id(client_id)
            opened._serve(control)
        except BaseException:
            await in_thread(control.close)
            raise
        return opened

    def _serve(self, control: ControlConnection) -> None:
        """Have the control connection do its duties while this connection, or an object that it has made, is in use."""
        itself, is_loop_closed = weakref.ref(self), is_over()
        kind, url = type(self).__name__, self._client.pool.url
        tell, join = weakref.WeakMethod(self.tell_exception_listener), weakref.WeakMethod(self._join_again)
        count = weakref.WeakMethod(self._sessions.consumption)
        open_connections = self._client.pool.open_connections, self._side_pool.open_connections

        async def failed(error: JMSException) -> None:
            if (method := tell()) is not None:
                await method(error)

        async def returned(former_ids: Sequence[int]) -> None:
            if (method := join()) is not None:
                await method(former_ids)

        def consumption() -> Mapping[Consumption, int]:
            return {} if (method := count()) is None else method()

        def end() -> None:
            for connection in itertools.chain(*map(list, open_connections)):
                connection.pgconn.finish()
            warnings.warn(f"<{kind} {without_secrets(url)}> was not closed.", ResourceWarning, stacklevel=2)

        abandonment = Abandonment(lambda: itself() is None or is_loop_closed(), end)
        control.serve(from_thread(failed), from_thread(returned), self._counters, consumption, abandonment)

    if ASYNC:

        def limit_connections(self, most: int) -> None:
            """Let the sessions have so many connections to the server at a time."""
            self._client.pool.limit.most = most

    @property
    @settable
    def client_id(self) -> str | None:
        """The client identifier, which names the client's durable subscriptions; None: it has none.

        Setting it is the same as `set_client_id`.

        Raises:
            IllegalStateException: The connection is closed.
        """
        self._check_open()
        return self._client.client_id

    async def set_client_id(self, client_id: str) -> None:
        """Take a client identifier, which no other live connection has (JMS 1.1, chapter 4.3.2).

        It can be set once, before anything else is done with the connection.

        Args:
            client_id: The identifier, of at least one character.

        Raises:
            IllegalStateException: The connection is closed, is in use, or has an identifier already.
            InvalidClientIDException: The identifier is empty, or another live connection has it.
        """
        self._check_open()
        if self._client.client_id is not None:
            raise IllegalStateException(f"The connection has the client identifier {self._client.client_id!r} already.")
        if self._client.used:
            raise IllegalStateException("The client identifier is set before anything else is done with a connection.")
        await self._take_client_id(client_id)

    @property
    def metadata(self) -> ConnectionMetaData:
        """Facts about the provider."""
        self._check_open()
        return self._metadata

    @property
    def timings(self) -> Timings:
        """The intervals and time-outs of the factory that made it."""
        return self._client.timings

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """The listener for the server's loss, called on one of the connection's threads. Calls do not overlap.

        The connection keeps trying to reach the server again, so the listener need not. Setting it is the same as
        `set_exception_listener`.
        """
        self._check_open()
        return self._exceptions.listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self.set_exception_listener(listener)

    def set_exception_listener(self, listener: ExceptionListener | None) -> None:
        """Have a listener told when the server is lost (JMS 1.1, chapter 4.3.8).

        Args:
            listener: A callable, or an object with `on_exception`; None: no listener.

        Raises:
            IllegalStateException: The connection is closed.
            TypeError: The listener is no callable and has no `on_exception`, or is a generator function, whose calls
                run nothing; with threads, also a coroutine function.
        """
        self._use()
        self._exceptions.listener = listener

    def create_session(
        self, transacted: bool | AcknowledgeMode = False, acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO
    ) -> Session:
        """Make a session.

        Args:
            transacted: True if it works in transactions; or, as in JMS 2.0, its `AcknowledgeMode` alone.
            acknowledge_mode: How it acknowledges messages, if it is not transacted.

        Raises:
            IllegalStateException: The connection is closed.
            JMSException: That is neither a bool nor an `AcknowledgeMode`, or a session that is not transacted would
                have the mode TRANSACTED.
        """
        self._use()
        return self.open_session(Session, mode_of_session(transacted, acknowledge_mode))

    def open_session(self, kind: type[AnySession], mode: AcknowledgeMode = AcknowledgeMode.AUTO) -> AnySession:
        """Create a session of another class; the client identifier can still be set afterwards."""
        return kind(self._client, mode, self._sessions)

    def endings(self) -> Endings:
        """Return the reader of messages' ends."""
        return ClientEndings(self._client)

    def requestor(self, queue: AnyQueue) -> Requestor:
        """Return a requestor for a queue, which can be called from any thread, also many times at once.

        All requestors of a connection have one temporary queue for the replies.

        Args:
            queue: The queue, its name, or the handler of its messages, which checks the bodies of requests.

        Raises:
            IllegalStateException: The connection is closed.
            InvalidDestinationException: It is not a queue.
        """
        self._use()
        if self._replies is None:
            self._replies = Replies(
                lambda: self.open_session(Session), self._create_reply_queue, self._check_open, self._client
            )
        return Requestor(self._replies, require_queue(queue), queue)

    async def _create_reply_queue(self) -> TemporaryQueue:
        """Make a temporary queue by whose name the server knows that a requestor waits."""
        return await self._client.destinations.create_temporary(
            TemporaryQueue, self._sessions.check_unused, of_requestor=True
        )

    # For application servers

    async def create_connection_consumer(
        self,
        destination: AnyDestination,
        selector: str | None,
        server_session_pool: ServerSessionPool,
        max_messages: int,
    ) -> ConnectionConsumer:
        """Have the messages of a queue, or of a topic from now until it is closed, delivered by the pool's sessions.

        Args:
            destination: The queue or topic; a string is a queue's name, ``queue://NAME`` or ``topic://NAME``.
            selector: Which of its messages are wanted; None or "": all.
            server_session_pool: Hands out the sessions, which are this connection's.
            max_messages: The most messages that a session is loaded with at once.

        Raises:
            IllegalStateException: The connection is closed.
            InvalidDestinationException: It is not a destination, or it is another connection's temporary one.
            InvalidSelectorException: The selector has an error; the message shows where.
            JMSException: `max_messages` is less than 1.
            TypeError: The pool is none.
        """
        return await self._consume(
            lambda session: session.create_consumer(self._require_destination(destination), selector),
            server_session_pool,
            max_messages,
        )

    async def create_durable_connection_consumer(
        self,
        topic: AnyTopic,
        name: str,
        selector: str | None,
        server_session_pool: ServerSessionPool,
        max_messages: int,
    ) -> ConnectionConsumer:
        """Do the same for a durable subscription; see `Session.create_durable_consumer`."""
        return await self._consume(
            lambda session: session.create_durable_consumer(topic, name, selector), server_session_pool, max_messages
        )

    async def create_shared_connection_consumer(
        self,
        topic: AnyTopic,
        name: str,
        selector: str | None,
        server_session_pool: ServerSessionPool,
        max_messages: int,
    ) -> ConnectionConsumer:
        """Do the same for a shared subscription; see `Session.create_shared_consumer`."""
        return await self._consume(
            lambda session: session.create_shared_consumer(topic, name, selector), server_session_pool, max_messages
        )

    async def create_shared_durable_connection_consumer(
        self,
        topic: AnyTopic,
        name: str,
        selector: str | None,
        server_session_pool: ServerSessionPool,
        max_messages: int,
    ) -> ConnectionConsumer:
        """Do the same for a shared durable subscription; see `Session.create_shared_durable_consumer`."""
        return await self._consume(
            lambda session: session.create_shared_durable_consumer(topic, name, selector),
            server_session_pool,
            max_messages,
        )

    async def _consume(
        self,
        create_consumer: Callable[[Session], Awaitable[MessageConsumer]],
        pool: ServerSessionPool,
        max_messages: int,
    ) -> ConnectionConsumer:
        self._use()
        session = self.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        try:
            await create_consumer(session)
            consumer = ConnectionConsumer(self._client, self._sessions, session, pool, max_messages)
            consumer.start()
        except BaseException:
            await session.close()
            raise
        return consumer

    async def tell_exception_listener(self, error: JMSException) -> None:
        """Call the exception listener, if there is one, with a problem: one of an application server's pool, say.

        Args:
            error: The problem.
        """
        if not self._client.closed:
            await self._exceptions.notify(error)

    # Starting and stopping

    async def start(self) -> None:
        """Deliver messages from now on. Starting a started connection does nothing."""
        self._use()
        self._client.started = not self._client.closed
        self._client.start_reminder.settle()
        self._sessions.wake()

    async def stop(self) -> None:
        """Pause the delivery of messages, until `start`. Stopping a stopped connection does nothing.

        It returns when no listener runs any more; called from a listener, when no other one does. Timeouts of `receive`
        run on.

        Raises:
            IllegalStateException: The connection is closed; or it is called from a listener for which another one
                waits already, since it stops or closes the connection, say.
        """
        self._use()
        with self._sessions.waiting_for_listeners("stop"):
            await self._sessions.stop()

    async def close(self) -> None:
        """Close the connection, and with it its sessions, producers and consumers. Closing again does nothing.

        Open transactions are rolled back, and messages that were received and not acknowledged are delivered again. It
        waits for running listeners, which can use the connection and its sessions until they return, and for
        asynchronous sends. A listener may call it too: its own session then closes when it returns.

        Raises:
            IllegalStateException: It is called from a completion listener of one of its sessions; or from a listener
                for which another one waits already, since it stops the connection, say.
        """
        self._sessions.check_no_completion("close")
        if self._client.closed:
            return
        if self._sessions.guard is not None:
            self._sessions.guard.check("connection")
        await run_detached(self._close())

    async def _close(self) -> None:
        with self._sessions.waiting_for_listeners("close"):
            if not self._sessions.begin_to_close():
                return
            self._sessions.wake()
            if self._replies is not None:
                self._replies.close()
            await self._sessions.stop()
            await self._sessions.close()
        await self._close_if_unused()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._client.closed else "started" if self._client.started else "stopped"
        client_id = "" if self._client.client_id is None else f" client_id={self._client.client_id!r}"
        return f"<{type(self).__name__} {without_secrets(self._client.pool.url)}{client_id} {state}>"

    def _use(self) -> None:
        self._check_open()
        self._client.used = True

    async def _join_again(self, former_ids: Sequence[int]) -> None:
        await self._subscription_registry.join_again(former_ids, self._sessions.subscribers)

    def _check_open(self) -> None:
        self._sessions.check_open()

    async def _take_client_id(self, client_id: str) -> None:
        if not isinstance(client_id, str) or not client_id:
            raise InvalidClientIDException(
                f"Expected a client identifier of at least one character, got {client_id!r}."
            )
        await in_thread(self._control.set_client_id, client_id)
        self._client.client_id = client_id

    async def _close_if_unused(self) -> None:
        """End the links to the server, once the connection is closed and so is its last session."""
        if not self._client.closed or self._sessions:
            return
        try:
            await self._destinations.delete_all_temporary()
        except JMSException as error:
            logger.warning("The temporary destinations could not be deleted now, and are deleted later: %s", error)
        await self._side.close()
        await in_thread(self._control.close)
        await self._client.pool.close()
        await self._side_pool.close()
