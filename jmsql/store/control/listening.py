"""The control connections of this process, for those who wait for messages on connections that are not jmsql's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

from jmsql.store.rows.message_rows import GroupKey, MessageKey


class ListeningConnection(Protocol):
    """Hears of messages."""

    @property
    def database(self) -> tuple[Any, ...]:
        """Where it leads, by `find_database`."""

    @property
    def schema(self) -> str:
        """The name of the schema."""

    @property
    def is_attentive(self) -> bool:
        """True if it hears of them now; not while it is lost, nor through a pooler."""

    def begin_waiting(self, queue_id: int, handler: Callable[[MessageKey | GroupKey | None], None]) -> None:
        """Call `handler`, from a thread of its own, whenever the queue may have something new, until `end_waiting`."""

    def end_waiting(self, queue_id: int, handler: Callable[[MessageKey | GroupKey | None], None]) -> None:
        """No longer call `handler`."""


_lock = threading.Lock()
_connections: WeakSet[ListeningConnection] = WeakSet()


def start_listening(connection: ListeningConnection) -> None:
    """Let others use a connection, until `end_listening`."""
    with _lock:
        _connections.add(connection)


def end_listening(connection: ListeningConnection) -> None:
    """Let others use it no more."""
    with _lock:
        _connections.discard(connection)


def is_listening(schema: str) -> bool:
    """Return whether there are connections for a schema of that name, in some database."""
    with _lock:
        return any(connection.schema == schema for connection in _connections)


def listening_connection(database: tuple[Any, ...], schema: str) -> ListeningConnection | None:
    """Return a connection that hears of the messages of a schema, or None."""
    with _lock:
        found = [each for each in _connections if each.schema == schema and each.database == database]
    return next((each for each in found if each.is_attentive), None)


def _leave_to_parent() -> None:
    """In a forked child: the connections go on in the parent alone, one of whose threads may hold the lock."""
    global _lock
    _lock = threading.Lock()
    _connections.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
