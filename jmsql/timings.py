"""The intervals and time-outs of a client, in one value."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from jmsql.public_names import set_module

__all__ = [
    "InternalTimings",
    "Timings",
    "check_seconds",
    "complete",
    "from_differences",
    "jitter",
    "require_margin",
    "require_order",
]

jitter = Random()  # noqa: S311 - no secret
"""Varies pauses. Not the random module's own generator, whose numbers the application may have seeded."""
os.register_at_fork(after_in_child=jitter.seed)  # else a server's processes would pause in step

_LONGEST = 365 * 86_400.0
"""Seconds. A longer wait is a mistake, and some systems cannot wait for longer."""

_SHORTEST = 0.001
"""Seconds: PostgreSQL counts milliseconds."""

_WHOLE_SECONDS = {"connect_timeout": 2, "keepalives_idle": 1, "keepalives_interval": 1}
"""Fields that libpq takes in whole seconds only, with the smallest value that it takes as it is."""

_MARGIN = 2.0
"""How many intervals there are at least in the time after which silence counts: one may be late, or be lost."""


@set_module("jmsql")
@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Timings:
    """The intervals and time-outs of a client that depend on where it runs; each is a number of seconds.

    The defaults suit production. Clients of one schema need not agree on any of them. `jmsql.testing` has much shorter
    ones for tests.

    Args:
        connect_timeout: How long connecting may take, for each address of the server. Whole seconds, at least 2.
        keepalives_idle: How long the other side of a connection is silent before it is asked whether it is there.
            Whole seconds. Three questions are asked; client and server both ask.
        keepalives_interval: The time between two such questions. Whole seconds.
        tcp_user_timeout: How long the other side may leave data unacknowledged until the connection counts as lost.
        maximum_reconnect_delay: The longest pause between two attempts to connect again. The first pause is a tenth of
            a second; each is twice as long as the one before.
        heartbeat_timeout: The silence after which the others take a client behind a pooler for dead: from 2 to 15. It
            shows five times as often that it is alive. Every client hands out messages that it has prefetched only
            within four fifths of this time after it last heard from the server.
        minimum_poll_interval: The pause before a consumer that waits looks at its queue again; twice as long each time.
        maximum_poll_interval: The longest such pause. After it, the client looks for all of its consumers with one
            statement each five seconds; behind a pooler each consumer goes on.
        idle_connection_timeout: For how long after sessions have last needed so many connections at once they stay
            open, or twice as long; they close when a session next returns one.
        acknowledgement_delay: The longest time until a DUPS_OK session acknowledges the messages that it has delivered.
        prefetch_duration: A consumer fetches ahead no more messages than it handles in this time.
        notification_interval: The time between two notifications of a client; with `enlist`, between two of one
            destination by a process, after the first twenty. Notifications make commits wait for each other.

    Raises:
        TypeError: A value is not a number.
        ValueError: A value is out of its bounds, or contradicts another.
    """

    connect_timeout: int = 10
    keepalives_idle: int = 10
    keepalives_interval: int = 5
    tcp_user_timeout: float = 20.0
    maximum_reconnect_delay: float = 5.0
    heartbeat_timeout: float = 15.0
    minimum_poll_interval: float = 0.05
    maximum_poll_interval: float = 1.0
    idle_connection_timeout: float = 2.0
    acknowledgement_delay: float = 5.0
    prefetch_duration: float = 0.25
    notification_interval: float = 0.01

    def __post_init__(self) -> None:
        for name in _defaults(type(self)):
            _check(name, getattr(self, name))
        _require_at_most(self, "heartbeat_timeout", 15.0)
        require_order(self, "minimum_poll_interval", "maximum_poll_interval")
        # Else the interval of the maintenance counts.
        if type(self) is Timings and self.heartbeat_timeout < _LEAST_HEARTBEAT_TIMEOUT:
            raise ValueError(
                f"heartbeat_timeout is at least {_LEAST_HEARTBEAT_TIMEOUT:g} s, not {self.heartbeat_timeout:g} s: "
                "one late heartbeat would count as the end of the client."
            )

    @property
    def liveness_duration(self) -> float:
        """For how long after it has heard from the server a client is sure that no other client takes it for dead."""
        return 0.8 * self.heartbeat_timeout

    def differences(self) -> dict[str, float]:
        """Return the values that differ from the defaults, by name."""
        defaults = _defaults(type(self))
        return {name: value for name, default in defaults.items() if (value := getattr(self, name)) != default}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.differences().items())})"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class InternalTimings(Timings):
    """All intervals and time-outs of a client: those that users set, and those that only tests have a reason to change.

    The intervals of the maintenance, which one client does for all, can be shortened and not lengthened, since the
    other clients rely on them.
    """

    minimum_reconnect_delay: float = 0.1
    """The pause before the first attempt to connect again, once the connection is lost."""

    heartbeat_interval: float = 3.0
    """How often a client behind a pooler shows that it is alive."""

    slot_interval: float = 2.0
    """How often a client shows that it lives whose handlers hold slots of a limit over all workers."""
    slot_duration: float = 10.0
    """Silence after which, and after one second more, the slots of its handlers are given to others."""

    maintenance_interval: float = 1.0
    """How often a client does the maintenance, or asks whether it is to do it. The thread of the control connection
    wakes at least that often, and then does its other due work."""
    lease_duration: float = 5.0
    """How long a client may do the maintenance without renewing its lease, after which another takes over."""
    maintenance_retry_delay: float = 5.0
    """The pause after a step of the maintenance, or a notification, that has failed."""
    lock_timeout: float = 4.0
    """How long a statement of the control connection waits for a lock, or one beside an open transaction of a session;
    less than `lease_duration`."""
    idle_in_transaction_timeout: float = 4.0
    """The time after which the server ends a transaction of the control connection whose client is frozen; less than
    `lease_duration`."""
    orphan_interval: float = 60.0
    """How often the maintenance looks for delivery states without a message."""
    result_removal_interval: float = 10.0
    """How often it removes results whose time is over."""
    rate_interval: float = 60.0
    """How often it notes the rates of destinations."""
    table_check_interval: float = 10.0
    """How often it checks the page counts of the tables."""
    history_maintenance_interval: float = 60.0
    """How often it makes and removes partitions of the history."""
    history_lock_timeout: float = 0.1
    """How long it waits for a lock on the history."""
    prune_lock_timeout: float = 60.0
    """How long `History.prune` waits for a lock on the history."""
    delayed_message_interval: float = 1.0
    """How often the maintenance looks for delayed messages that are due and of which no notification has told."""
    locked_message_interval: float = 0.1
    """The pause before it tries again to move messages that are due and locked."""

    schedule_interval: float = 60.0
    """How often a client that has or had a consumer, or does the maintenance, looks for schedules where none is due
    sooner."""

    listening_duration: float = 1.0
    """For how long a client that has just connected listens, before it ceases to if it receives nothing."""
    shared_poll_interval: float = 5.0
    """How often a client looks at all queues for which its consumers wait, with one statement, once their own pauses
    are at their longest. Behind a pooler they go on looking for themselves."""
    missed_message_interval: float = 1.0
    """How often the maintenance looks at all queues with consumers for messages that were not notified, and notifies
    the clients."""
    sweep_interval: float = 1.0
    """How often a busy consumer looks at its queue from the front."""
    start_reminder_delay: float = 5.0
    """The time after which the log says that a consumer waits for a connection that was never started."""

    listener_patience: float = 10.0
    """How long a call from another thread waits for a session's listener that runs."""

    statistics_interval: float = 1.0
    """How often a client writes its counters to the database."""
    clock_interval: float = 10.0
    """How often a client asks for the server's time, by which messages expire."""
    clock_tolerance: float = 1.0
    """By how much a client's own clock may differ from the server's before it goes by the server's."""
    history_refresh_interval: float = 1.0
    """How often a client looks up which queues keep history."""
    policy_refresh_interval: float = 5.0
    """How long a client relies on the redelivery policy of a queue that it has looked up."""

    def __post_init__(self) -> None:
        Timings.__post_init__(self)
        for name, most in _FOR_ALL.items():
            _require_at_most(self, name, most)
        require_order(self, "minimum_reconnect_delay", "maximum_reconnect_delay")
        for duration, interval in _MARGINS:
            require_margin(self, duration, interval, "one delay would make the client lose its place")
        for name in ("lock_timeout", "idle_in_transaction_timeout"):
            value: float = getattr(self, name)
            if value >= self.lease_duration:
                raise ValueError(
                    f"{name}, {value:g} s, is not less than lease_duration, {self.lease_duration:g} s: the client "
                    f"would lose its lease while it waits. Lower {name} too."
                )

    @property
    def lease_certainty(self) -> float:
        """For how long after it was renewed a lease is certain to hold, however long the answer took."""
        return 0.4 * self.lease_duration


