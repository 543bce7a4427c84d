"""The output of the command: tables for people, JSON for programs, and progress on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import typer

from jmsql.cli.advice import advice

# Rich is loaded where something is shown to people: JSON needs none of it, nor has a pipe anything that moves.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text

    from jmsql.cli.listing import Listing
    from jmsql.store.administration.inspection import SubscriptionSummary
    from jmsql.store.administration.overview import BoundedCount, DestinationOverview


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
    """Write a document as JSON: readable, and valid with any strings."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=_json_value)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
        text = json.dumps(document, indent=indent, default=_json_value)
    return text


def print_json(document: Any) -> None:
    """Print one JSON document."""
    write(json_text(document, indent=2).encode() + b"\n")


def answer(document: Any, text: str, *, as_json: bool) -> None:
    """Print a command's result: a document for programs, or a sentence for people."""
    if as_json:
        print_json(document)
    else:
        console().print(text, markup=False)


def print_advice(text: str) -> None:
    """Print a text with advice. If it has commands, no line is broken, so that they can be copied."""
    console().print(advice(text), markup=False, soft_wrap="`" in text)


class Row(Protocol):
    """A named tuple."""

    def _asdict(self) -> dict[str, Any]: ...


AnyRow = TypeVar("AnyRow", bound=Row)


def print_rows(
    rows: Sequence[AnyRow],
    cells: Callable[[AnyRow], Sequence[str | Text | None]],
    *columns: str,
    numbers: Sequence[str] = (),
    spare: Sequence[str] = (),
    nothing: str,
    as_json: bool,
) -> None:
    """Print a command's list: as JSON, or as a table."""
    if as_json:
        print_json([row._asdict() for row in rows])
    elif not rows:
        print_advice(nothing)
    else:
        listing = table(*columns, numbers=numbers, spare=spare)
        for row in rows:
            listing.add_row(*cells(row))
        print_table(listing)


def _json_value(value: object) -> str:
    if isinstance(value, date):  # or a datetime
        return value.isoformat()
    raise TypeError(f"{value!r} cannot be written as JSON.")


def in_lines(text: str) -> Text:
    """Return a cell for a table that keeps its lines."""
    from rich.text import Text

    from jmsql.cli.listing import printable

    return Text("\n".join(map(printable, text.splitlines())))


def table(*columns: str, numbers: Sequence[str] = (), cut: Sequence[str] = (), spare: Sequence[str] = ()) -> Listing:
    """Make a table: `numbers` are set flush right, `cut` may be cut off, `spare` are left out first in little room."""
    from jmsql.cli.listing import Listing

    return Listing(columns, numbers=numbers, cut=cut, spare=spare)


def without_guesses(rows: Sequence[SubscriptionSummary], numbers: Sequence[str]) -> list[SubscriptionSummary]:
    """Return rows with None for each number that the role may not know, which PostgreSQL tells as 0."""
    return [row if row.browsable else _without(row, numbers) for row in rows]


def _without(row: SubscriptionSummary, numbers: Sequence[str]) -> SubscriptionSummary:
    return type(row)._make(None if name in numbers else value for name, value in row._asdict().items())


def remark_unseen(*, sees_all: bool) -> None:
    """Say on standard error, if it is so, that the role does not see all messages."""
    if not sees_all:
        typer.echo("Messages that the role may not browse are not shown.", err=True)


def remark_more(found: int, limit: int, other: str = "") -> None:
    """Say on standard error, if more rows were found than are shown, that there are more."""
    if found > limit:
        typer.echo(f"There are more than {limit:,}: --limit shows more of them{other}.", err=True)


def shown_number(value: int | BoundedCount | None) -> str:
    """Return a number for people; a question mark for one that the role may not know."""
    return "?" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def remark(rows: Sequence[DestinationOverview | SubscriptionSummary]) -> None:
    """Add remarks to a table on standard error: delivery is paused, or the role may not browse."""
    if any(row.paused for row in rows):
        typer.echo(advice("Paused destinations deliver nothing; `jmsql resume` ends the pause."), err=True)
    if not all(row.browsable for row in rows):
        command = advice("`jmsql destination grant NAME ROLE --browse`")
        typer.echo(f"The role may not look where ? stands: {command} gives it access.", err=True)


def age(timestamp: datetime | None, now: Callable[[], datetime]) -> str:
    """Return how long ago something was, in its largest unit: ``3 min``. `now` tells the server's time."""
    if timestamp is None:
        return ""
    seconds = max(0.0, (now() - timestamp).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds)} s"


def working(text: str) -> AbstractContextManager[object]:
    """Make a sign on standard error that something takes its time, for as long as it does; silent on no terminal."""
    return console(error=True).status(text) if sys.stderr.isatty() else nullcontext()


def progress(*, with_numbers: bool = True) -> Progress:
    """Make a progress display on standard error, with how much is done of how much; it stays silent on no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    error = console(error=True)
    numbers: list[ProgressColumn] = [MofNCompleteColumn()] if with_numbers else []
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *numbers, TimeElapsedColumn()
    return Progress(*columns, console=error, transient=True, disable=not error.is_terminal)
