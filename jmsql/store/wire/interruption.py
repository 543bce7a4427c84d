"""Having the server interrupt what it does for a task that was cancelled."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from jmsql.store.errors import was_interrupted

# PostgreSQL is asked over a connection of its own, with a key that says which session is meant and not which statement:
# the request hits whatever runs when it arrives. It is answered by closing that connection, after the signal was sent.
# So:
#
# - Nothing is asked for while the server is at a commit that an earlier caller relies on.
# - The end of the request is awaited before the connection is used again.
# - If it does not end, the connection itself has to.

_PATIENCE = 5.0
"""Seconds that the server, or a pooler in front of it, may take for a request."""


class Interruption:
    """Interrupts the statement that runs on a connection of psycopg's."""

    __slots__ = ("_connection",)

    def __init__(self, connection: psycopg.AsyncConnection[Any] | None) -> None:
        self._connection = connection

    @property
    def can_be_interrupted(self) -> bool:
        """Whether the server is at a statement, and not at the commit before it, which others rely on already."""
        connection = self._connection
        return (
            connection is not None
            and connection.pgconn.transaction_status == TransactionStatus.ACTIVE
            and not getattr(connection, "is_committing", False)
        )

    async def interrupt(self) -> None:
        """Ask the server, and wait until it closes the connection of the request: then it has acted on it.

        Raises:
            psycopg.Error: The request may be under way.
        """
        connection = self._connection
        assert connection is not None
        await connection.cancel_safe(timeout=_PATIENCE)

    def was_interrupted(self, error: BaseException) -> bool:
        """Whether an error says that the server has interrupted the statement."""
        return was_interrupted(error)

    def give_up(self) -> None:
        """End the connection."""
        connection = self._connection
        if connection is not None:
            connection.pgconn.finish()
