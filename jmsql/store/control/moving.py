"""The move from a server that refuses writes to one that takes them."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg

from jmsql.exceptions import JMSException
from jmsql.store.connections.defaults import refuses_writes
from jmsql.values.clock import monotonic

if TYPE_CHECKING:
    from jmsql.store.connections.engine import Endpoint
    from jmsql.store.wire._sync.runner import Runner


class Moving:
    """Gives up a control connection whose transactions have become read-only, once a new connection takes writes.

    A former primary may be fenced off by its configuration alone, which ends no connection. The sessions connect to the
    new primary after their first refusal, and the client would listen and do the maintenance at the former one.

    A database that nothing can write to keeps the connection: with it the client would lose its claims.

    Args:
        endpoint: Where new connections lead.
        connection: The control connection, which leads through no pooler.
        interval: Seconds between two attempts.
    """

    def __init__(self, endpoint: Endpoint, connection: psycopg.Connection[Any], interval: float) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._interval = interval
        self._next_attempt = 0.0

    def run(self, control: Runner) -> None:  # noqa: ARG002 - it tries another connection
        """Try a new connection, if it is time to and this one refuses writes.

        Raises:
            psycopg.OperationalError: A new connection takes writes.
        """
        if not refuses_writes(self._connection) or monotonic() < self._next_attempt:
            return
        self._next_attempt = monotonic() + self._interval
        try:
            connection, _ = self._endpoint.connect()
        except JMSException:
            return
        with closing(connection):
            if refuses_writes(connection):
                return
        raise psycopg.OperationalError("the server has become read-only, and a new connection takes writes")

    def seconds_to_next(self) -> float:
        """Return infinity: the thread wakes often enough without it, each `maintenance_interval`."""
        return math.inf
