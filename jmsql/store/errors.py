"""Errors of PostgreSQL as JMS exceptions: no error of a driver reaches a user."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from jmsql.exceptions import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
    TransactionRolledBackException,
)

_SCHEMA = "run `jmsql migrate`, with its --schema if that is not jmsql, or jmsql.migrate(), with the rights to make it"

_CONNECTION_LOST = "08006"
"""The SQLSTATE of a connection that broke; libpq gives no other reason."""
_CERTAIN = {"08001", "08004", "08007"}
"""Errors of connections that were not made, and the one that says already that the outcome is not known."""

# The exception and the advice, by SQLSTATE or its class (the first two characters).
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
    "42P05": (
        JMSException,
        (
            "another process has prepared a statement on the connection: it was made before a fork, after which each "
            "needs its own (`engine.dispose(close=False)`), or a pooler lends it (`prepare_threshold=None`)"
        ),
    ),
    "57014": (JMSException, "the statement was cancelled, by a time limit (statement_timeout) or by an administrator"),
    "55P03": (JMSException, "no lock was granted within the time limit (lock_timeout)"),
    "25P02": (TransactionRolledBackException, "an earlier statement failed, and the transaction is lost; roll it back"),
    "25006": (
        IllegalStateException,
        "the server or the transaction is read-only; connect to the primary, with default_transaction_read_only off",
    ),
    "40": (TransactionRolledBackException, "PostgreSQL rolled the transaction back; do it again"),
    "53": (ResourceAllocationException, "the server is out of a resource"),
    "54": (JMSException, "a limit of PostgreSQL's is exceeded, such as the size of a message"),
    "54001": (JMSException, "the statement is too complex, for a selector that nests too deeply perhaps"),
    "22P05": (JMSException, "the server's encoding cannot hold the text; jmsql needs a database in UTF8"),
}

# The same, by the file of PostgreSQL's source too, where other causes have the code. Its texts may be in any language.
_ADVICE_BY_FILE: dict[tuple[str, str | None], tuple[type[JMSException], str]] = {
    ("54000", "async.c"): (
        ResourceAllocationException,
        (
            "the server's queue of notifications is full, since a session that listens has not ended its transaction "
            "for long; `jmsql doctor` shows how full, `pg_stat_activity` the session"
        ),
    ),
    ("42501", "rls.c"): (
        JMSSecurityException,
        "row_security is off for the role, the database or the connection; jmsql's tables need it on",
    ),
}

# Raised by jmsql's own functions, whose messages say it all.
_OWN: dict[str, type[JMSException]] = {
    "JMS01": InvalidDestinationException,
    "JMS02": IllegalStateException,
    "JMS03": JMSException,
    "JMS04": JMSSecurityException,
    "JMS05": TransactionRolledBackException,
    "JMS06": InvalidDestinationException,
}


def _is_of_sqlalchemy(error: BaseException, kind: str) -> bool:
    """Tell whether `error` is of a class of `sqlalchemy.exc`. Where that is not loaded, nothing has raised one."""
    exceptions = sys.modules.get("sqlalchemy.exc")
    return exceptions is not None and isinstance(error, getattr(exceptions, kind))


def _is_of_psycopg_pool(error: BaseException, *kinds: str) -> bool:
    """Tell whether `error` is of one of the classes of `psycopg_pool`."""
    pool = sys.modules.get("psycopg_pool")
    return pool is not None and any(isinstance(error, getattr(pool, name)) for name in kinds)


def _is_of_asyncpg(error: BaseException | None, *kinds: str) -> bool:
    """Tell whether `error` is of one of the classes of `asyncpg`, all of which it raises if no other is named."""
    asyncpg = sys.modules.get("asyncpg")
    names = kinds or ("PostgresError", "InterfaceError", "InternalClientError")
    return asyncpg is not None and any(isinstance(error, getattr(asyncpg, name)) for name in names)


def _is_lost_by_asyncpg(error: BaseException) -> bool:
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return True
    return _is_of_asyncpg(error, "InterfaceError") and "connection is closed" in str(error)


def _has_several_results(error: BaseException) -> bool:
    """Tell whether `error` is psycopg's for BEGIN, COMMIT or ROLLBACK with more than one result.

    The last one is then the end of the connection: PgBouncer passes the server's last words on, or its answer, and adds
    its own error. psycopg raises neither of them.
    """
    return (
        isinstance(error, psycopg.InternalError)
        and error.sqlstate is None
        and _SEVERAL_RESULTS.match(str(error)) is not None
    )


_SEVERAL_RESULTS = re.compile(r"received \d+ results from command")


def is_driver_error(error: BaseException) -> bool:
    """Tell whether `error` is one of psycopg, of asyncpg or of SQLAlchemy, or says that a text cannot be encoded."""
    return (
        isinstance(error, psycopg.Error | UnicodeError)
        or _is_of_sqlalchemy(error, "SQLAlchemyError")
        or _is_of_asyncpg(error)
    )


def _sqlstate(error: BaseException) -> str | None:
    """Return the code that the server has given an error of a driver, if it has."""
    if isinstance(error, psycopg.Error) or _is_of_asyncpg(error, "PostgresError"):
        code: str | None = getattr(error, "sqlstate", None)
        return code
    return None


def _driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error where a JMS exception comes from it, or SQLAlchemy has wrapped it."""
    if isinstance(error, JMSException) and error.__cause__ is not None:
        error = error.__cause__
    origin: BaseException | None = getattr(error, "orig", None) if _is_of_sqlalchemy(error, "DBAPIError") else None
    if origin is None:
        return error
    # SQLAlchemy's cover of asyncpg has errors of its own.
    return origin.__cause__ if origin.__cause__ is not None and _is_of_asyncpg(origin.__cause__) else origin


