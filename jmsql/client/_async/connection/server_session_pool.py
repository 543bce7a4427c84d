"""A ready pool of server sessions, which run side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from jmsql.client._async.connection.connection_consumer import ServerSession
from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.listeners import MessageListener, function_of
from jmsql.concurrency.tasks import BackgroundTask, Condition, call, check_function, current
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.logs import contained_logger
from jmsql.messages import Message
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.client._async.connection.connection import Connection
    from jmsql.client._async.session.session import Session


logger = contained_logger("jmsql")


# `_changed` guards `_idle` and `_in_use`. A session is in one of the two from the beginning to `close`: handed out, it
# counts as in use until `_run_session` has ended, or could not begin. `_running` has the threads or tasks of running
# listeners, so that a listener that closes the pool does not wait for itself.


@set_module("jmsql.asyncio.connection_consumers")
class TaskServerSessionPool:
    """A pool of sessions that run side by side, for connection consumers of one connection.

    With transactions, the messages that a session is loaded with are one transaction: it commits when the listener has
    returned from all of them, and rolls back as soon as the listener raises. In CLIENT mode the listener acknowledges;
    if it raises, the session recovers. In the other modes each message is acknowledged when the listener returns.

    As a context manager it closes at the end of the block.

    Args:
        connection: Whose sessions they are.
        size: How many sessions there are, and so how many messages are handled at once.
        create_listener: Called once for each session, with it: returns the listener for the session's messages, which
            may send and use the database through that session.
        transacted: Whether the sessions work in transactions.
        acknowledge_mode: How they acknowledge messages, if they are not transacted.

    Raises:
        ValueError: The size is less than 1.
        TypeError: `create_listener` has made something that is no listener.
        JMSException: The connection is closed, or the acknowledge mode is not an `AcknowledgeMode`.
    """

    def __init__(
        self,
        connection: Connection,
        size: int,
        create_listener: Callable[[Session], MessageListener],
        *,
        transacted: bool = False,
        acknowledge_mode: AcknowledgeMode = AcknowledgeMode.AUTO,
    ) -> None:
        if size < 1:
            raise ValueError(f"Expected at least 1 session in a pool, got {size}.")
        self._connection = connection
        self._size = size
        self._changed = Condition()
        self._idle: deque[_TaskServerSession] = deque()
        self._in_use = 0
        self._running: set[object] = set()
        self._closed = False
        listeners = []
        for _ in range(size):
            session = connection.create_session(transacted, acknowledge_mode)
            finish, undo = _settlement(session)
            self._idle.append(_TaskServerSession(session, self._run, finish))
            listeners.append((session, undo, create_listener(session)))
        for session, undo, listener in listeners:
            function = function_of(listener)
            check_function(function)
            session.set_message_listener(_UndoingListener(function, undo))

    async def get_server_session(self) -> ServerSession:
        """Return a session that is not in use, waiting for one if need be.

        Raises:
            IllegalStateException: The pool is closed.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._idle or self._closed)
            if self._closed:
                raise IllegalStateException("The server session pool is closed.")
            self._in_use += 1
            return self._idle.popleft()

    async def close(self) -> None:
        """Hand out no more sessions, wait until those in use have run, and close them all.

        Called from one of the pool's listeners, it does not wait: sessions in use close when they have run. Closing
        again does nothing but wait.
        """
        async with self._changed:
            self._closed = True
            self._changed.notify_all()
            idle = list(self._idle)
            self._idle.clear()
        for server_session in idle:
            await server_session.session.close()
        async with self._changed:
            if current() not in self._running:
                await self._changed.wait_for(lambda: not self._in_use)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._size}{' closed' if self._closed else ''}>"

    async def _run(self, server_session: _TaskServerSession) -> None:
        try:
            BackgroundTask(partial(self._run_session, server_session), "jmsql-server-session").start()
        except JMSException:
            await self._hand_back(server_session)
            raise

    async def _run_session(self, server_session: _TaskServerSession) -> None:
        session = server_session.session
        self._running.add(current())
        try:
            await session.run()
            await server_session.finish()
        except JMSException as error:
            if not session.closed:
                logger.warning("%r failed in %r: %s", session, self, error)
                await self._connection.tell_exception_listener(error)
        finally:
            self._running.discard(current())
            await self._hand_back(server_session)

    async def _hand_back(self, server_session: _TaskServerSession) -> None:
        """Have a session wait for its next run; if the pool is closed, close it, which `close` waits for."""
        async with self._changed:
            is_closed = self._closed  # once `close` has emptied `_idle`, it closes no session that comes later
            if not is_closed:
                self._in_use -= 1
                self._idle.append(server_session)
                self._changed.notify_all()
        if is_closed:
            try:
                await server_session.session.close()
            finally:
                async with self._changed:
                    self._in_use -= 1
                    self._changed.notify_all()


class _TaskServerSession:
    """One of the pool's sessions."""

    def __init__(
        self,
        session: Session,
        run: Callable[[_TaskServerSession], Awaitable[None]],
        finish: Callable[[], Awaitable[None]],
    ) -> None:
        self._session = session
        self._run = run
        self.finish = finish

    @property
    def session(self) -> Session:
        return self._session

    async def start(self) -> None:
        await self._run(self)


class _UndoingListener:
    """Undoes unacknowledged receptions when the session's listener fails; the rest of the load is redelivered, too."""

    def __init__(self, listener: Callable[[Message], object], undo: Callable[[], Awaitable[None]]) -> None:
        self._listener = listener
        self._undo = undo

    async def on_message(self, message: Message) -> None:
        try:
            await call(self._listener, message)
        except BaseException:
            await self._undo()
            raise


def _settlement(session: Session) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]:
    """Return the functions that settle a session's messages, and that undo them when its listener fails."""
    if session.transacted:
        return session.commit, session.rollback
    return _nothing, session.recover if session.acknowledge_mode is AcknowledgeMode.CLIENT else _nothing


async def _nothing() -> None:
    """Leave it to the session, which has settled it already."""
