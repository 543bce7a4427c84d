"""What the command prints: tables for people, JSON for programs, and progress on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

# Rich is loaded where something is shown to people: JSON needs none of it, nor has a pipe anything that moves.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from jmsql.cli.terminal.listing import Listing

__all__ = [
    "age",
    "console",
    "counted",
    "json_text",
    "print_json",
    "print_table",
    "progress",
    "table",
    "working",
    "write",
]


_WIDTH_WITHOUT_TERMINAL = 65536


def console(*, error: bool = False) -> Console:
    """Return a console on standard output, or on standard error. Where it is no terminal, no line is broken."""
    from rich.console import Console

    screen = Console(stderr=error, highlight=False)
    if not screen.is_terminal:
        screen.width = _WIDTH_WITHOUT_TERMINAL
    return screen


def print_table(listing: Listing) -> None:
    """Print a table on standard output."""
    # With these variables rich takes any file for a terminal.
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE"):
        console().print(listing)
    else:
        sys.stdout.write(listing.plain())


def write(data: bytes) -> None:
    """Write to standard output as it is."""
    sys.stdout.buffer.write(data)


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Write a document as JSON: readable, and valid whatever strings it has."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_json_value)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        text = json.dumps(document, indent=indent, default=_json_value)
    return text


def print_json(document: Any) -> None:
    """Print one JSON document."""
    write(json_text(document, indent=2).encode() + b"\n")


def _json_value(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no form in JSON.")


def table(*columns: str, numbers: Sequence[str] = (), cut: Sequence[str] = (), spare: Sequence[str] = ()) -> Listing:
    """Make a table: `numbers` are set flush right, `cut` may be cut off, `spare` are left out first in little room."""
    from jmsql.cli.terminal.listing import Listing

    return Listing(columns, numbers=numbers, cut=cut, spare=spare)


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: ``1 message``, ``2,000 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age(timestamp: datetime | None) -> str:
    """Return how long ago something was, in its largest unit: ``3 min``."""
    if timestamp is None:
        return ""
    seconds = max(0.0, (datetime.now(UTC) - timestamp).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds)} s"


def working(text: str) -> AbstractContextManager[object]:
    """Make a sign on standard error that something takes its time, for as long as it does; silent on no terminal."""
    return console(error=True).status(text) if sys.stderr.isatty() else nullcontext()


def progress(*, wanted: bool = True) -> Progress:
    """Make a progress display on standard error; it stays silent where that is no terminal, or if not wanted."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    error = console(error=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=error,
        transient=True,
        disable=not wanted or not error.is_terminal,
    )
