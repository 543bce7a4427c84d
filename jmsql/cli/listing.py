"""Tables that fit into a terminal without breaking words; without a terminal they take the width that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from rich.cells import cell_len

# The rest of rich is loaded for terminals alone.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text


T = TypeVar("T")

_GAP = 2
_LEAST_OF_CUT = 10
"""How many columns of the terminal a text keeps that may be cut."""
_LONGEST_WORD = 40
"""Words that are longer are broken: one very long name would else leave no room for all the others."""


class Listing:
    """A table that breaks no word, unless it is very long.

    In a terminal that is too narrow for it, texts wrap between words; else columns are left out; else each row becomes
    lines of names and values. Where there is no terminal it is as wide as it is, and no line ends in spaces.

    Args:
        columns: The names of the columns.
        numbers: Those that are set flush right.
        cut: Those whose texts may be cut off in a terminal.
        spare: Those that are left out first, in this order; those with nothing, or 0, in each row go before the others.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        numbers: Sequence[str] = (),
        cut: Sequence[str] = (),
        spare: Sequence[str] = (),
    ) -> None:
        self._names = list(columns)
        self._columns = list(range(len(columns)))
        self._numbers = {self._names.index(name) for name in numbers}
        self._cut = {self._names.index(name) for name in cut}
        self._spare = [self._names.index(name) for name in spare]
        self._rows: list[list[str | Text]] = []
        self._natural: list[int] = []

    def add_row(self, *cells: str | Text | None) -> None:
        """Add a row; a cell is a text as it is, without markup, on one line. A `Text` of rich keeps its lines."""
        texts = [printable(cell or "") if cell is None or isinstance(cell, str) else cell for cell in cells]
        self._rows.append(texts + [""] * (len(self._columns) - len(texts)))

    def plain(self) -> str:
        """Return the table as it is where there is no terminal, each line with its end."""
        self._natural = [max(map(_width, self._texts(column))) for column in self._columns]
        widths = dict(enumerate(self._natural))
        rows = [self._names, *([str(cell) for cell in row] for row in self._rows)]
        lines = (
            "".join(self._line(parts, self._columns, widths)).rstrip()
            for row in rows
            for parts in zip_longest(*(text.split("\n") for text in row), fillvalue="")
        )
        return "".join(f"{line}\n" for line in lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        if not console.is_terminal:
            yield Segment(self.plain())
            return
        self._natural = [max(map(_width, self._texts(column))) for column in self._columns]
        columns, left_out = list(self._columns), []
        widths = self._widths(columns, options.max_width)
        for column in self._expendable():
            if widths is not None:
                break
            columns.remove(column)
            left_out.append(self._names[column])
            widths = self._widths(columns, options.max_width)
        if widths is None:
            yield from self._records()
            return
        yield from self._lines(console, columns, widths)
        if left_out:
            yield Text(f"Left out in this width: {', '.join(left_out)}.", "dim")

    def _expendable(self) -> list[int]:
        """Return the columns that may be left out, in this order."""
        idle = [column for column in self._spare if all(str(row[column]) in {"", "0"} for row in self._rows)]
        return [*idle, *(column for column in self._spare if column not in idle)]

    def _texts(self, column: int) -> list[str]:
        return [self._names[column], *(str(row[column]) for row in self._rows)]

    def _least(self, column: int) -> int:
        if column in self._cut:
            return min(self._natural[column], _LEAST_OF_CUT)
        longest = max((cell_len(word) for text in self._texts(column) for word in text.split()), default=0)
        return min(longest, _LONGEST_WORD)

    def _widths(self, columns: list[int], available: int) -> dict[int, int] | None:
        """Return how wide each column is, None if they do not fit."""
        widths = {column: self._least(column) for column in columns}
        rest = available - sum(widths.values()) - _GAP * (len(columns) - 1)
        if rest < 0:
            return None
        wanting = sorted(columns, key=lambda column: self._natural[column] - widths[column])
        for number, column in enumerate(wanting):
            more = min(self._natural[column] - widths[column], rest // (len(wanting) - number))
            widths[column] += more
            rest -= more
        return widths

    def _lines(self, console: Console, columns: list[int], widths: dict[int, int]) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        header: list[str | Text] = [Text(name, "bold") for name in self._names]
        for row in (header, *self._rows):
            cells = [self._cell(console, row[column], column, widths) for column in columns]
            for parts in zip_longest(*cells, fillvalue=""):
                line = self._line(parts, columns, widths)
                if all(isinstance(part, str) for part in line):  # rich takes a hundred times as long over its texts
                    yield Segment("".join(map(str, line)).rstrip())
                    yield Segment.line()
                else:
                    text = Text.assemble(*line, no_wrap=True, overflow="ignore")
                    text.rstrip()
                    yield text

    def _line(self, parts: Sequence[T], columns: list[int], widths: dict[int, int]) -> list[T | str]:
        """Return the parts of a line, and the spaces between them."""
        line: list[T | str] = []
        for column, part in zip(columns, parts, strict=True):
            room = " " * max(0, widths[column] - _width(str(part)))
            line += [room, part, " " * _GAP] if column in self._numbers else [part, room + " " * _GAP]
        return line

    def _cell(
        self, console: Console, cell: str | Text, column: int, widths: dict[int, int]
    ) -> Sequence[str] | Sequence[str | Text]:
        """Return the lines of a cell."""
        from rich.text import Text

        width = widths[column]
        if self._natural[column] <= width:
            return list(cell.split("\n")) or [""]
        text = cell.copy() if isinstance(cell, Text) else Text(cell)
        if column in self._cut:
            text.truncate(width, overflow="ellipsis")
            return [text]
        lines = list(text.wrap(console, max(1, width), justify="left", overflow="fold"))
        for line in lines:
            line.rstrip()
        return lines or [""]

    def _records(self) -> Iterator[Text]:
        """Show each row as lines, as psql does on a narrow terminal."""
        from rich.text import Text

        width = max(map(cell_len, self._names))
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            for name, text in zip(self._names, row, strict=True):
                if str(text):
                    yield Text.assemble((name.ljust(width + _GAP), "bold"), text)


def printable(text: str) -> str:
    """Return a text without characters that would move the terminal's cursor or change its colors."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " if each.isspace() else "�" for each in text)


def _width(text: str) -> int:
    """Return how many columns of a terminal the longest line of a text takes."""
    return max(map(cell_len, text.split("\n")))
