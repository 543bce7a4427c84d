"""Transactions that are prepared, and committed or rolled back later, by any client."""

from __future__ import annotations

from typing import NamedTuple, Self

import psycopg

from jmsql.exceptions import IllegalStateException, JMSException, ResourceAllocationException
from jmsql.public_names import set_module
from jmsql.store.errors import is_connection_lost
from jmsql.store.statement import SqlFile, Statement, Steps, column, nothing, value

_LARGEST_FORMAT_ID = 2**31 - 1
_LONGEST_PART = 64
_MISSING = "42704"


@set_module("jmsql.xa")
class Xid(NamedTuple):
    """The identifier of a branch of a global transaction, as in X/Open XA.

    Attributes:
        format_id: Identifies the transaction manager.
        global_transaction_id: The same for all branches of one global transaction.
        branch_qualifier: Different for each of its branches.
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
        """PostgreSQL's name of the transaction: digits, letters, and _+/= alone. PgJDBC and psycopg do it likewise."""
        return str(psycopg.Xid.from_parts(*self))


_sql = SqlFile("server")
_most_prepared = _sql.statement("most_prepared", "asking for two-phase commit", value(int))
_prepared = _sql.statement("prepared", "looking for prepared transactions", column)


def require_prepared_transactions() -> Steps[None]:
    """Make sure that the server can prepare transactions.

    Raises:
        ResourceAllocationException: It cannot.
    """
    if not (yield from _most_prepared.bind()):
        raise ResourceAllocationException(
            "The server has two-phase commit switched off. Set max_prepared_transactions in postgresql.conf to how "
            "many transactions may be prepared at once, 100 for instance, and restart PostgreSQL.",
            "55000",
        )


def prepared_transactions() -> Steps[list[Xid]]:
    """Return the identifiers of the database's prepared transactions, the oldest first.

    Those that were prepared under names of another form are another program's, and left out.
    """
    names = yield from _prepared.bind()
    found = map(psycopg.Xid.from_string, names)
    return [
        Xid(each.format_id, each.gtrid, each.bqual)
        for each in found
        if each.format_id is not None and each.bqual is not None
    ]


def commit_prepared(xid: Xid) -> Steps[None]:
    """Commit a prepared transaction, on a connection in autocommit mode.

    Raises:
        IllegalStateException: There is none of that identifier.
        JMSException: The connection was cut meanwhile, and the outcome is not known (`08007`); or another error.
    """
    return _finish("commit", xid)


def roll_back_prepared(xid: Xid) -> Steps[None]:
    """Roll a prepared transaction back, on a connection in autocommit mode; raises as `commit_prepared`."""
    return _finish("rollback", xid)


def _finish(action: str, xid: Xid) -> Steps[None]:
    doing = f"finishing the prepared transaction {tuple(xid)} with {action}"
    try:
        yield from Statement(action, f"{action} prepared '{xid.identifier}'", "{doing}", nothing).bind(doing=doing)
    except JMSException as error:
        if is_connection_lost(error):
            raise JMSException(
                f"The connection was cut while {doing}; whether it took effect is not known. If tpc_recover() still "
                "returns it, do it again.",
                "08007",
            ) from error.__cause__
        if error.error_code == _MISSING:
            raise IllegalStateException(
                f"No transaction {tuple(xid)} is prepared in this database: it was finished before, or never prepared.",
                _MISSING,
            ) from error.__cause__
        raise
