"""The intervals and time-outs of a worker's processes, in one value."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from jmsql.public_names import set_module
from jmsql.timings import check_seconds, require_margin, require_order

# How the times at the end of a process follow each other, from the signal on: handlers have `drain_timeout` to finish.
# The process then interrupts them, for up to `cancel_timeout`, and gives up waiting for its groups at `drain_timeout`
# plus `rollback_timeout`. The supervisor kills it at `drain_timeout` plus `exit_timeout`, which is why
# `rollback_timeout` has to be less than `exit_timeout`.


@set_module("jmsql.worker")
@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerTimings:
    """The intervals and time-outs of a worker; each is a number of seconds.

    The connections' timings are in the `timings` of the application's factory.

    Args:
        minimum_restart_delay: The pause before another process takes the place of one that has died.
        maximum_restart_delay: The longest such pause, at least `minimum_restart_delay`; each is twice as long as the
            one before.
        stable_duration: A process that has run for so long starts with the shortest pause again.
        supervision_interval: How often the supervisor checks its processes, when nothing happens.
        report_interval: How often a process reports to the supervisor.
        silence_timeout: How long a process may report nothing before the worker counts as unhealthy: at least twice
            `report_interval` and `check_interval`.
        check_interval: How often a process checks its handlers, and whether to report.
        failure_pause: The pause of a thread or task after its handler has failed.
        reconnect_pause: The pause of a thread or task that can receive nothing, since the server is lost, for example.
        cancel_timeout: How long interrupting a handler, or a statement of its own, may take, at the deadline.
        rollback_timeout: How long a process may take to roll back, after the deadline; less than `exit_timeout`.
        exit_timeout: How long it may take to end, after the deadline, before it is killed.
        reload_interval: How often the files of the program are looked at, with ``--reload``.

    Raises:
        TypeError: A value is not a number.
        ValueError: A value is not from 0.001 to 31,536,000 (a year), or contradicts another.
    """

    minimum_restart_delay: float = 0.5
    maximum_restart_delay: float = 30.0
    stable_duration: float = 60.0
    supervision_interval: float = 0.2
    report_interval: float = 1.0
    silence_timeout: float = 30.0
    check_interval: float = 0.25
    failure_pause: float = 0.1
    reconnect_pause: float = 1.0
    cancel_timeout: float = 2.0
    rollback_timeout: float = 5.0
    exit_timeout: float = 10.0
    reload_interval: float = 0.5

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_seconds(field.name, getattr(self, field.name))
        require_order(self, "minimum_restart_delay", "maximum_restart_delay")
        for interval in ("report_interval", "check_interval"):
            require_margin(self, "silence_timeout", interval, "a process that is a little late would be unhealthy")
        if self.rollback_timeout >= self.exit_timeout:
            raise ValueError(
                f"rollback_timeout, {self.rollback_timeout:g} s, is not less than exit_timeout, "
                f"{self.exit_timeout:g} s: a process would be killed while it rolls back. Lower rollback_timeout."
            )
