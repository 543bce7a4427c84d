"""A cursor for jmsql's own statements on any connection of psycopg."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from jmsql.store.connections.adaptation import ADAPTERS


class OwnCursor(psycopg.AsyncCursor[Any]):
    """A cursor that returns tuples and has psycopg's default adapters, not its connection's."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS
