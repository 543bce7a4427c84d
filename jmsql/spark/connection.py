"""Where the database is: named in the options, and found out by each process that connects.

Options of a data source are pickled, logged and shown in plans. So a password never stands in them: they name a
connection, and the driver and each worker look the name up for themselves.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import psycopg

from jmsql import JMSException, Timings
from jmsql.extension.connections import DatabaseUrl, connect, keepalive_parameters, parse_url, reader_settings
from jmsql.extension.statements import Query, from_sqlstate, jms_errors, translate

if TYPE_CHECKING:
    import pyarrow as pa
    from adbc_driver_manager import AdbcDatabase, AdbcStatement


CANCEL_AGAIN_AFTER = 0.1
"""Seconds; a statement is cancelled until it ends, since one that has not begun is not cancelled."""

BATCH_SIZE = 4 * 2**20
"""Bytes of a batch that is used while the next is read. With ADBC's 16 MiB, who uses them waits for the first, and is
waited for at the last: for a sixth of the time of 50 MiB."""

_LARGE_BATCH_SIZE = 16 * 2**20
"""Bytes of a batch where enough batches are read ahead that the reader does not wait."""

DEFAULT_VARIABLE = "JMSQL_URL"
"""The environment variable with the URL of the database that is used where no option names one."""

_VARIABLE_PREFIX = "JMSQL_CONNECTION_"
_SECRET_PARAMETERS = {"password", "sslpassword", "passfile", "oauth_client_secret"}
_NO_SERVICE = re.compile("definition of service .* not found|service file .* not found")


def _variable(name: str) -> str:
    return _VARIABLE_PREFIX + re.sub(r"\W", "_", name).upper()


def _parse(url: str, source: str) -> DatabaseUrl:
    try:
        return parse_url(url)
    except JMSException as error:
        raise JMSException(f"{source}: {error}") from None  # with nothing of a URL that may hold a password


def _application_name(doing: str) -> str:
    return f"jmsql-spark-{doing.replace(' ', '-')}"  # in a URL, libpq does not take a plus sign for a space


@dataclass(frozen=True, slots=True)
class DatabaseReference:
    """A database as the options of the data source name it, without any secret.

    Args:
        connection: The name of a connection: of a variable ``JMSQL_CONNECTION_<NAME>``, of a service in PostgreSQL's
            service file, or ``module:function`` of a function that returns the URL.
        url: Its URL without a password.
        query_timeout: Seconds after which the server cancels a statement; 0: never; None: as the role has it.
    """

    connection: str | None = None
    url: str | None = None
    query_timeout: float | None = None

    def __post_init__(self) -> None:
        if self.connection is not None and self.url is not None:
            raise JMSException("Give option 'connection' or option 'url', not both.")
        if self.url is not None:
            parsed = _parse(self.url, "Option 'url'")
            if parsed.password is not None or not _SECRET_PARAMETERS.isdisjoint(map(str.lower, parsed.query)):
                raise JMSException(
                    "Option 'url' holds a password, which Spark would write to its logs and plans. Leave it out: give "
                    "it in PostgreSQL's password file (PGPASSFILE) on each worker, or use option 'connection'."
                )

    def resolve(self) -> DatabaseUrl:
        """Find the URL, as this process sees it.

        Raises:
            JMSException: It is not to be found here; the message names the option.
        """
        if self.url is not None:
            return _parse(self.url, "Option 'url'")
        if self.connection is None:
            found = os.environ.get(DEFAULT_VARIABLE)
            if found is None:
                raise JMSException(
                    f"No database is named: set the environment variable {DEFAULT_VARIABLE} for the driver and the "
                    "executors, or give option 'connection' or option 'url'."
                )
            return _parse(found, f"The environment variable {DEFAULT_VARIABLE}")
        if ":" in self.connection:
            return _parse(self._call(*self.connection.split(":", 1)), f"Option 'connection', {self.connection}")
        variable = _variable(self.connection)
        found = os.environ.get(variable)
        if found is not None:
            return _parse(found, f"Option 'connection', the environment variable {variable}")
        return DatabaseUrl(query={"service": self.connection})

    def _call(self, module: str, function: str) -> str:
        try:
            url = getattr(import_module(module), function)()
        except Exception as error:  # noqa: BLE001 - it is the user's function
            # Its error may show the secret.
            raise JMSException(
                f"Option 'connection': {module}:{function} gave no URL; it raised {type(error).__name__}."
            ) from None
        if not isinstance(url, str):
            raise JMSException(f"Option 'connection': {module}:{function} returned a {type(url).__name__}, not a URL.")
        return url

    def libpq_url(self, application_name: str) -> str:
        """Return the URL for libpq, with its secrets, in UTF-8, and with time-outs where it has none."""
        # Arrow takes the bytes of all texts for UTF-8, whatever encoding a role, a URL or the environment asks for.
        url = self.resolve().with_parameters({"client_encoding": "UTF8"})
        limits = keepalive_parameters(url.query, Timings())
        url = url.with_parameters({name: str(value) for name, value in limits.items()})
        if "application_name" not in url.query:
            url = url.with_parameters({"application_name": application_name})
        return url.text()

    @property
    def _statement_limit(self) -> str | None:
        """The time limit of statements as a setting of PostgreSQL; None: as the role has it."""
        return None if self.query_timeout is None else f"statement_timeout = {round(self.query_timeout * 1000)}"

    def _limit_statements(self, connection: psycopg.Connection[Any]) -> None:
        """Set the time limit of statements: for the connection, or through a pooler for the transaction that begins.

        Not at the start of the connection, by its options, which poolers refuse.
        """
        limit = self._statement_limit
        if limit is None:
            return
        [(process_id,)] = connection.execute("select pg_catalog.pg_backend_pid()").fetchall()
        connection.rollback()
        if process_id == connection.info.backend_pid:
            connection.execute(f"set {limit}".encode())
            connection.commit()
        elif not connection.autocommit:
            connection.execute(f"set local {limit}".encode())

    def open(self, doing: str, *, autocommit: bool) -> psycopg.Connection[Any]:
        """Connect for control statements; errors, and the connection's name, tell the purpose."""
        url = self.libpq_url(_application_name(doing))
        try:
            connection = connect(url, autocommit=autocommit)
            try:
                self._limit_statements(connection)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            self._refuse_service(error)
            raise translate(error, doing) from error
        return connection

    @contextmanager
    def connect(self, doing: str, *, autocommit: bool = False) -> Iterator[psycopg.Connection[Any]]:
        """Connect for control statements: the block is one transaction, or with `autocommit` each of them is."""
        with jms_errors(doing), self.open(doing, autocommit=autocommit) as connection:
            yield connection

    @contextmanager
    def connect_arrow(self, doing: str) -> Iterator[ArrowConnection]:
        """Connect for reading rows as Arrow batches."""
        from adbc_driver_manager import Error

        try:
            database = _drivers.database(self.libpq_url(_application_name(doing)))
            with closing(ArrowConnection(database)) as connection:
                for statement in reader_settings(Timings()):
                    connection.execute(statement)
                if self._statement_limit is not None:
                    connection.execute(f"set local {self._statement_limit}")
                yield connection
        except Error as error:
            self._refuse_service(error)
            # The statement, which follows, is long.
            raise from_sqlstate(error.sqlstate, str(error).partition("\n\nQuery was:")[0], doing) from None

    def _refuse_service(self, error: Exception) -> None:
        if self.connection is not None and _NO_SERVICE.search(str(error)):
            raise JMSException(
                f"Option 'connection': {self.connection!r} is neither a variable {_variable(self.connection)}, nor a "
                "service of PostgreSQL's service file (PGSERVICEFILE)."
            ) from error


