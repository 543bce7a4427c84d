"""The demo itself: workers are started, flights are sent and published, two workers are killed, all is handled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from sqlalchemy import Engine

import jmsql
from examples.flights.backend import publish
from examples.flights.crew import Accident, Casualty, Crew
from examples.flights.database import DemoDatabase, handled, received
from examples.flights.flights import read_flights
from examples.flights.reconciliation import count_chosen
from examples.flights.routing import ALL_OTHERS, DELAY_DESK, DELAYED, SUBSCRIPTIONS, Subscription

_STALLED_AFTER = 30.0


class Progress(Protocol):
    """Is told what happens."""

    def starting(self, workers: int) -> None:
        """So many workers are started for the queue, beside the delay desk, and those of the subscriptions."""

    def publishing(self) -> None:
        """All can receive, and the backend begins."""

    def arriving(self, subscription: Subscription) -> None:
        """All is published, and the worker of a subscription comes that has been away."""

    def killed(self, casualty: Casualty, replacement: str | None) -> None:
        """A worker was killed, and one of this name takes its place; None: the others go on without it."""

    def expect(self, numbers: Mapping[Subscription, int]) -> None:
        """Each subscription will have received so many messages in the end."""

    def update(self, sent: int, handled: Mapping[Subscription | None, int]) -> None:
        """So many are sent, and handled of each subscription and (None) of the queue."""


def run(engine: Engine, database: DemoDatabase, flights: int, workers: int, progress: Progress) -> list[Casualty]:
    """Send and publish the flights, and have them handled.

    When a third is sent, a worker of the queue is killed, and replaced. When half is sent, one of those that share a
    subscription is; the others go on.

    Returns:
        The workers that were killed.

    Raises:
        JMSException: A worker failed, or none could be killed.
    """
    names = [f"worker {number}" for number in range(1, workers + 1)]
    with Crew(database) as crew:
        progress.starting(workers)
        crew.handle_flights(DELAY_DESK, DELAYED)
        for name in names:
            crew.handle_flights(name, ALL_OTHERS)
        sharing = []
        for subscription in SUBSCRIPTIONS:
            if not subscription.comes_late:
                started = crew.subscribe(subscription)
                sharing += started if subscription.workers > 1 else []
        crew.wait_until_ready()

        with engine.connect() as first, engine.connect() as second:
            at_the_queue = Accident(first, crew, handled, names)
            at_a_subscription = Accident(second, crew, received, sharing)
            course = _Course(flights, f"worker {workers + 1}", crew, progress, at_the_queue, at_a_subscription)
            progress.publishing()
            for number in publish(database.factory(), read_flights(flights)):
                course.sent += number
                course.proceed(0)
            for subscription in SUBSCRIPTIONS:
                if subscription.comes_late:
                    progress.arriving(subscription)
                    crew.subscribe(subscription)
            course.wait_for(count_chosen(engine))
            crew.finish()
            course.show()
            return [_casualty(accident) for accident in (at_the_queue, at_a_subscription)]


class _Course:
    """What comes to pass while the flights are sent and handled."""

    def __init__(
        self,
        flights: int,
        replacement: str,
        crew: Crew,
        progress: Progress,
        at_the_queue: Accident,
        at_a_subscription: Accident,
    ) -> None:
        self.sent = 0
        self._flights = flights
        self._replacement = replacement
        self._crew = crew
        self._progress = progress
        self._at_the_queue = at_the_queue
        self._at_a_subscription = at_a_subscription

    def proceed(self, timeout: float) -> bool:
        """Take in what the workers report, and bring the accidents about; return whether they reported anything."""
        some_reported = self._crew.listen(timeout)
        self.show()
        if 3 * self.sent >= self._flights and not self._at_the_queue.is_over:
            self._bring_about(self._at_the_queue, self._replacement)
        if 2 * self.sent >= self._flights and not self._at_a_subscription.is_over:
            self._bring_about(self._at_a_subscription, None)
        return some_reported

    def _bring_about(self, accident: Accident, replacement: str | None) -> None:
        casualty = accident.proceed()
        if casualty is None:
            return
        self._progress.killed(casualty, replacement)
        if replacement is not None:
            self._crew.handle_flights(replacement, ALL_OTHERS)

    def wait_for(self, chosen: dict[Subscription, int]) -> None:
        """Wait until all that was sent is handled, or nothing happens any more."""
        self._progress.expect(chosen)
        last_report = time.monotonic()
        while not self._is_handled(chosen) and time.monotonic() - last_report < _STALLED_AFTER:
            if self.proceed(0.1):
                last_report = time.monotonic()

    def _is_handled(self, chosen: dict[Subscription, int]) -> bool:
        return self._crew.handled(None) >= self._flights and all(
            self._crew.handled(subscription) >= number for subscription, number in chosen.items()
        )

    def show(self) -> None:
        """Show how far it is."""
        self._progress.update(self.sent, {source: self._crew.handled(source) for source in (None, *SUBSCRIPTIONS)})


def _casualty(accident: Accident) -> Casualty:
    if accident.casualty is None:
        raise jmsql.JMSException("No worker could be killed: none has received anything.")
    return accident.casualty