_FOR_ALL = {
    "slot_duration": 10.0,
    "maintenance_interval": 1.0,
    "lease_duration": 5.0,
    "delayed_message_interval": 1.0,
    "locked_message_interval": 0.1,
    "missed_message_interval": 1.0,
    "orphan_interval": 60.0,
    "result_removal_interval": 10.0,
    "rate_interval": 60.0,
    "table_check_interval": 10.0,
    "history_maintenance_interval": 60.0,
    "history_lock_timeout": 0.1,
}
"""Fields that other clients count on, with their largest values."""

_MARGINS = (
    ("heartbeat_timeout", "heartbeat_interval"),
    ("heartbeat_timeout", "maintenance_interval"),
    ("lease_duration", "maintenance_interval"),
    ("slot_duration", "slot_interval"),
)

_LEAST_HEARTBEAT_TIMEOUT = 2.0
"""Seconds: for two rounds of the maintenance."""


@lru_cache(maxsize=64)
def complete(timings: Timings) -> InternalTimings:
    """Return all timings of a client, given those that its user has set."""
    if isinstance(timings, InternalTimings):
        return timings
    values: dict[str, Any] = {name: getattr(timings, name) for name in _defaults(Timings)}
    return InternalTimings(
        **values,
        minimum_reconnect_delay=min(0.1, timings.maximum_reconnect_delay),
        heartbeat_interval=timings.heartbeat_timeout / 5,
    )