def is_connection_lost(error: BaseException) -> bool:
    """Tell whether `error` says that the connection to the server is gone."""
    error = _driver_error(error)
    code = _sqlstate(error)
    if _has_several_results(error):
        return True
    if code is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or _is_lost_by_asyncpg(error)
    if not (isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) or _is_of_asyncpg(error)):
        return False
    return code[:2] == "08" or code in {"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"}


def with_unknown_outcome(error: JMSException, advice: str) -> JMSException:
    """Return the error of statements that commit by themselves: 08007 if their answer was lost.

    PgBouncer gives the loss of a server's connection a code of its own, 08P01. A connection that could not be made has
    08001 or 08004.
    """
    code = error.error_code or ""
    if code[:2] != "08" or code in _CERTAIN:
        return error
    return JMSException(f"{error} If it was on its way, it may have taken effect. {advice}", "08007")


def was_interrupted(error: BaseException) -> bool:
    """Tell whether `error` says that a statement was interrupted, on request or by a time limit."""
    return _sqlstate(_driver_error(error)) == "57014"


def lacks_privilege(error: BaseException) -> bool:
    """Tell whether `error` says that the role lacks a privilege, and no policy or function has refused more exactly."""
    origin = _driver_error(error)
    return _sqlstate(origin) == "42501" and _source_file(origin) == "aclchk.c"


def translate(error: BaseException, doing: str) -> JMSException:
    """Turn an error of the driver or of SQLAlchemy into the JMS exception for it; one that is, stays as it is."""
    if isinstance(error, JMSException):
        return error
    origin = _driver_error(error)
    code = _sqlstate(origin)
    text = str(origin).strip().splitlines()
    detail = text[0] if text else type(origin).__name__
    if code is None:
        return _from_driver(origin, detail, doing)
    if (found := _ADVICE_BY_FILE.get((code, _source_file(origin)))) is not None:
        kind, advice = found
        return kind(f"{doing}: {advice} ({detail}).", code)
    if code in _OWN:
        return _OWN[code](" ".join(filter(None, _message_and_hint(origin))), code)
    return from_sqlstate(code, detail, doing)


def _from_driver(origin: BaseException, detail: str, doing: str) -> JMSException:
    """Return the JMS exception for an error without an SQLSTATE, which a driver or the pool has raised."""
    if isinstance(origin, UnicodeError) and "idna" in detail:
        return _without_code(f"failed to resolve host: {detail}", doing)
    if isinstance(origin, UnicodeEncodeError):
        return JMSException(
            f"{doing}: the connection's client_encoding ({origin.encoding}) cannot hold the text; "
            "`set client_encoding = 'UTF8'`.",
            "22P05",
        )
    if _is_of_sqlalchemy(origin, "UnboundExecutionError"):
        return IllegalStateException(
            f"{doing}: the session has engines for its classes alone. Give jmsql the connection of one: "
            f'session.connection(bind_arguments={{"mapper": YOUR_CLASS}}) ({detail})'
        )
    if _is_of_sqlalchemy(origin, "TimeoutError") or _is_of_psycopg_pool(origin, "PoolTimeout", "TooManyRequests"):
        return ResourceAllocationException(f"{doing}: no connection of the pool became free in time.")
    if isinstance(origin, psycopg.OperationalError) or _has_several_results(origin):
        return _without_code(detail, doing)
    if _is_lost_by_asyncpg(origin):
        return JMSException(f"{doing}: the connection to PostgreSQL was lost ({detail}).", _CONNECTION_LOST)
    if isinstance(origin, TimeoutError):
        return JMSException(f"{doing}: PostgreSQL did not answer within the time limit of asyncpg.")
    if isinstance(origin, OSError):
        return _without_code(f"connection failed: {detail}", doing)
    return JMSException(f"{doing}: {detail}")


