"""Which client does the maintenance for all: the one that has the lease, and renews it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from psycopg.pq import TransactionStatus

from jmsql.store.driver import Driver, PsycopgDriver, Result
from jmsql.store.identifier import quote_identifier

__all__ = ["LeadershipLostError", "LeadingDriver", "Lease"]

_RENEWED_LATELY = 2.0
"""Seconds. Well within what the schema's function lease_duration() says."""


class LeadershipLostError(Exception):
    """Another client has the lease."""


class Lease:
    """A client's right to do the maintenance, for a few seconds at a time.

    Args:
        schema: The name of the schema.
        connection_id: The client's number.
    """

    def __init__(self, schema: str, connection_id: int) -> None:
        self._statement = f"select {quote_identifier(schema)}.lead(%(connection_id)s)"
        self._connection_id = connection_id
        self._renewed_at = -math.inf

    @property
    def is_fresh(self) -> bool:
        """Whether it was renewed lately, so that nobody else has it."""
        return time.monotonic() - self._renewed_at <= _RENEWED_LATELY

    def renew(self, driver: Driver) -> bool:
        """Take or renew the lease; return whether the client has it."""
        asked_at = time.monotonic()
        has_it = bool(driver.execute(self._statement, {"connection_id": self._connection_id}).rows[0][0])
        if has_it:
            self._renewed_at = asked_at
        return has_it


class LeadingDriver:
    """Runs the statements of the maintenance, each only while the client has the lease.

    A client that was frozen finds out before its next step that another has taken over. The statement at which it froze
    is executed late: each is right also while another client does the same.

    Args:
        driver: The control connection, in autocommit mode.
        lease: The client's.
    """

    def __init__(self, driver: PsycopgDriver, lease: Lease) -> None:
        self._driver = driver
        self._lease = lease

    def execute(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Run a statement.

        Raises:
            LeadershipLostError: The client does not have the lease any more.
        """
        is_between = self._driver.connection.info.transaction_status == TransactionStatus.IDLE
        if is_between and not self._lease.is_fresh and not self._lease.renew(self._driver):
            raise LeadershipLostError
        return self._driver.execute(statement, parameters)

    def sleep(self, seconds: float) -> None:
        """Let time pass; other threads go on."""
        self._driver.sleep(seconds)
