"""The connections of a client's sessions."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import sqlalchemy
from sqlalchemy import Engine

from jmsql.store._sync.watched_connection import WatchedConnection
from jmsql.store.engine import Endpoint
from jmsql.store.errors import jms_errors

__all__ = ["ConnectionPool"]


class ConnectionPool:
    """The connections of a client's sessions. Its engine is made when the first of them is wanted.

    Args:
        endpoint: Where they lead.
        facts: What SQLAlchemy's dialect depends on, as the server says now.
    """

    def __init__(self, endpoint: Endpoint, facts: Hashable) -> None:
        self.url = endpoint.url
        self._endpoint = endpoint
        self._facts = facts
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    def connect(self) -> sqlalchemy.Connection:
        """Take a connection from the pool, or make one.

        Raises:
            JMSException: The server cannot be reached, or refuses.
        """
        with self._lock:
            if self._engine is None:
                self._engine = self._endpoint.open_engine(self._facts, WatchedConnection)
        with jms_errors("connecting"):
            return self._engine.connect()

    def close(self) -> None:
        """End the connections of the pool."""
        if self._engine is not None:
            self._engine.dispose()
