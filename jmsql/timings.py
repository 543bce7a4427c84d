"""The intervals and time-outs of a client, in one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Self

from jmsql.public_names import set_module

__all__ = ["Timings", "check_seconds", "jitter", "require_margin", "require_order"]

jitter = Random()  # noqa: S311 - no secret
"""Varies pauses. Not the random module's own generator, whose numbers the application may have seeded."""

_LONGEST = 365 * 86_400.0
"""Seconds. A longer wait is a mistake, and some systems cannot wait for longer."""

_SHORTEST = 0.001
"""Seconds: PostgreSQL counts milliseconds."""

_WHOLE_SECONDS = {"connect_timeout": 2, "keepalives_idle": 1, "keepalives_interval": 1}
"""What libpq takes in whole seconds only, and the least of each that it takes as it is."""

_FOR_ALL = (
    "heartbeat_timeout",
    "maintenance_interval",
    "lease_duration",
    "delayed_message_interval",
    "locked_message_interval",
    "missed_message_interval",
    "orphan_interval",
    "table_check_interval",
    "history_maintenance_interval",
    "history_lock_timeout",
)
"""What others count on: the client that does the maintenance does it for all."""

_RANGES = (
    ("minimum_poll_interval", "maximum_poll_interval"),
    ("minimum_reconnect_delay", "maximum_reconnect_delay"),
)

_MARGINS = (
    ("heartbeat_timeout", "heartbeat_interval"),
    ("heartbeat_timeout", "maintenance_interval"),
    ("lease_duration", "maintenance_interval"),
)

_MARGIN = 2.0
"""How many intervals there are at least in the time after which silence counts: one may be late, or be lost."""


@set_module("jmsql")
@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Timings:
    """The intervals and time-outs of a client; each is a number of seconds.

    The defaults suit production. Shorter intervals notice sooner what nobody tells of, and cost the server more; tests
    use much shorter ones (`jmsql.testing`). Clients of one schema need not agree on any of them. What the client that
    does the maintenance does for all can be done more often than by default, and not less often, since the others
    count on it.

    Args:
        connect_timeout: How long connecting may take, for each address of the server. Whole seconds, at least 2.
        connect_retry_delay: After a connection attempt that took longer than this, others fail at once with the same
            error for as long, so that sessions do not wait for an unreachable server one after the other.
        keepalives_idle: How long the other side of a connection is silent before it is asked whether it is there.
            Whole seconds. Three questions are asked; client and server both ask.
        keepalives_interval: The time between two such questions. Whole seconds.
        tcp_user_timeout: After what time the other side is given up if it does not acknowledge what was sent.
        minimum_reconnect_delay: The pause before the first attempt to connect again, once the connection is lost.
        maximum_reconnect_delay: The longest pause between two attempts; each is twice as long as the one before.
        heartbeat_interval: How often a client behind a pooler shows that it is alive.
        heartbeat_timeout: The silence after which the others take a client behind a pooler for dead: at least twice
            `heartbeat_interval` and `maintenance_interval`, and at most 15. Every client hands out messages that it has
            prefetched only within four fifths of this time after it last heard from the server.
        maintenance_interval: How often a client does the maintenance, or asks whether it is to do it. At most 1.
        lease_duration: How long a client may do the maintenance without renewing its lease, after which another takes
            over: at least twice `maintenance_interval`, and at most 5.
        maintenance_retry_delay: The pause after a step of the maintenance, or a notification, that has failed: the disk
            is full, or a lock is held for too long.
        lock_timeout: How long a statement of the control connection waits for a lock; less than `lease_duration`.
        idle_in_transaction_timeout: After what time the server ends a transaction of the control connection whose
            client is frozen; less than `lease_duration`.
        orphan_interval: How often the maintenance looks for delivery states without a message. At most 60.
        table_check_interval: How often the maintenance checks the page counts of the tables. At most 10.
        history_maintenance_interval: How often the maintenance makes and removes partitions of the history. At most 60.
        history_lock_timeout: How long it waits for a lock on the history. At most 0.1.
        prune_lock_timeout: How long `History.prune` waits for a lock on the history.
        delayed_message_interval: How often the maintenance looks for delayed messages that are due, when nobody tells
            of them. At most 1.
        locked_message_interval: The pause before it tries again to move messages that are due and locked. At most 0.1.
        minimum_poll_interval: The pause before a consumer that waits looks at its queue again; twice as long each time.
        maximum_poll_interval: The longest such pause.
        shared_poll_interval: How often a client looks at all queues for which its consumers wait, with one statement,
            once their own pauses are at their longest. Behind a pooler they go on looking for themselves.
        missed_message_interval: How often the maintenance looks at all queues with consumers for messages of which
            nobody has told, and tells the clients. At most 1.
        sweep_interval: How often a busy consumer looks at its queue from the front.
        idle_connection_timeout: For how long after sessions have last needed so many connections at once they stay
            open; at most twice as long.
        acknowledgement_delay: At the latest after this time a DUPS_OK session acknowledges what it has delivered.
        prefetch_duration: A consumer fetches ahead no more messages than it handles in this time.
        start_reminder_delay: After what time the log says that a consumer waits for a connection that was never
            started.
        notification_interval: The time between two notifications of a client. Each takes a lock that all notifications
            of the server share.
        enlisted_notification_interval: The time between two notifications of one destination by messages that a process
            sends in transactions of the application (`enlist`), after the first twenty: notifications make commits wait
            for each other.
        statistics_interval: How often a client writes down what it has sent and received.
        clock_interval: How often a client asks for the server's time, by which messages expire.
        clock_tolerance: By how much a client's own clock may differ from the server's before it goes by the server's.
        history_refresh_interval: How often a client looks up which queues keep history.
        policy_refresh_interval: How often a client looks up the redelivery policy of a queue.

    Raises:
        TypeError: A value is not a number.
        ValueError: A value is out of its bounds, or contradicts another.
    """

    connect_timeout: int = 10
    connect_retry_delay: float = 1.0
    keepalives_idle: int = 10
    keepalives_interval: int = 5
    tcp_user_timeout: float = 20.0
    minimum_reconnect_delay: float = 0.1
    maximum_reconnect_delay: float = 5.0

    heartbeat_interval: float = 3.0
    heartbeat_timeout: float = 15.0

    maintenance_interval: float = 1.0
    lease_duration: float = 5.0
    maintenance_retry_delay: float = 5.0
    lock_timeout: float = 4.0
    idle_in_transaction_timeout: float = 4.0
    orphan_interval: float = 60.0
    table_check_interval: float = 10.0
    history_maintenance_interval: float = 60.0
    history_lock_timeout: float = 0.1
    prune_lock_timeout: float = 60.0
    delayed_message_interval: float = 1.0
    locked_message_interval: float = 0.1

    minimum_poll_interval: float = 0.05
    maximum_poll_interval: float = 1.0
    shared_poll_interval: float = 5.0
    missed_message_interval: float = 1.0
    sweep_interval: float = 1.0
    idle_connection_timeout: float = 2.0
    acknowledgement_delay: float = 5.0
    prefetch_duration: float = 0.25
    start_reminder_delay: float = 5.0

    notification_interval: float = 0.01
    enlisted_notification_interval: float = 0.01
    statistics_interval: float = 1.0
    clock_interval: float = 10.0
    clock_tolerance: float = 1.0
    history_refresh_interval: float = 1.0
    policy_refresh_interval: float = 5.0

    def __post_init__(self) -> None:
        defaults = _defaults()
        values: dict[str, float] = {name: getattr(self, name) for name in defaults}
        for name, value in values.items():
            _check(name, value)
        for name in _FOR_ALL:
            if values[name] > defaults[name]:
                raise ValueError(
                    f"{name} is at most {defaults[name]:g} s, not {values[name]:g} s: the other clients of the "
                    "schema count on that."
                )
        for least, most in _RANGES:
            require_order(values, least, most)
        for duration, interval in _MARGINS:
            require_margin(values, duration, interval, "one delay would make the client lose its place")
        for name in ("lock_timeout", "idle_in_transaction_timeout"):
            if values[name] >= self.lease_duration:
                raise ValueError(
                    f"{name}, {values[name]:g} s, is not less than lease_duration, {self.lease_duration:g} s: the "
                    f"client would lose its lease while it waits. Lower {name} too."
                )

    @property
    def liveness_duration(self) -> float:
        """For how long after it has heard from the server a client is sure that nobody takes it for dead."""
        return 0.8 * self.heartbeat_timeout

    @property
    def lease_certainty(self) -> float:
        """For how long after it was renewed a lease is certain to hold, however long the answer took."""
        return 0.4 * self.lease_duration

    def differences(self) -> dict[str, float]:
        """Return what differs from the defaults, by name."""
        return {name: value for name, default in _defaults().items() if (value := getattr(self, name)) != default}

    @classmethod
    def from_differences(cls, differences: Mapping[str, Any]) -> Self:
        """Return what `differences` has described.

        Raises:
            TypeError: A value is not a number.
            ValueError: There is no such field, or a value is out of its bounds.
        """
        unknown = differences.keys() - _defaults().keys()
        if unknown:
            raise ValueError(f"Timings have no {', '.join(sorted(unknown))}.")
        return cls(**differences)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.differences().items())})"


