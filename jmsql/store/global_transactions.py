"""Transactions that are prepared, and committed or rolled back later, by any client."""

from __future__ import annotations

from typing import NamedTuple, Self

import psycopg
import sqlalchemy

from jmsql.exceptions import IllegalStateException, JMSException, ResourceAllocationException
from jmsql.public_names import set_module
from jmsql.store.engine import ConnectionPool
from jmsql.store.errors import is_connection_lost, jms_errors, translate

__all__ = ["MOST_PREPARED", "GlobalTransactions", "Xid", "require_prepared_transactions"]

MOST_PREPARED = "select current_setting('max_prepared_transactions')::integer"
"""Asks the server how many transactions may be prepared at once."""

_LARGEST_FORMAT_ID = 2**31 - 1
_LONGEST_PART = 64
_MISSING = "42704"


@set_module("jmsql.xa")
class Xid(NamedTuple):
    """The identifier of a branch of a global transaction, as in X/Open XA.

    Attributes:
        format_id: Says who makes such identifiers.
        global_transaction_id: What the branches of one global transaction have in common.
        branch_qualifier: What tells its branches apart.
    """

    format_id: int
    global_transaction_id: str
    branch_qualifier: str

    @classmethod
    def checked(cls, format_id: int, global_transaction_id: str, branch_qualifier: str) -> Self:
        """Make an identifier that PostgreSQL can take.

        Raises:
            ValueError: The format id is no 31-bit number, or a part has more than 64 bytes in UTF-8.
        """
        if not 0 <= format_id <= _LARGEST_FORMAT_ID:
            raise ValueError(f"The format id is between 0 and {_LARGEST_FORMAT_ID}, unlike {format_id}.")
        for part in (global_transaction_id, branch_qualifier):
            if len(part.encode()) > _LONGEST_PART:
                raise ValueError(f"A part of a transaction identifier has at most {_LONGEST_PART} bytes: {part!r}.")
        return cls(format_id, global_transaction_id, branch_qualifier)

    @property
    def identifier(self) -> str:
        """What PostgreSQL calls the transaction: digits, letters, and _+/= alone. PgJDBC and psycopg do it likewise."""
        return str(psycopg.Xid.from_parts(*self))


def require_prepared_transactions(most: int) -> None:
    """Make sure that the server can prepare transactions.

    Args:
        most: How many it lets be prepared at once.

    Raises:
        ResourceAllocationException: None.
    """
    if not most:
        raise ResourceAllocationException(
            "The server has two-phase commit switched off. Set max_prepared_transactions in postgresql.conf to how "
            "many transactions may be prepared at once, 100 for instance, and restart PostgreSQL.",
            "55000",
        )


class GlobalTransactions:
    """The prepared transactions of a database.

    Args:
        pool: Where connections come from; they are tested when they are taken.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def require_enabled(self) -> None:
        """Make sure that the server can prepare transactions.

        Raises:
            ResourceAllocationException: It cannot.
        """
        with jms_errors("asking for two-phase commit"), self._connect() as connection:
            most = connection.scalar(sqlalchemy.text(MOST_PREPARED))
        require_prepared_transactions(most)

    def commit(self, xid: Xid) -> None:
        """Commit a prepared transaction.

        Raises:
            IllegalStateException: There is none of that identifier.
            JMSException: The connection was cut meanwhile, and the outcome is not known (`08007`); or another error.
        """
        self._finish("commit", xid)

    def rollback(self, xid: Xid) -> None:
        """Roll a prepared transaction back.

        Raises:
            IllegalStateException: There is none of that identifier.
            JMSException: The connection was cut meanwhile, and the outcome is not known (`08007`); or another error.
        """
        self._finish("rollback", xid)

    def recover(self) -> list[Xid]:
        """Return the identifiers of the database's prepared transactions, the oldest first.

        Those that were prepared under names of another form are somebody else's, and left out.
        """
        with jms_errors("looking for prepared transactions"), self._connect() as connection:
            names = connection.scalars(
                sqlalchemy.text(
                    "select gid from pg_prepared_xacts where database = current_database() order by prepared"
                )
            ).all()
        found = (psycopg.Xid.from_string(name) for name in names)
        return [
            Xid(each.format_id, each.gtrid, each.bqual)
            for each in found
            if each.format_id is not None and each.bqual is not None
        ]

    def _connect(self) -> sqlalchemy.Connection:
        return self._pool.connect().execution_options(isolation_level="AUTOCOMMIT")

    def _finish(self, action: str, xid: Xid) -> None:
        doing = f"finishing the prepared transaction {tuple(xid)} with {action}"
        with jms_errors(doing), self._connect() as connection:
            try:
                connection.exec_driver_sql(f"{action} prepared '{xid.identifier}'")
            except sqlalchemy.exc.DBAPIError as error:
                if is_connection_lost(error):
                    raise JMSException(
                        f"The connection was cut while {doing}; whether it took effect is not known. If tpc_recover() "
                        "still returns it, do it again.",
                        "08007",
                    ) from error
                failure = translate(error, doing)
                if failure.error_code == _MISSING:
                    raise IllegalStateException(
                        f"No transaction {tuple(xid)} is prepared in this database: it was finished before, or never "
                        "prepared.",
                        _MISSING,
                    ) from error
                raise failure from error
