"""The reports of a worker's process to its supervisor, as lines of JSON through a socket.

The socket is a lifeline as well: it ends with the supervisor, however that ends.
"""

from __future__ import annotations

import json
import math
import socket
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from jmsql.concurrency.readiness import wait_until_ready
from jmsql.store.control.counters import Counts
from jmsql.values.clock import monotonic

# A report is the whole state so far, and no change since the last one: a process that is killed loses the numbers since
# its last one, and the supervisor adds up the last reports of ended processes.


DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds at which the histogram of the handler's calls is divided."""


class Outcome(StrEnum):
    """The outcomes of a handler's call."""

    handled = "handled"
    failed = "failed"
    postponed = "postponed"
    """The handler has raised `RetryAfter`."""
    interrupted = "interrupted"
    """The worker has ended before the handler."""
    cancelled = "cancelled"
    """An administrator has cancelled the message."""
    claim_lost = "claim_lost"
    """The message's claim was lost while the handler ran, so that the message is delivered again."""


@dataclass
class HandlerCounters:
    """The messages of a handler, by outcome; and how many of its calls, with their commits, took how long.

    `long_transactions` is how many held a transaction for longer than the worker is told to warn of. The watcher's
    thread writes that one, and a task the others as its calls end, all without a lock. A thread that is lost and comes
    back shares the object with its successor: calls that end at the same moment may count once.
    """

    handled: int = 0
    failed: int = 0
    postponed: int = 0
    interrupted: int = 0
    cancelled: int = 0
    claim_lost: int = 0
    long_transactions: int = 0
    seconds: float = 0.0
    calls: list[int] = field(default_factory=lambda: [0] * (len(DURATION_BOUNDS) + 1))

    def of(self, outcome: Outcome) -> int:
        """Return the number of calls with an outcome."""
        number: int = getattr(self, outcome)
        return number

    def ended(self, seconds: float, outcome: Outcome, messages: int = 1) -> None:
        """Note that a call has ended.

        Args:
            seconds: Its duration.
            outcome: Its outcome.
            messages: How many messages have that outcome: of a chunk that is handled again in parts, none has.
        """
        if outcome is Outcome.handled:  # which most are
            self.handled += messages
        else:
            setattr(self, outcome, self.of(outcome) + messages)
        self.seconds += seconds
        self.calls[bisect_left(DURATION_BOUNDS, seconds)] += 1

    def add(self, other: HandlerCounters) -> None:
        """Add up."""
        for outcome in Outcome:
            setattr(self, outcome, self.of(outcome) + other.of(outcome))
        self.long_transactions += other.long_transactions
        self.seconds += other.seconds
        self.calls = [mine + theirs for mine, theirs in zip(self.calls, other.calls, strict=True)]


_READ_AT_ONCE = 65536


@dataclass(frozen=True)
class Progress:
    """It has begun to receive messages, and is busy with this many of them.

    Args:
        running: How many calls of handlers have not ended.
        longest_transaction: For how many seconds a handler holds a transaction by now, at the most.
        handler_counters: The counters of each listener, by name.
        destination_counters: The connection's sent and received messages, by destination, if the worker counts them.
        can_receive: Whether it receives messages; else the server is lost, or refuses them.
    """

    running: int = 0
    longest_transaction: float = 0.0
    handler_counters: Mapping[str, HandlerCounters] = field(default_factory=dict)
    destination_counters: Mapping[str, Counts] = field(default_factory=dict)
    can_receive: bool = True

    @classmethod
    def read(cls, document: dict[str, Any]) -> Progress:
        """Read a report from its document."""
        handler_counters = {
            name: HandlerCounters(**fields) for name, fields in document.pop("handler_counters").items()
        }
        destination_counters = {name: Counts(*counts) for name, counts in document.pop("destination_counters").items()}
        return cls(**document, handler_counters=handler_counters, destination_counters=destination_counters)


