"""The administrator's connection for all tests of a process: to connect costs as much as to send and receive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from jmsql.testing.database import WATCHING


class AdministratorConnection:
    """A connection where each statement commits, lent to one test at a time.

    Prepared statements would outlive the tables of the test that has made them, so none are prepared.
    """

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None

    @contextmanager
    def lent(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """Lend the connection, which has no settings, locks and temporary tables of the tests before."""
        connection = self._usable()
        if connection is None:
            connection = psycopg.connect(url, autocommit=True, application_name=WATCHING, prepare_threshold=None)
            self._connection = connection
        try:
            yield connection
        finally:
            if connection.info.transaction_status is not TransactionStatus.IDLE:
                self.close()

    def close(self) -> None:
        """Close the connection; the next test gets another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _usable(self) -> psycopg.Connection[Any] | None:
        if self._connection is not None:
            try:
                self._connection.execute("discard all")
            except psycopg.OperationalError:  # a test has ended it, or the server
                self.close()
        return self._connection
