"""The defaults of a connection's transactions, as the server reports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def refuses_writes(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return True if the connection's transactions are read-only by default.

    A connection that was made while the database or the role had this default keeps it until it ends, whatever becomes
    of the default. After a change of the server's own configuration the server reports the new one.
    """
    return not connection.closed and connection.pgconn.parameter_status(b"default_transaction_read_only") == b"on"
