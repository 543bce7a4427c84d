"""A schedule as a program defines it, and as the database has it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from jmsql.messages.encoded_message import EncodedMessage
from jmsql.public_names import set_module
from jmsql.values.destinations import Queue, Topic
from jmsql.values.ticks import Cron, Every, Missed, Timing, read_timing

_LONGEST_NAME = 255


@set_module("jmsql.admin")
@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule that an application declares: see [`Application.schedule`][jmsql.worker.Application.schedule].

    Args:
        name: Its name, which no other schedule of the database has.
        timing: Its times.
        destination: Where its messages go.
        message: The message, as it is stored.
        missed: The ticks that are sent late.
        overlap: False leaves out a tick while the last message is in its queue.
        inverse_priority: 9 less the messages' priority.
        time_to_live: Milliseconds after which they expire; None: never.

    Raises:
        TypeError: A value is of another type.
        ValueError: The name is empty or too long, or a topic has `overlap=False`.
    """

    name: str
    timing: Timing
    destination: Queue | Topic
    message: EncodedMessage
    missed: Missed
    overlap: bool
    inverse_priority: int
    time_to_live: int | None

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.overlap, bool):
            raise TypeError(f"Expected overlap as True or False, got {self.overlap!r}.")
        if not self.overlap and isinstance(self.destination, Topic):
            raise ValueError(f"The schedule {self.name!r} goes to {self.destination}: overlap=False needs a queue.")


@set_module("jmsql.admin")
class ScheduleSummary(NamedTuple):
    """A row of the view ``schedules``; it has a cron expression, or an interval."""

    name: str
    cron: str | None
    every: timedelta | None
    time_zone: str
    destination: str
    missed: Missed
    overlap: bool
    paused: bool
    declared: bool
    """True if an application declares it in its code; False if an administrator has made it."""
    next_at: datetime | None
    """The next tick; None while it is paused."""
    last_at: datetime | None
    """The last tick that was sent, or the time at which its message was last sent by hand."""
    last_message_id: str | None
    sent: int
    missed_ticks: int
    overlapped_ticks: int
    last_error: str | None
    failed_at: datetime | None
    declared_at: datetime | None
    """The last time, to about five minutes, at which a worker declared it."""
    created_at: datetime

    @property
    def timing(self) -> Timing:
        """Its times."""
        return stored_timing(self.cron, self.every, self.time_zone)


def check_name(name: object) -> None:
    """Refuse a name that no schedule can have.

    Raises:
        TypeError: It is no string.
        ValueError: It is empty, too long, or has characters that PostgreSQL cannot store.
    """
    if not isinstance(name, str):
        raise TypeError(f"Expected the name of a schedule as a str, got {name!r}.")
    if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(f"The name of a schedule has 1 to {_LONGEST_NAME} printable characters, not {name[:300]!r}.")


def stored_timing(cron: str | None, every: timedelta | None, time_zone: str) -> Timing:
    """Return the times of a row.

    Raises:
        ValueError: They cannot be read here, as where the system has no such time zone.
    """
    return read_timing(every if cron is None else cron, time_zone)  # type: ignore[arg-type] # one of them is there


def times_of(timing: Timing) -> dict[str, object]:
    """Return the columns of a row that have its times."""
    if isinstance(timing, Cron):
        return {"cron": timing.text, "every": None, "time_zone": timing.time_zone}
    assert isinstance(timing, Every)
    return {"cron": None, "every": timing.interval, "time_zone": "UTC"}
