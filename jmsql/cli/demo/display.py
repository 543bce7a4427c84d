"""The demo's progress, on standard error: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.progress import TaskID

from jmsql.cli.terminal.output import console, counted, progress
from jmsql.demo.accident import Casualty
from jmsql.demo.routing import DELAY_DESK, SUBSCRIPTIONS, Subscription
from jmsql.demo.run import Progress

__all__ = ["Display"]

_LINES = 4


class Display(Progress):
    """Shows how many messages were sent, handled, and received by each subscription. A context manager.

    Args:
        flights: How many there will be.
    """

    def __init__(self, flights: int) -> None:
        self._flights = flights
        self._console = console(error=True)
        self._progress = progress()
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