@dataclass(frozen=True)
class Refusal:
    """It cannot begin: why, in a line, the exit code that says so, and where the application has failed, if it has."""

    reason: str
    exit_code: int
    traceback: str | None = None

    @classmethod
    def read(cls, document: dict[str, Any]) -> Refusal:
        """Read a report from its document."""
        return cls(**document)


@dataclass(frozen=True)
class Listening:
    """It has these listeners, `Listener.facts` of each, and listens in a database."""

    listeners: list[dict[str, Any]]
    database: str

    @classmethod
    def read(cls, document: dict[str, Any]) -> Listening:
        """Read a report from its document."""
        return cls(**document)


class Limit(StrEnum):
    """The limits of a process."""

    messages = "messages"
    memory = "memory"


@dataclass(frozen=True)
class Retirement:
    """It has reached a limit: it receives no more messages, and ends once its handlers have returned.

    Args:
        limit: The limit.
        reason: The limit in words, after the name of the process.
        advice: Advice for a process that has not lived long; "": none.
    """

    limit: Limit
    reason: str
    advice: str = ""

    @classmethod
    def read(cls, document: dict[str, Any]) -> Retirement:
        """Read a report from its document."""
        return cls(**document | {"limit": Limit(document["limit"])})


Report: TypeAlias = Progress | Refusal | Listening | Retirement

_KINDS: dict[str, type[Report]] = {
    "progress": Progress,
    "refusal": Refusal,
    "listening": Listening,
    "retirement": Retirement,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class ReportWriter:
    """Sends the reports of one process to its supervisor, unless that is gone.

    Args:
        channel: The socket, which blocks.
        stop_signal: A socket that can be read once the process is told to stop.
        patience: For how many seconds a report waits after that for a supervisor that does not read.
    """

    def __init__(self, channel: socket.socket, stop_signal: socket.socket, patience: float) -> None:
        self._channel = channel
        self._stop_signal = stop_signal
        self._patience = patience
        # The rest of reports whose beginning was sent.
        self._unsent = b""

    def send(self, report: Report) -> None:
        """Send a report, and wait until the supervisor has room for it, while the process is not told to stop.

        The supervisor may have been stopped alone, and would hold up a process that has nothing else to do but to end.
        """
        self._unsent += _line(report)
        give_up_at = math.inf
        while not self._send_unsent() and monotonic() < give_up_at:
            if give_up_at < math.inf:
                wait_until_ready([], max(0.0, give_up_at - monotonic()), writable=[self._channel])
                continue
            if wait_until_ready([self._channel, self._stop_signal], None, writable=[self._channel]):
                give_up_at = monotonic() + self._patience

    def send_at_once(self, report: Report) -> None:
        """Send a report, or drop it if the supervisor does not read: the thread that sends ends overdue handlers."""
        if self._send_unsent():
            line = _line(report)
            self._unsent = line
            self._send_unsent()
            if self._unsent == line:
                self._unsent = b""

    def _send_unsent(self) -> bool:
        """Send as much as there is room for; return False if something is left."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._channel.send(self._unsent, socket.MSG_DONTWAIT) :]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = b""  # the process sees the end of the lifeline, and ends too
        return True


def _line(report: Report) -> bytes:
    return json.dumps([_NAMES[type(report)], asdict(report)]).encode() + b"\n"


def outcomes(handler_counters: Mapping[str, HandlerCounters]) -> dict[str, int]:
    """Return how many calls of all handlers have had each outcome."""
    return {outcome: sum(counters.of(outcome) for counters in handler_counters.values()) for outcome in Outcome}


class ReportReader:
    """Reads the reports of one process."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        # The beginning of a report whose end has not come: a socket gives pieces of any size.
        self._unread = b""

    def read(self) -> list[Report] | None:
        """Return the received reports; None at the end of the stream."""
        try:
            chunk = self._channel.recv(_READ_AT_ONCE)
        except ConnectionError:
            return None
        if not chunk:
            return None
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        return [_KINDS[name].read(fields) for name, fields in map(json.loads, lines)]
