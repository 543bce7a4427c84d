"""Connection consumers: messages for the threads of an application server (JMS 1.1, chapter 8.2.4)."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from jmsql.client._async.session.dispatcher import Dispatcher, dispatch
from jmsql.client._async.session.session import Session
from jmsql.client._async.session.sessions import Sessions
from jmsql.client._async.session.waiting import Watch
from jmsql.client.consumer_state import ConsumerState
from jmsql.client.pacing import PollInterval
from jmsql.client.receiving.fetching import PrefetchBuffer
from jmsql.concurrency.tasks import BackgroundTask, Lock, call, is_failure
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.store.receiving.receive import lock
from jmsql.store.rows.message_rows import MessageKey

if TYPE_CHECKING:
    from jmsql.client._async.shared.client_context import ClientContext


logger = contained_logger("jmsql")


# How a message reaches a session of the pool: this object waits like a consumer, and looks at the first message of the
# queue without keeping it: the lock ends with the look. Only if there is one, or the last session took as many as it
# may, does it ask the pool for a session, since that may wait. The session then fetches by itself, from the first
# message that is known.
#
# Between the look and the fetch others may take the message. Then the session runs with nothing, and goes back to the
# pool: `start` is called for each session that was taken from it.


@set_module("jmsql.asyncio.connection_consumers")
class ServerSession(Protocol):
    """A session and the thread that runs it."""

    @property
    def session(self) -> Session:
        """The session, whose `message_listener` is set. It is loaded with messages before `start`."""

    async def start(self) -> object:
        """Have a thread call `session.run()` once, and return without waiting for it.

        It is called for each server session taken from the pool, also when there was nothing left to load.
        """


@set_module("jmsql.asyncio.connection_consumers")
class ServerSessionPool(Protocol):
    """Hands out server sessions."""

    async def get_server_session(self) -> ServerSession:
        """Return a server session that is not in use, waiting for one if need be."""


@set_module("jmsql.asyncio.connection_consumers")
class ConnectionConsumer:
    """Takes the messages of a destination for the sessions of a pool, beside all else.

    Made by [`Connection.create_connection_consumer`][jmsql.Connection.create_connection_consumer] and its relatives.
    When there are messages, it takes a server session from the pool, has its session fetch up to `max_messages`, and
    starts it. The connection's exception listener is told of errors in the pool or with the server.
    """

    def __init__(
        self,
        client: ClientContext,
        sessions: Sessions,
        session: Session,
        server_session_pool: ServerSessionPool,
        max_messages: int,
    ) -> None:
        if not callable(getattr(server_session_pool, "get_server_session", None)):
            raise TypeError(f"Expected a server session pool with get_server_session(), got {server_session_pool!r}.")
        if max_messages < 1:
            raise JMSException(f"Expected max_messages of at least 1, got {max_messages}.")
        self._client = client
        self._sessions = sessions
        self._pool = server_session_pool
        self._max_messages = max_messages
        # It has one consumer, waits, and receives nothing.
        # The session takes part in no delivery: it registers the consumer, and its lock keeps `close` and a look apart.
        self._session = session
        self._state = _require(sessions, session).state
        self._state.check_open()
        (self._consumer,) = self._state.consumers
        # A message is locked for a look at it, in a transaction that has ended when the look is over.
        self._consumer.buffer.source.fetch_by(lock)
        self._buffers: weakref.WeakKeyDictionary[Dispatcher, PrefetchBuffer] = weakref.WeakKeyDictionary()
        # Held while a session is loaded.
        self._lock = Lock()
        self._closed = False
        # True if the last session took as many messages as it may: more are probably waiting.
        self._is_busy = False

    def start(self) -> None:
        """Begin to have messages delivered, beside all else."""
        BackgroundTask(self._run, "jmsql-connection-consumer").start()

    @property
    def server_session_pool(self) -> ServerSessionPool:
        """The pool.

        Raises:
            IllegalStateException: The connection consumer is closed.
        """
        if self._closed or self._state.closed:
            raise IllegalStateException("The connection consumer is closed.")
        return self._pool

    async def close(self) -> None:
        """Take no more messages; sessions still deliver those that they are loaded with. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        async with self._lock:
            pass  # a session that is being loaded
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._consumer.destination}{' closed' if self._closed else ''}>"

    async def _run(self) -> None:
        # It may wait for its pool before it looks.
        watch = Watch(self._state, self._client, PollInterval(self._client.timings))
        buffers = [self._consumer.buffer]
        await dispatch(self._state, watch, lambda: buffers, lambda: self._dispatch(watch), lambda: self, self._failed)

    async def _dispatch(self, watch: Watch) -> bool:
        """Have a server session deliver waiting messages, and return whether there were any."""
        if not self._client.started:
            return False
        first = None if self._is_busy else await self._look()
        if first is None and not self._is_busy:
            return False
        loaded = 0
        try:
            server_session = await call(self._pool.get_server_session)
            try:
                loaded = await self._load(server_session.session, first)
            finally:
                self._is_busy = loaded == self._max_messages
                await self._start(server_session)
        except BaseException as error:  # the pool is not ours
            self._is_busy = False
            if isinstance(error, JMSException) or not is_failure(error):
                raise
            raise JMSException(f"The server session pool failed: {error!r}") from error
        watch.after_fetch(found=loaded > 0)
        return loaded > 0

    async def _look(self) -> MessageKey | None:
        """Return the key of the first message that can be had now."""
        buffer = self._consumer.buffer
        # Closing the session waits for its lock: nothing is asked of the server after that.
        async with self._state.lock:
            if self._state.closed:
                return None
            rows = await self._client.side.run(buffer.fetch, 1)
        for row in rows:
            key = buffer.held.key(row)
            buffer.source.returned(key)
            return key
        return None

    async def _load(self, session: Session, first: MessageKey | None) -> int:
        """Have a session fetch messages, from the first that is known, and return how many it has."""
        async with self._lock:
            if self._closed or self._state.closed:
                return 0
            dispatcher = _require(self._sessions, session)
            own = self._consumer
            buffer = self._buffers.get(dispatcher)
            if buffer is None or buffer.source.queue_id != own.buffer.source.queue_id:
                self._buffers[dispatcher] = buffer = dispatcher.buffer_like(own.buffer)
            if first is not None:
                buffer.source.notify(first)
            return await dispatcher.load(
                ConsumerState("load", own.destination, own.selector, buffer, is_load=True), self._max_messages
            )

    async def _start(self, server_session: ServerSession) -> None:
        try:
            await call(server_session.start)
        except BaseException:
            dispatcher = self._sessions.dispatcher(server_session.session)
            if dispatcher is not None:
                await dispatcher.unload()
            raise

    async def _failed(self, error: JMSException) -> None:
        if not self._state.closed:  # the pool may be closed before its consumers are
            logger.warning("%r pauses after an error: %s", self, error, exc_info=error.__cause__)
            await self._client.failed(error)


def _require(sessions: Sessions, session: Session) -> Dispatcher:
    dispatcher = sessions.dispatcher(session)
    if dispatcher is None:
        raise IllegalStateException("The session is closed, or not of the connection consumer's own connection.")
    return dispatcher
