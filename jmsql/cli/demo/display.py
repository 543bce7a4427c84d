"""The demo's progress, on standard error: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from jmsql.cli.output import console, progress

__all__ = ["Display"]

_LINES = 4


class Display:
    """Shows how many messages were sent and handled. A context manager.

    Args:
        flights: How many there will be.
    """

    def __init__(self, flights: int) -> None:
        self._flights = flights
        self._console = console(error=True)
        self._progress = progress()
        self._sending = self._progress.add_task("Sent", total=flights)
        self._handling = self._progress.add_task("Handled", total=flights)
        self._lines_shown = 0

    def note(self, text: str) -> None:
        """Tell what happens."""
        self._progress.console.print(text)

    def update(self, sent: int, handled: int) -> None:
        """Show the numbers so far."""
        self._progress.update(self._sending, completed=sent)
        self._progress.update(self._handling, completed=handled)
        due = handled * _LINES // self._flights
        if due > self._lines_shown and not self._console.is_terminal:
            self._lines_shown = due
            self.note(f"Sent {sent:,}, handled {handled:,}.")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()