class _Drivers(threading.local):
    """A thread's ADBC drivers: ADBC reads the server's types for each, which takes ten times as long as connecting."""

    _last: tuple[str, AdbcDatabase] | None = None

    def database(self, url: str) -> AdbcDatabase:
        if self._last is None or self._last[0] != url:
            from adbc_driver_postgresql import connect as open_database

            self._last = url, open_database(url)
        return self._last[1]


class ArrowConnection:
    """A connection, in a transaction, that returns rows as Arrow batches.

    ADBC's module for the DB-API loads pandas: that takes a task longer than all else that it loads.
    """

    def __init__(self, database: AdbcDatabase) -> None:
        from adbc_driver_manager import AdbcConnection

        self._connection = AdbcConnection(database)
        self._connection.set_autocommit(False)
        self._statement: AdbcStatement | None = None
        self._rows: pa.RecordBatchReader | None = None

    def execute(self, statement: str, batch_size: int = BATCH_SIZE) -> pa.RecordBatchReader:
        """Run a statement and return its rows, in batches of so many bytes; earlier rows are gone."""
        from adbc_driver_manager import AdbcStatement
        from adbc_driver_postgresql import StatementOptions
        from pyarrow import RecordBatchReader  # `jmsql`, the command, loads this module, and goes without

        self._end_statement()
        self._statement = AdbcStatement(self._connection)
        self._statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: batch_size})
        self._statement.set_sql_query(statement)
        stream, _ = self._statement.execute_query()
        self._rows = RecordBatchReader.from_stream(stream)
        return self._rows

    def commit(self) -> None:
        """End the transaction, and begin another one."""
        self._end_statement()
        self._connection.commit()

    def cancel(self) -> None:
        """Cancel the connection's running statement, if any."""
        from adbc_driver_manager import Error

        with suppress(Error):  # it is closed already
            self._connection.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._end_statement()
        self._connection.close()

    def _end_statement(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None
        if self._statement is not None:
            self._statement.close()
            self._statement = None


_drivers = _Drivers()


@contextmanager
def default_database(url: str | None) -> Iterator[None]:
    """Name the database that is used where no option names one, here and in processes that are started meanwhile.

    None is the one that the environment names.
    """
    before = os.environ.get(DEFAULT_VARIABLE)
    if url is not None:
        os.environ[DEFAULT_VARIABLE] = url
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(DEFAULT_VARIABLE, None)
        else:
            os.environ[DEFAULT_VARIABLE] = before


def inlined(connection: psycopg.Connection[Any], schema: str, query: Query[Any]) -> str:
    """Return the SQL of a query with its values written into it, as a task runs it that reads rows as Arrow batches."""
    return psycopg.ClientCursor(connection).mogrify(query.statement.encoded(schema), query.parameters)


def execute_arrow(connection: ArrowConnection, statement: str) -> pa.RecordBatchReader:
    """Run a statement whose rows are read as Arrow batches, in a thread of its own; Ctrl-C cancels it."""
    lock, ended = threading.Lock(), threading.Event()
    has_begun = is_cancelled = False

    def execute() -> pa.RecordBatchReader:
        nonlocal has_begun
        with lock:
            if is_cancelled:
                raise CancelledError
            has_begun = True
        try:
            return connection.execute(statement, _LARGE_BATCH_SIZE)
        finally:
            ended.set()

    with ThreadPoolExecutor(1, "jmsql-reading") as thread:
        try:
            return thread.submit(execute).result()
        except BaseException:  # Ctrl-C may come before `submit` returns, when the statement runs already
            with lock:
                is_cancelled = True
            while has_begun and not ended.is_set():
                connection.cancel()  # which the server ignores if the statement has not reached it
                ended.wait(CANCEL_AGAIN_AFTER)
            raise


def read_ahead(
    connection: ArrowConnection, batches: Iterator[pa.RecordBatch], doing: str, count: int = 1
) -> Generator[pa.RecordBatch]:
    """Return batches, the next of which are read, in a thread, while one is used; ended early, cancel the statement.

    Raises:
        JMSException: The server or the connection to it failed meanwhile.
    """
    from pyarrow import ArrowException

    with ThreadPoolExecutor(1) as thread:
        try:
            coming = deque(thread.submit(next, batches, None) for _ in range(count))
            while (batch := coming.popleft().result()) is not None:
                coming.append(thread.submit(next, batches, None))
                yield batch
        except (OSError, ArrowException) as error:
            raise JMSException(f"PostgreSQL has failed while {doing}: {str(error).strip().splitlines()[0]}") from error
        except BaseException:
            connection.cancel()
            raise
