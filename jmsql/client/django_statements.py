"""The sends in a transaction of Django, shown to its own instruments. Django itself is not imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from jmsql.client._sync.session.transactions.caller import PsycopgTransaction
from jmsql.exceptions import IllegalStateException
from jmsql.store.statement import Result
from jmsql.store.wire._sync.runner import Runner

_sends = re.compile(rb'(?:insert into|copy) "[^"]+"\.(?:delayed_)?message\b').search
"""Finds the statement of a send. Those beside it depend on what the process knows already, so tests could not count
them: the server's time, a queue's number, a notification."""


# Django counts, logs and wraps queries in its own cursors, and its tests assert their number (`assertNumQueries`). A
# send must appear there as one statement; the statements beside it depend on the process's memory, and would make such
# a test flaky. So the runner runs the send through Django's cursor, whose inner cursor is replaced by one that calls
# the runner.
#
# The driver's connection is not Django's cursor, so Django learns of no error by itself. It looks at `errors_occurred`
# at the end of a request: a broken connection that lives longer (`CONN_MAX_AGE`) would fail every later request. It
# looks at `needs_rollback` at the end of `atomic()`: PostgreSQL answers the COMMIT of a failed transaction with a
# rollback and no error, and Django would call the hooks of `on_commit`.


class DjangoTransaction(PsycopgTransaction):
    """A transaction on Django's connection.

    Args:
        django: Django's connection.
        connection: The connection of its driver.
    """

    def __init__(self, django: Any, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self._django = django

    def runner(self, schema: str) -> Runner:
        if self._django.connection is not self._connection:
            # A pool may have lent it to another request by now.
            raise IllegalStateException(
                "Django has closed the connection since the enlistment, or the caller is another thread: enlist "
                "django.db.connection again."
            )
        try:
            runner = super().runner(schema)
        except psycopg.Error as error:
            self._note_failure(error)
            raise
        runner.around = self._run
        return runner

    def _run(self, run: Callable[[], Result], statement: bytes, parameters: Mapping[str, Any] | None) -> Result:
        try:
            return self._observe_sends(run, statement, parameters)
        except psycopg.Error as error:
            self._note_failure(error)
            raise

    def _note_failure(self, error: psycopg.Error) -> None:
        """Tell Django of an error, as its own cursors and `Model.save` do."""
        django = self._django
        if not isinstance(error, psycopg.DataError | psycopg.IntegrityError):
            django.errors_occurred = True
        if django.in_atomic_block and self._connection.pgconn.transaction_status == TransactionStatus.INERROR:
            django.needs_rollback = True
            django.rollback_exc = error

    def _observe_sends(
        self, run: Callable[[], Result], statement: bytes, parameters: Mapping[str, Any] | None
    ) -> Result:
        """Run sends inside of Django's instruments: the log of queries, `execute_wrapper`, the debug toolbar."""
        if not self._is_observed or not _sends(statement):
            return run()
        with self._django.cursor() as cursor:
            unused, cursor.cursor = cursor.cursor, _Cursor(run, self._connection, statement, parameters)
            unused.close()
            try:
                cursor.execute(statement.decode(), parameters)
            except Exception:
                if cursor.cursor.error is not None:  # as the driver has raised it, and not Django's error of it
                    raise cursor.cursor.error from None
                raise
            result: Result = cursor.cursor.result
            return result

    @property
    def _is_observed(self) -> bool:
        """True if an instrument is in use. The debug toolbar has queries logged."""
        django = self._django
        # After an error, Django's cursors refuse all statements; PostgreSQL's own answer says more.
        is_broken = django.in_atomic_block and django.needs_rollback
        return not is_broken and bool(django.queries_logged or django.execute_wrappers)


class _Cursor:
    """The driver's cursor, as Django's wrappers use it for one statement."""

    def __init__(
        self,
        run: Callable[[], Result],
        connection: psycopg.Connection[Any],
        statement: bytes,
        parameters: Mapping[str, Any] | None,
    ) -> None:
        self._run = run
        self._connection = connection
        self._statement = statement
        self._parameters = parameters
        self.result = Result([], -1)
        self.error: Exception | None = None

    @property
    def rowcount(self) -> int:
        return self.result.row_count

    @property
    def _query(self) -> SimpleNamespace:
        """The statement with its values, where Django's `last_executed_query` looks for it."""
        if self._parameters is None:
            return SimpleNamespace(query=self._statement)
        text = psycopg.ClientCursor(self._connection).mogrify(self._statement, self._parameters)
        return SimpleNamespace(query=text.encode())

    def execute(self, *_: object) -> None:
        """Run the statement, with the runner's own parameters."""
        try:
            self.result = self._run()
        except Exception as error:
            self.error = error
            raise

    def close(self) -> None:
        """Do nothing: the runner's cursor has ended."""
