"""What a worker's process tells its supervisor, as lines of JSON through a socket.

The socket is a lifeline as well: it ends with the supervisor, however that ends.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from typing import TypeAlias

__all__ = ["Progress", "Refusal", "Report", "ReportReader", "send_report"]

_READ_AT_ONCE = 65536


@dataclass(frozen=True)
class Progress:
    """It receives messages; this many it has handled, this many have failed, and with this many it is busy."""

    handled: int = 0
    failed: int = 0
    running: int = 0


@dataclass(frozen=True)
class Refusal:
    """It cannot begin: why, in a line, and the exit code that says so."""

    reason: str
    exit_code: int


Report: TypeAlias = Progress | Refusal

_KINDS: dict[str, type[Progress | Refusal]] = {"progress": Progress, "refusal": Refusal}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def send_report(channel: socket.socket, report: Report) -> None:
    """Tell the supervisor; if it is gone, nobody."""
    try:
        channel.sendall(json.dumps([_NAMES[type(report)], asdict(report)]).encode() + b"\n")
    except OSError:
        return  # the process sees the end of the lifeline, and ends too


class ReportReader:
    """Reads the reports of one process.

    Args:
        channel: The supervisor's end of the socket.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._unread = b""

    def read(self) -> list[Report] | None:
        """Return what has come; None if no more will."""
        try:
            chunk = self._channel.recv(_READ_AT_ONCE)
        except ConnectionError:
            return None
        if not chunk:
            return None
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        return [_KINDS[name](**fields) for name, fields in map(json.loads, lines)]
