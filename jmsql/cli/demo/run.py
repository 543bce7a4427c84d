"""The demo itself: workers are started, flights are sent, a worker is killed and replaced, all is handled."""

from __future__ import annotations

import time

from sqlalchemy import Engine

from jmsql.cli.demo.accident import Accident, Casualty
from jmsql.cli.demo.backend import publish
from jmsql.cli.demo.crew import Crew
from jmsql.cli.demo.display import Display
from jmsql.cli.demo.flights import read_flights
from jmsql.cli.demo.routing import ALL_OTHERS, DELAY_DESK, DELAYED
from jmsql.cli.options import Database
from jmsql.cli.output import counted
from jmsql.exceptions import JMSException

__all__ = ["run"]

_STALLED_AFTER = 30.0


def run(engine: Engine, database: Database, flights: int, workers: int) -> Casualty:
    """Send the flights and have them handled; kill a worker when a third is sent.

    Returns:
        The worker that was killed.

    Raises:
        JMSException: A worker failed, or none could be killed.
    """
    with (
        Display(flights) as display,
        Crew(database) as crew,
        Accident(engine, crew, DELAY_DESK) as accident,
    ):
        display.note(f"Starting {counted(workers, 'worker')} and a {DELAY_DESK} ...")
        crew.start(DELAY_DESK, DELAYED)
        for number in range(1, workers + 1):
            crew.start(f"worker {number}", ALL_OTHERS)
        crew.wait_until_ready()

        display.note(f"Storing and sending {flights:,} flights ...")
        sent = 0

        def proceed(timeout: float) -> bool:
            some_reported = crew.listen(timeout)
            display.update(sent, crew.handled)
            if 3 * sent >= flights and not accident.is_over:
                casualty = accident.proceed()
                if casualty is not None:
                    _replace(casualty, f"worker {workers + 1}", crew, display)
            return some_reported

        for number in publish(database.factory(), read_flights(flights)):
            sent += number
            proceed(0)
        last_report = time.monotonic()
        while crew.handled < flights and time.monotonic() - last_report < _STALLED_AFTER:
            if proceed(0.1):
                last_report = time.monotonic()
        crew.finish()
        display.update(sent, crew.handled)
        if accident.casualty is None:
            raise JMSException("No worker could be killed: none has received anything.")
        return accident.casualty


def _replace(casualty: Casualty, replacement: str, crew: Crew, display: Display) -> None:
    display.note(
        f"Killed {casualty.worker} (process {casualty.process_id}) while it held {len(casualty.flight_ids)} messages, "
        f"received and not committed; starting {replacement} in its place."
    )
    crew.start(replacement, ALL_OTHERS)
