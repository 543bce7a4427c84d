"""Limits of listeners that hold over all workers: how many messages start in a time, and are handled at a time."""

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from jmsql.public_names import set_module
from jmsql.values.duration import seconds

_MOST = 1_000_000
_SHORTEST = 0.001
_LONGEST = 366 * 86_400


@set_module("jmsql.worker")
@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many messages of a listener start within a time, over all workers: see [limits](/limits.md).

    Within any `per` seconds, no more than `count` start. They may start together: `Rate(1, per=0.2)` spreads five a
    second evenly, and `Rate(5, per=1.0)` does not.

    Args:
        count: The most messages, from 1 to 1,000,000.
        per: The time in seconds (or a `timedelta`), from a millisecond to a year.
        by: The property, or the header JMSType, JMSCorrelationID or JMSPriority, each of whose values has the rate;
            messages without it share one. None: the rate is one for all messages.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: A value is out of its bounds.
    """

    count: int
    per: float | timedelta = 1.0
    by: str | None = None

    def __post_init__(self) -> None:
        _check_count("Rate", self.count)
        per = seconds(self.per, "per")
        if not _SHORTEST <= per <= _LONGEST:
            raise ValueError(f"per is a time from {_SHORTEST} s to a year, not {self.per!r}.")
        object.__setattr__(self, "per", float(per))
        _check_by(self.by)

    def __str__(self) -> str:
        return f"{self.count} in {self.per:g} s{_by(self.by)}"


@set_module("jmsql.worker")
@dataclass(frozen=True, slots=True)
class AtMost:
    """At most so many messages of a listener are handled at a time, over all workers: see [limits](/limits.md).

    Args:
        count: The most messages, from 1 to 1,000,000.
        by: The property, or the header JMSType, JMSCorrelationID or JMSPriority, of each of whose values so many are
            handled at a time; messages without it share one. None: the limit is one for all messages.

    Raises:
        TypeError: A value is of the wrong type.
        ValueError: A value is out of its bounds.
    """

    count: int
    by: str | None = None

    def __post_init__(self) -> None:
        _check_count("AtMost", self.count)
        _check_by(self.by)

    def __str__(self) -> str:
        return f"{self.count}{_by(self.by)}"


class ListenerLimit(NamedTuple):
    """The limits of a listener.

    Args:
        rate: How many messages start in a time; None: any number.
        at_most: How many are handled at a time; None: any number.
    """

    rate: Rate | None
    at_most: AtMost | None


def _by(by: str | None) -> str:
    return "" if by is None else f" for each {by}"


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} takes a number of messages, not {count!r}.")
    if not 1 <= count <= _MOST:
        raise ValueError(f"{name} takes a number of messages from 1 to {_MOST:,}, not {count}.")


def _check_by(by: object) -> None:
    if by is None:
        return
    if not isinstance(by, str):
        raise TypeError(f"by is the name of a property or header, such as 'tenant', not {by!r}.")
    if not by or "\0" in by:
        raise ValueError("by is the name of a property or header, such as 'tenant', and not empty.")
