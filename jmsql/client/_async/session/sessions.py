"""The open sessions of a connection, and which of their listeners waits for which."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from jmsql.client._async.session.session_state import SessionState
from jmsql.concurrency.tasks import current, owning_loop
from jmsql.exceptions import IllegalStateException
from jmsql.store.control.counters import Consumption

if TYPE_CHECKING:
    from jmsql.client._async.session.dispatcher import Dispatcher
    from jmsql.client._async.shared.client_context import ClientContext
    from jmsql.client.consumer_state import ConsumerState
    from jmsql.values.destinations import Destination


_FORKED = "The connection belongs to the process that this one was forked from; make a connection in each process."


# `_lock` guards the dictionary of sessions, and makes checking for a circle of waits and entering one a single step. It
# is never held while a session closes or a listener runs.
#
# A listener that stops the connection waits for the listeners of all other sessions. If one of those waits for the
# first in turn, both would wait for ever. So each listener notes for which sessions it waits, and the call that would
# close a circle raises IllegalStateException (`_wait_for` follows the graph).
#
# A forked child has copies of all sessions, whose sockets belong to the parent. `_leave_to_parent` marks them closed in
# the child, and sends nothing to the server. It takes no lock, since a thread of the parent may have held it as it
# forked, and replaces the one that the child's calls take.


class OpenSession(Protocol):
    """A session, as the application knows it."""

    async def close(self) -> None:
        """Close it."""


class Sessions:
    """Knows the sessions of a connection until they are closed; its methods may be called from any thread."""

    def __init__(self, client: ClientContext, on_removed: Callable[[], Awaitable[None]]) -> None:
        self._client = client
        self._on_removed = on_removed
        self._lock = threading.RLock()
        self.guard = owning_loop()
        self._why_closed = "The connection is closed."
        # The open sessions, and the dispatchers that know their states. Written under `_lock`; a snapshot is taken to
        # close them.
        self._open: dict[OpenSession, Dispatcher] = {}
        self.waits: dict[object, Collection[SessionState]] = {}
        """The sessions whose listeners a listener waits for, by the waiting listener's identity."""
        _living.add(self)

    def __len__(self) -> int:
        return len(self._open)

    def add(self, session: OpenSession, dispatcher: Dispatcher) -> None:
        """Note that there is a new session.

        Raises:
            IllegalStateException: The connection is closed.
        """
        with self._lock:
            self.check_open()
            self._open[session] = dispatcher

    async def remove(self, session: OpenSession) -> None:
        """Note that a session is closed."""
        with self._lock:
            self._open.pop(session, None)
        await self._on_removed()

    def dispatcher(self, session: OpenSession) -> Dispatcher | None:
        """Return the dispatcher of a session's listeners; None: the session is closed, or another connection's."""
        return self._open.get(session)

    def check_open(self) -> None:
        """Raise IllegalStateException if the connection is closed, and the caller is no listener that has its use."""
        if self.guard is not None:
            self.guard.check("connection")
        if self._client.closed and not any(state.is_used_by_listener for state in self._states()):
            raise IllegalStateException(self._why_closed)

    def check_no_completion(self, method: str) -> None:
        """Refuse calls of a session's completion listener that would wait for it."""
        for state in self._states():
            state.check_no_completion(method)

    def check_unused(self, destination: Destination) -> None:
        """Raise IllegalStateException if a destination has a consumer in one of the sessions."""
        consumers = [consumer for consumer in self._consumers() if consumer.destination == destination]
        if any(not consumer.is_load for consumer in consumers):
            raise IllegalStateException(f"{destination} has a consumer; close that one first.")
        if consumers:
            raise IllegalStateException(
                f"A server session still delivers messages of {destination}. Delete it once its listener has returned: "
                "closing the server session pool waits for that."
            )

    def subscribers(self) -> list[ConsumerState]:
        """Return the consumers that have subscriptions."""
        return [consumer for consumer in self._consumers() if consumer.subscription is not None]

    def consumption(self) -> Counter[Consumption]:
        """Return the queues and selectors of the application's consumers, with the numbers of consumers."""
        return Counter(
            Consumption(*consumer.buffer.source.competition, consumer.buffer.policy.listener)
            for consumer in self._consumers()
            if not consumer.is_load
        )

    def wake(self) -> None:
        """Have the threads that wait in the sessions look again."""
        for state in self._states():
            state.notifications.notify()

    async def stop(self) -> None:
        """Deliver nothing more, and return when no other listener and no `receive` is under way."""
        self._client.started = False
        for state in self._states():
            async with state.lock:
                pass

    def begin_to_close(self) -> bool:
        """Note that the connection is closed, and return whether it was open."""
        with self._lock:
            was_open = not self._client.closed
            self._client.closed = True
            self._client.started = False
        return was_open

    async def close(self) -> None:
        """Close the sessions."""
        while open_sessions := [session for session, each in self._snapshot() if not each.state.closed]:
            for session in open_sessions:
                await session.close()

    def leave_to_parent(self) -> None:
        """In a forked child: have all closed here, and say nothing to the server, which goes on with the parent."""
        self._client.closed = True
        self._client.started = False
        self._why_closed = _FORKED
        self._lock = threading.RLock()  # one of the parent's threads may have had the former one
        for dispatcher in self._open.values():
            dispatcher.state.close(_FORKED)

    @contextmanager
    def waiting_for_listeners(self, method: str, session: SessionState | None = None) -> Iterator[None]:
        """Note that the caller waits for listeners, if a listener itself calls.

        Args:
            method: The method that waits.
            session: For whose listener it waits; None: for all sessions' listeners.

        Raises:
            IllegalStateException: One of them waits for the caller, so that both would wait for ever.
        """
        caller = current()
        states = self._states()
        if caller in self.waits or not any(state.is_called_by_listener for state in states):
            yield
            return
        with self._lock:
            others = [state for state in (states if session is None else [session]) if not state.is_called_by_listener]
            if self._wait_for(others, caller):
                raise IllegalStateException(
                    f"{method}() would wait for a listener that waits for this one: it stops or closes the connection, "
                    "or closes a session."
                )
            self.waits[caller] = others
        try:
            yield
        finally:
            del self.waits[caller]

    def _wait_for(self, states: Collection[SessionState], caller: object) -> bool:
        """True if the listener of one of the sessions is the caller, or waits for it."""
        pending, seen = list(states), set[SessionState]()
        while pending:
            state = pending.pop()
            if state in seen or state.listener is None:
                continue
            if state.listener is caller:
                return True
            seen.add(state)
            pending += self.waits.get(state.listener, ())
        return False

    def _snapshot(self) -> list[tuple[OpenSession, Dispatcher]]:
        with self._lock:
            return list(self._open.items())

    def _states(self) -> list[SessionState]:
        return [dispatcher.state for _, dispatcher in self._snapshot()]

    def _consumers(self) -> list[ConsumerState]:
        return [consumer for state in self._states() for consumer in list(state.consumers)]


_living: WeakSet[Sessions] = WeakSet()


def _leave_to_parent() -> None:
    for sessions in list(_living):
        sessions.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)