def from_differences(differences: Mapping[str, Any]) -> Timings:
    """Return the timings that `Timings.differences` has described.

    Raises:
        TypeError: A value is not a number.
        ValueError: There is no such field, or a value is out of its bounds.
    """
    unknown = differences.keys() - _defaults(InternalTimings).keys()
    if unknown:
        raise ValueError(f"Timings have no {', '.join(sorted(unknown))}.")
    kind = Timings if differences.keys() <= _defaults(Timings).keys() else InternalTimings
    return kind(**differences)


def _defaults(kind: type[Timings]) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(kind)}


def _check(name: str, value: object) -> None:
    check_seconds(name, value)
    least = _WHOLE_SECONDS.get(name)
    if least is not None and (not isinstance(value, int) or value < least):
        raise ValueError(f"{name} is a whole number of seconds, at least {least}, not {value!r}.")


def _require_at_most(timings: Timings, name: str, most: float) -> None:
    value: float = getattr(timings, name)
    if value > most:
        raise ValueError(
            f"{name} is at most {most:g} s, not {value:g} s: the other clients of the schema count on that."
        )


def check_seconds(name: str, value: object) -> None:
    """Check that an interval or a time-out is one that servers and threads can wait for.

    Raises:
        TypeError: It is not a number.
        ValueError: It is less than a millisecond, or more than a year.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {value!r}.")
    if not _SHORTEST <= value <= _LONGEST:
        raise ValueError(f"{name} is a number of seconds from {_SHORTEST} to {_LONGEST:.0f} (a year), not {value!r}.")


def require_order(timings: object, least: str, most: str) -> None:
    """Check that the field `least` is not more than the field `most`.

    Raises:
        ValueError: It is more.
    """
    low, high = getattr(timings, least), getattr(timings, most)
    if low > high:
        raise ValueError(f"{least}, {low:g} s, is more than {most}, {high:g} s; raise {most} too.")


def require_margin(timings: object, duration: str, interval: str, consequence: str) -> None:
    """Check that an interval fits several times into the time after which silence counts.

    Raises:
        ValueError: One delay may be taken for silence.
    """
    longest, step = getattr(timings, duration), getattr(timings, interval)
    if longest < _MARGIN * step:
        raise ValueError(
            f"{duration}, {longest:g} s, is less than {_MARGIN:g} times {interval}, {step:g} s: {consequence}. "
            f"Raise {duration} or lower {interval}."
        )
