"""How the other clients know that a client lives: by a lock that its connection holds, or by its heartbeats."""

from __future__ import annotations

import math
import os
import socket
from typing import Protocol

from jmsql.store.statement import Query, SqlFile, row_count, value
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic
from jmsql.values.duration import as_setting

_sql = SqlFile("control")
_connect = _sql.statement("connect", "connecting", value(int))
_connect_with_heartbeat = _sql.statement("connect_with_heartbeat", "connecting", value(int))
_beat = _sql.statement("beat", "sending a heartbeat", row_count)
_is_connected = _sql.statement("is_connected", "receiving", value(bool))


class ClientForgottenError(Exception):
    """The other clients took this one for dead, and have its claims."""


class Liveness(Protocol):
    """Makes a client known to the others on its control connection, and keeps it so."""

    certain_until: float
    """Until when, on the monotonic clock, the client is sure not to be taken for dead. Later it has to ask: the process
    may have been suspended."""

    def register(self, runner: Runner, former_id: int) -> int:
        """Make the client known, and return its number.

        Args:
            runner: The control connection, in autocommit mode.
            former_id: The number that it had on a connection before this; 0: none.
        """

    def run(self, runner: Runner) -> None:
        """Do the work that is due.

        Raises:
            ClientForgottenError: It was too late.
        """

    def seconds_to_next(self) -> float:
        """Return how many seconds there are until something is due."""


class AdvisoryLock:
    """A lock that the server drops with the connection. It asks for a server process of the client's own.

    Its key cannot be guessed, and it counts only for that process: no other client can take it before, or hold it
    after.

    Args:
        timings: How long it is sure to live, and how long its statements and transactions may take.
    """

    def __init__(self, timings: InternalTimings) -> None:
        self._timings = timings
        self.certain_until = 0.0

    def register(self, runner: Runner, former_id: int) -> int:  # noqa: ARG002 - the former went with its connection
        connection_id = runner.run(
            _connect.bind(
                _this_process(),
                lock_timeout=as_setting(self._timings.lock_timeout),
                idle_in_transaction_timeout=as_setting(self._timings.idle_in_transaction_timeout),
            )
        )
        self.certain_until = monotonic() + self._timings.liveness_duration
        return connection_id

    def run(self, runner: Runner) -> None:  # noqa: ARG002 - the lock lasts as long as the connection
        self.certain_until = monotonic() + self._timings.liveness_duration

    def seconds_to_next(self) -> float:
        return math.inf


class Heartbeats:
    """The time of the last heartbeat, in a row of the client's. It leaves nothing behind on the connection.

    A client that connects again before it is missed is the same as before.

    Args:
        timings: How often it shows that it lives, and how long it is sure to live.
    """

    def __init__(self, timings: InternalTimings) -> None:
        self._timings = timings
        self._connection_id = 0
        self._next = 0.0
        self.certain_until = 0.0

    def register(self, runner: Runner, former_id: int) -> int:
        self._connection_id = former_id
        if not (former_id and self._beat(runner)):
            now = monotonic()
            timeout = as_setting(self._timings.heartbeat_timeout)
            self._connection_id = runner.run(_connect_with_heartbeat.bind(_this_process(), timeout=timeout))
            self._next = now + self._timings.heartbeat_interval
            self.certain_until = now + self._timings.liveness_duration
        return self._connection_id

    def run(self, runner: Runner) -> None:
        if monotonic() >= self._next and not self._beat(runner):
            raise ClientForgottenError("it was silent for too long, and what it had is given to others")

    def seconds_to_next(self) -> float:
        return max(0.0, self._next - monotonic())

    def _beat(self, runner: Runner) -> bool:
        """Send a heartbeat; return False if it is too late."""
        now = monotonic()
        self._next = now + self._timings.heartbeat_interval
        lives = bool(runner.run(_beat.bind(connection_id=self._connection_id)))
        if lives:
            self.certain_until = now + self._timings.liveness_duration
        return lives


def _this_process() -> dict[str, object]:
    return {"host": socket.gethostname(), "process_id": os.getpid()}


def is_connected(connection_id: int) -> Query[bool]:
    """Return whether other clients take a client for alive, and leave it its claims."""
    return _is_connected.bind(connection_id=connection_id)