def _source_file(error: Any) -> str | None:
    """Return the file of PostgreSQL's source in which the server has raised an error."""
    if isinstance(error, psycopg.Error):
        return error.diag.source_file
    found: str | None = error.server_source_filename
    return found


def _message_and_hint(error: Any) -> tuple[str | None, str | None]:
    if isinstance(error, psycopg.Error):
        return error.diag.message_primary, error.diag.message_hint
    return error.message, error.hint


def from_sqlstate(code: str | None, detail: str, doing: str) -> JMSException:
    """Return the JMS exception for an error that the server, or libpq, has reported."""
    if code is None:
        return _without_code(detail, doing)
    if code == "23503" and _OF_CLIENT in detail:
        return ResourceAllocationException(
            f"{doing}: the client is being registered again, after a lost connection or a crash of the server; try "
            f"once more ({detail}).",
            code,
        )
    kind, advice = _ADVICE.get(code) or _ADVICE.get(code[:2]) or (JMSException, "PostgreSQL refused the statement")
    return kind(f"{doing}: {advice} ({detail}).", code)


_OF_CLIENT = "subscriber_connection_id_fkey"
"""The constraint that a subscriber's client is registered."""

_UNREACHABLE = ("connection failed", "connection to server", "connection timeout", "failed to resolve host")

_NO_CONNECTION_LEFT = ("too many clients", "too many connections", "remaining connection slots")
_NO_FILE_LEFT = ("Too many open files", f"[Errno {errno.EMFILE}]", f"[Errno {errno.ENFILE}]")

_NOT_ADMITTED = ("is not permitted to log in", "permission denied for database", "requires a valid client certificate")
_NOT_ENCRYPTED = ("does not support SSL", "certificate", "private key", "channel binding", " alert ")

_STANDBY = ("session is read-only", "server is in hot standby mode")
"""libpq's errors for a server that `target_session_attrs` excludes."""


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
    if any(words in detail for words in _NO_CONNECTION_LEFT):
        return ResourceAllocationException(f"{doing}: the server has no connection left ({detail}).", "53300")
    if "no more connections allowed" in detail:
        return ResourceAllocationException(
            f"{doing}: the pooler takes no more connections, the control connections among them. Raise its "
            f"max_client_conn, or give the clients a control_url that leads past it ({detail}).",
            "53300",
        )
    if any(words in detail for words in _NO_FILE_LEFT):
        return ResourceAllocationException(
            f"{doing}: the process has too many files and connections open. Raise its limit (`ulimit -n`), or close "
            f"connections ({detail}).",
            "53300",
        )
    if detail.startswith("connection is bad: invalid "):
        return JMSException(f"{doing}: libpq does not accept a parameter of the URL, or of the environment ({detail}).")
    if any(words in detail for words in _STANDBY):
        return ResourceAllocationException(
            f"{doing}: no server of the URL takes writes; has a standby been promoted? ({detail})", "08001"
        )
    if any(words in detail for words in _UNREACHABLE):
        return _not_connected(detail, doing)
    return JMSException(f"{doing}: the connection to PostgreSQL was lost ({detail}).", _CONNECTION_LOST)


def _not_connected(detail: str, doing: str) -> JMSException:
    """Judge a failure to connect: refused by the server that was reached, or before."""
    if any(words in detail for words in _NOT_ADMITTED):
        return JMSSecurityException(
            f"{doing}: PostgreSQL does not admit the user; the role needs LOGIN, CONNECT to the database, and the "
            f"certificate that pg_hba.conf asks for ({detail}).",
            "28000",
        )
    if "FATAL:" in detail:
        return ResourceAllocationException(
            f"{doing}: the server answers, and refuses the connection ({detail}).", "08001"
        )
    if any(words in detail for words in _NOT_ENCRYPTED):
        return ResourceAllocationException(
            f"{doing}: the connection cannot be encrypted as the URL or the environment asks; look at sslmode, "
            f"sslrootcert, sslcert, sslkey and channel_binding ({detail}).",
            "08001",
        )
    return ResourceAllocationException(
        f"{doing}: the server cannot be reached; is it running, and are host and port right? ({detail})", "08001"
    )


@contextmanager
def jms_errors(doing: str, *others: type[Exception]) -> Iterator[None]:
    """Raise the errors of the driver and of SQLAlchemy that pass through as JMS exceptions, linked to their cause."""
    try:
        yield
    except Exception as error:
        if is_driver_error(error) or isinstance(error, others):
            raise translate(error, doing) from error
        raise
