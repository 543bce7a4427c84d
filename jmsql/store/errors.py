"""What PostgreSQL reports, as JMS exceptions: no error of a driver reaches a user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
    TransactionRolledBackException,
)

__all__ = ["from_sqlstate", "is_connection_lost", "jms_errors", "translate"]

_SCHEMA = "run `jmsql migrate`, with its --schema if that is not jmsql, or jmsql.migrate(), with the rights to make it"

# By SQLSTATE, whole or its class (the first two characters): the exception and what to do.
_ADVICE: dict[str, tuple[type[JMSException], str]] = {
    "08": (JMSException, "the connection to PostgreSQL was lost; whatever was not committed is rolled back"),
    "57P01": (JMSException, "the server closed the connection; whatever was not committed is rolled back"),
    "57P02": (JMSException, "the server crashed; whatever was not committed is rolled back"),
    "57P03": (ResourceAllocationException, "the server is starting or stopping; try again soon"),
    "57P05": (JMSException, "the server closed the connection, which was idle for longer than it allows"),
    "25P03": (JMSException, "the server closed the connection: its transaction was idle for longer than allowed"),
    "25P04": (JMSException, "the server closed the connection: its transaction took longer than allowed"),
    "28": (JMSSecurityException, "PostgreSQL refused the user or the password"),
    "42501": (
        JMSSecurityException,
        "the role lacks the privilege; `jmsql destination grant` and the roles of `jmsql roles create` give it",
    ),
    "3D000": (ResourceAllocationException, "the database does not exist; create it first"),
    "3F000": (JMSException, f"the schema is missing; {_SCHEMA}"),
    "42P01": (JMSException, f"a table is missing or of another version; {_SCHEMA}"),
    "42703": (JMSException, f"a column is missing or of another version; {_SCHEMA}"),
    "42883": (JMSException, f"a function is missing or of another version; {_SCHEMA}"),
    "42704": (JMSException, f"a type is missing or of another version; {_SCHEMA}"),
    "57014": (JMSException, "the statement was cancelled, by a time limit (statement_timeout) or by an administrator"),
    "55P03": (JMSException, "no lock was granted within the time limit (lock_timeout)"),
    "25P02": (TransactionRolledBackException, "an earlier statement failed, and the transaction is lost; roll it back"),
    "25006": (
        IllegalStateException,
        "the server or the transaction is read-only; connect to the primary, with default_transaction_read_only off",
    ),
    "40": (TransactionRolledBackException, "PostgreSQL rolled the transaction back; do it again"),
    "53": (ResourceAllocationException, "the server is out of a resource"),
    "54": (JMSException, "the message is larger than PostgreSQL can hold"),
    "22P05": (JMSException, "the server's encoding cannot hold the text; jmsql needs a database in UTF8"),
}

# Raised by jmsql's own functions, whose messages say it all.
_OWN: dict[str, type[JMSException]] = {
    "JMS01": InvalidDestinationException,
    "JMS02": IllegalStateException,
    "JMS03": JMSException,
    "JMS04": JMSSecurityException,
}


def _is_of_sqlalchemy(error: BaseException, kind: str) -> bool:
    """Tell whether `error` is of a class of `sqlalchemy.exc`. Where that is not loaded, nothing has raised one."""
    exceptions = sys.modules.get("sqlalchemy.exc")
    return exceptions is not None and isinstance(error, getattr(exceptions, kind))


def _driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error where a JMS exception comes from it, or SQLAlchemy has wrapped it."""
    if isinstance(error, JMSException) and error.__cause__ is not None:
        error = error.__cause__
    origin: BaseException | None = getattr(error, "orig", None) if _is_of_sqlalchemy(error, "DBAPIError") else None
    return error if origin is None else origin


def is_connection_lost(error: BaseException) -> bool:
    """Tell whether `error` says that the connection to the server is gone."""
    error = _driver_error(error)
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    code = error.sqlstate
    return code is None or code[:2] == "08" or code in {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}


def translate(error: BaseException, doing: str) -> JMSException:
    """Turn an error of the driver or of SQLAlchemy into the JMS exception for it; one that is, stays as it is.

    Args:
        error: What was raised.
        doing: What was being done, for the message: "sending", "connecting to …".
    """
    if isinstance(error, JMSException):
        return error
    origin = _driver_error(error)
    code = origin.sqlstate if isinstance(origin, psycopg.Error) else None
    text = str(origin).strip().splitlines()
    detail = text[0] if text else type(origin).__name__
    if code is None:
        if isinstance(origin, psycopg.OperationalError):
            return _without_code(detail, doing)
        if _is_of_sqlalchemy(origin, "TimeoutError"):
            return ResourceAllocationException(f"{doing}: no connection of the pool became free in time.")
        return JMSException(f"{doing}: {detail}")
    if code in _OWN:
        assert isinstance(origin, psycopg.Error)
        return _OWN[code](" ".join(filter(None, (origin.diag.message_primary, origin.diag.message_hint))), code)
    return from_sqlstate(code, detail, doing)


def from_sqlstate(code: str | None, detail: str, doing: str) -> JMSException:
    """Return the JMS exception for what the server, or libpq, has reported.

    Args:
        code: The SQLSTATE, if the server gave one.
        detail: What it said.
        doing: What was being done, for the message.
    """
    if code is None:
        return _without_code(detail, doing)
    kind, advice = _ADVICE.get(code) or _ADVICE.get(code[:2]) or (JMSException, "PostgreSQL refused the statement")
    return kind(f"{doing}: {advice} ({detail}).", code)


def _without_code(detail: str, doing: str) -> JMSException:
    """Judge a failure that the server gave no SQLSTATE for: libpq reports it while connecting, or after a cut."""
    if "authentication failed" in detail or "no password supplied" in detail or "pg_hba.conf" in detail:
        return JMSSecurityException(f"{doing}: PostgreSQL refused the user or the password ({detail}).", "28000")
    if "database" in detail and "does not exist" in detail:
        return ResourceAllocationException(
            f"{doing}: the database does not exist; create it first ({detail}).", "3D000"
        )
    if "role" in detail and "does not exist" in detail:
        return JMSSecurityException(f"{doing}: PostgreSQL does not know the user ({detail}).", "28000")
    if any(words in detail for words in ("too many clients", "too many connections", "remaining connection slots")):
        return ResourceAllocationException(f"{doing}: the server has no connection left ({detail}).", "53300")
    if "connection failed" in detail or "connection to server" in detail or "connection timeout" in detail:
        return ResourceAllocationException(
            f"{doing}: the server cannot be reached; is it running, and are host and port right? ({detail})", "08001"
        )
    return JMSException(f"{doing}: the connection to PostgreSQL was lost ({detail}).", "08006")


@contextmanager
def jms_errors(doing: str) -> Iterator[None]:
    """Raise the errors of the driver and of SQLAlchemy that pass through as JMS exceptions, linked to their cause."""
    try:
        yield
    except Exception as error:
        if isinstance(error, psycopg.Error) or _is_of_sqlalchemy(error, "SQLAlchemyError"):
            raise translate(error, doing) from error
        raise
