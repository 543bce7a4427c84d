"""Which client does the maintenance for all: the one that has the lease, and renews it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from jmsql.duration import as_setting
from jmsql.store._sync.runner import Runner
from jmsql.store.statement import Result, SqlFile, value
from jmsql.timings import Timings

__all__ = ["LeadershipLostError", "Lease", "leading"]

_lead = SqlFile("control").statement("lead", "taking the lease of the maintenance", value(bool))


class LeadershipLostError(Exception):
    """Another client has the lease."""


class Lease:
    """A client's right to do the maintenance, for a few seconds at a time.

    Args:
        connection_id: The client's number.
        timings: For how long it has the lease.
    """

    def __init__(self, connection_id: int, timings: Timings) -> None:
        self._timings = timings
        self._connection_id = connection_id
        self._renewed_at = -math.inf

    @property
    def is_fresh(self) -> bool:
        """Whether it was renewed lately, so that nobody else has it."""
        return time.monotonic() - self._renewed_at <= self._timings.lease_certainty

    def renew(self, runner: Runner) -> bool:
        """Take or renew the lease; return whether the client has it."""
        asked_at = time.monotonic()
        has_it = runner.run(
            _lead.bind(connection_id=self._connection_id, duration=as_setting(self._timings.lease_duration))
        )
        if has_it:
            self._renewed_at = asked_at
        return has_it


class _LeadingRunner(Runner):
    """Runs the statements of the maintenance, each only while the client has the lease.

    A client that was frozen finds out before its next step that another has taken over. The statement at which it froze
    is executed late: each is right also while another client does the same.

    Args:
        runner: The control connection, in autocommit mode.
        lease: The client's.
    """

    __slots__ = ("_lease", "_runner")

    def __init__(self, runner: Runner, lease: Lease) -> None:
        super().__init__(runner.schema)
        self._runner = runner
        self._lease = lease

    @property
    def is_idle(self) -> bool:
        return self._runner.is_idle

    def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        if self._runner.is_idle and not self._lease.is_fresh and not self._lease.renew(self._runner):
            raise LeadershipLostError
        return self._runner.execute(statement, parameters)

    def sleep(self, seconds: float) -> None:
        self._runner.sleep(seconds)


def leading(runner: Runner, lease: Lease) -> Runner:
    """Return a runner that runs each statement only while the client has the lease, else raises LeadershipLostError."""
    return _LeadingRunner(runner, lease)
