"""What a connection does in the database beside its sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Engine

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store.driver import Driver, driver_for
from jmsql.store.errors import jms_errors
from jmsql.store.message_store import MessageStore
from jmsql.store.session_connection import SessionConnection

__all__ = ["SideConnection"]

T = TypeVar("T")


class SideConnection:
    """Short pieces of work, from any thread, outside any transaction of a session.

    Args:
        engine: Where connections come from.
        schema: The name of the schema.
        restricted: Whether policies hide something from the role.
    """

    def __init__(self, engine: Engine, schema: str, *, restricted: bool) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._closed = False
        self._connection = SessionConnection(engine, schema, transacted=False, restricted=restricted)

    def run(self, operation: Callable[[MessageStore], T]) -> T:
        """Do something that commits by itself; once more if the connection was lost while it was idle."""
        with self._lock:
            try:
                return operation(self._connection.store)
            except JMSException:
                if not self._connection.is_lost:
                    raise
                return operation(self._connection.store)

    @contextmanager
    def transaction(self) -> Iterator[Driver]:
        """Run several statements in one transaction, on a connection of their own.

        Raises:
            IllegalStateException: The client's connection is closed.
        """
        if self._closed:
            raise IllegalStateException("The connection is closed.")
        with jms_errors("changing a destination"), self._engine.connect() as connection, connection.begin():
            driver = driver_for(connection.connection.driver_connection)
            assert driver is not None
            yield driver

    def close(self) -> None:
        """Give the connection back, and take none any more."""
        self._closed = True
        self._connection.close()
