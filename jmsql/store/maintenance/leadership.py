"""The lease of the client that does the maintenance for all, and renews the lease."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple, TypeVar

from jmsql.store.receiving.candidates import LAST_SEQUENCE, LOOK_UPS
from jmsql.store.statement import Result, SqlFile, array_literal, fill, record
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from jmsql.values.clock import monotonic
from jmsql.values.duration import as_setting

R = TypeVar("R", bound=Runner)


class Standing(NamedTuple):
    """The answer to a client's request for the lease.

    Args:
        leads: Whether it has the lease.
        seconds: For how long another client has it; None: none has.
        is_next: Whether it is one of those that ask often, so that one takes over soon.
        milliseconds: The server's time.
        queues_with_history: The queues that keep history.
        queues: The requested queues that have messages to receive.
    """

    leads: bool
    seconds: float | None
    is_next: bool
    milliseconds: int
    queues_with_history: Sequence[int]
    queues: Sequence[int] = ()


_sql = SqlFile("control")
HAS_MESSAGE = fill(_sql["has_message"], **LOOK_UPS, last_sequence=str(LAST_SEQUENCE))
"""The condition that a queue `q` has a message to receive."""
_lead = _sql.statement("lead", "taking the lease of the maintenance", record(lambda row: Standing(*row)))
_lead_and_look = _sql.statement(
    "lead_and_look",
    "looking for messages",
    record(lambda row: Standing(*row)),
    {"lead": _sql["lead"], "has_message": HAS_MESSAGE},
)


class LeadershipLostError(Exception):
    """Another client has the lease."""


class Lease:
    """A client's right to do the maintenance, for a few seconds at a time."""

    def __init__(self, connection_id: int, timings: InternalTimings) -> None:
        self._timings = timings
        self._connection_id = connection_id
        self._renewed_at = -math.inf
        self.standing: Standing | None = None
        """The answer to its last question."""

    @property
    def is_fresh(self) -> bool:
        """True if it was renewed lately, so that no other client has it."""
        return monotonic() - self._renewed_at <= self._timings.lease_certainty

    def renew(self, runner: Runner, queue_ids: Sequence[int] = ()) -> bool:
        """Take or renew the lease; return whether the client has it."""
        asked_at = monotonic()
        parameters = {"connection_id": self._connection_id, "duration": as_setting(self._timings.lease_duration)}
        if queue_ids:
            self.standing = runner.run(_lead_and_look.bind(parameters, queue_ids=array_literal(queue_ids)))
        else:
            self.standing = runner.run(_lead.bind(parameters))
        if self.standing.leads:
            self._renewed_at = asked_at
        return self.standing.leads


def while_leading(runner: R, lease: Lease) -> R:
    """Return a runner for the statements of the maintenance, each of which runs only while the client has the lease.

    Else it raises LeadershipLostError. A client that was frozen finds out before its next step that another has taken
    over. The statement at which it froze is executed late: each is right also while another client does the same.
    """

    def require_lease(run: Callable[[], Result], *_: object) -> Result:
        if runner.is_idle and not lease.is_fresh and not lease.renew(runner):
            raise LeadershipLostError
        return run()

    leading = copy(runner)
    leading.around = require_lease
    return leading