def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(Timings)}


def _check(name: str, value: object) -> None:
    check_seconds(name, value)
    least = _WHOLE_SECONDS.get(name)
    if least is not None and (not isinstance(value, int) or value < least):
        raise ValueError(f"{name} is a whole number of seconds, at least {least}, not {value!r}.")


def check_seconds(name: str, value: object) -> None:
    """Check that an interval or a time-out is one that servers and threads can wait for.

    Args:
        name: What it is called, for the message.
        value: Seconds.

    Raises:
        TypeError: It is not a number.
        ValueError: It is less than a millisecond, or more than a year.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, not {value!r}.")
    if not _SHORTEST <= value <= _LONGEST:
        raise ValueError(f"{name} is a number of seconds from {_SHORTEST} to {_LONGEST:.0f} (a year), not {value!r}.")


def require_order(values: Mapping[str, float], least: str, most: str) -> None:
    """Check that the least of something is not more than the most of it.

    Args:
        values: Seconds, by name.
        least: The name of the least.
        most: The name of the most.

    Raises:
        ValueError: It is more.
    """
    if values[least] > values[most]:
        raise ValueError(f"{least}, {values[least]:g} s, is more than {most}, {values[most]:g} s; raise {most} too.")


def require_margin(values: Mapping[str, float], duration: str, interval: str, consequence: str) -> None:
    """Check that what happens at intervals happens often enough in a time.

    Args:
        values: Seconds, by name.
        duration: The name of the time after which it counts that nothing has happened.
        interval: The name of the interval.
        consequence: What would come of it, for the message.

    Raises:
        ValueError: One delay may be taken for silence.
    """
    longest, step = values[duration], values[interval]
    if longest < _MARGIN * step:
        raise ValueError(
            f"{duration}, {longest:g} s, is less than {_MARGIN:g} times {interval}, {step:g} s: {consequence}. "
            f"Raise {duration} or lower {interval}."
        )
