"""What the command prints: tables for people, JSON for programs, and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.status import Status
from rich.style import Style
from rich.table import Table

__all__ = ["age", "console", "counted", "json_text", "print_json", "progress", "table", "working", "write"]


_WIDTH_WITHOUT_TERMINAL = 240
_LONG = 500
"""Rows of a table that people rather search than read."""


def console(*, error: bool = False) -> Console:
    """Return a console on standard output, or on standard error. Where it is no terminal, lines may be long."""
    screen = Console(stderr=error, highlight=False)
    if not screen.is_terminal:
        screen.width = _WIDTH_WITHOUT_TERMINAL
    return screen


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


class _Listing(Table):
    """A table that is printed as plain lines once it is long, which takes a hundredth of the time.

    The lines of a long table are not folded.
    """

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*cells, **options)
        self._is_plain = getattr(self, "_is_plain", True) and all(
            cell is None or (isinstance(cell, str) and cell.isprintable()) for cell in cells
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.row_count < _LONG or not self._is_plain:
            yield from super().__rich_console__(console, options)
            return
        columns = [[str(cell or "") for cell in (column.header, *column.cells)] for column in self.columns]
        widths = [max(map(cell_len, column)) for column in columns]
        for number, cells in enumerate(zip(*columns, strict=True)):
            padded = (
                " " * (width - cell_len(cell)) + cell if column.justify == "right" else set_cell_size(cell, width)
                for cell, width, column in zip(cells, widths, self.columns, strict=True)
            )
            yield Segment("  ".join(padded).rstrip(), Style(bold=True) if number == 0 else None)
            yield Segment.line()


def table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """Make a table; the columns named in `numbers` are set flush right."""
    result = _Listing(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    right = set(numbers)
    for column in columns:
        result.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return result


def counted(number: int, noun: str) -> str:
    """Return a number and what it counts: ``1 message``, ``2,000 messages``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age(moment: datetime | None) -> str:
    """Return how long ago something was, in its largest unit: ``3 min``."""
    if moment is None:
        return ""
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds)} s"


def working(text: str) -> Status:
    """Make a sign on standard error that something takes its time, for as long as it does; silent on no terminal."""
    return console(error=True).status(text)


def progress(*, wanted: bool = True) -> Progress:
    """Make a progress display on standard error; it stays silent where that is no terminal, or if not wanted."""
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
