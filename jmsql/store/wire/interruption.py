"""Interrupting the server's work for a cancelled task."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from jmsql.store.errors import was_interrupted

# A cancellation request has a connection of its own. Its key names a server process and not a statement: the request
# hits whatever runs when it arrives. The server answers by closing that connection, after it has sent the signal. So:
#
# - The client sends no request while the server runs a commit that an earlier caller relies on.
# - The end of the request is awaited before the connection is used again.
# - If the request does not end, the connection is closed.

_PATIENCE = 5.0
"""Seconds that the server, or a pooler in front of it, may take for a request."""


class Interruption:
    """Interrupts the statement that runs on a psycopg connection."""

    __slots__ = ("_connection",)

    def __init__(self, connection: psycopg.AsyncConnection[Any] | None) -> None:
        self._connection = connection

    @property
    def can_be_interrupted(self) -> bool:
        """True if the server runs a statement, and not the commit before it, which its caller already relies on."""
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
        """True if an error says that the server has interrupted the statement."""
        return was_interrupted(error)

    def end_connection(self) -> None:
        """End the connection."""
        connection = self._connection
        if connection is not None:
            connection.pgconn.finish()
