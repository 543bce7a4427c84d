"""The demonstration's progress, on standard error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from examples.flights.crew import Casualty
from examples.flights.report import counted, screen
from examples.flights.routing import DELAY_DESK, SUBSCRIPTIONS, Subscription
from examples.flights.run import Progress


def _bars(console: Console) -> Bars:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Bars(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def step(doing: str) -> Iterator[None]:
    """Show one step for the time of the block."""
    console = screen(error=True)
    console.print(doing)
    with _bars(console) as bars:
        bars.add_task(doing, total=None)
        yield


_LINES = 4


class Display(Progress):
    """Shows how many messages were sent, handled, and received by each subscription. A context manager."""

    def __init__(self, flights: int) -> None:
        self._flights = flights
        self._console = screen(error=True)
        self._progress = _bars(self._console)
        self._sending = self._progress.add_task("Sent", total=flights)
        self._tasks: dict[Subscription | None, TaskID] = {None: self._progress.add_task("Handled", total=flights)}
        for subscription in SUBSCRIPTIONS:
            # How many it will be, only the database knows, when all are stored.
            self._tasks[subscription] = self._progress.add_task(f"  {subscription.title}", total=None)
        self._lines_shown = 0

    def starting(self, workers: int) -> None:
        self._note(f"Starting {counted(workers, 'worker')}, a {DELAY_DESK}, and the subscriptions' workers ...")

    def publishing(self) -> None:
        self._note(f"Storing, sending and publishing {self._flights:,} flights ...")

    def arriving(self, subscription: Subscription) -> None:
        self._note(f"All is published. Now comes {subscription.title!r}, which has been away.")

    def killed(self, casualty: Casualty, replacement: str | None) -> None:
        then = "the others go on without it" if replacement is None else f"starting {replacement!r} in its place"
        self._note(
            f"Killed {casualty.worker} (process {casualty.process_id}) while it held "
            f"{counted(len(casualty.flight_ids), 'message')}, received and not committed; {then}."
        )

    def expect(self, numbers: Mapping[Subscription, int]) -> None:
        for subscription, number in numbers.items():
            self._progress.update(self._tasks[subscription], total=number)

    def update(self, sent: int, handled: Mapping[Subscription | None, int]) -> None:
        self._progress.update(self._sending, completed=sent)
        for source, number in handled.items():
            self._progress.update(self._tasks[source], completed=number)
        due = handled[None] * _LINES // self._flights
        if due > self._lines_shown and not self._console.is_terminal:
            self._lines_shown = due
            received = sum(number for source, number in handled.items() if source is not None)
            self._note(f"Sent {sent:,}, handled {handled[None]:,}, received by subscriptions {received:,}.")

    def _note(self, text: str) -> None:
        self._progress.console.print(text)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()
