"""`jmsql demo`: it runs the application in `jmsql.demo`, and shows its progress on standard error."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer
from rich.progress import TaskID
from sqlalchemy import Engine

from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.output import console, print_json, progress
from jmsql.demo.crew import Casualty
from jmsql.demo.database import DemoDatabase
from jmsql.demo.flights import ALL_FLIGHTS, missing_packages, require_packages
from jmsql.demo.pipeline import PACKAGES, Piped, pipe
from jmsql.demo.preparation import alone, prepare
from jmsql.demo.reconciliation import reconcile
from jmsql.demo.routing import DELAY_DESK, SUBSCRIPTIONS, Subscription
from jmsql.demo.run import Progress, run
from jmsql.exceptions import ResourceAllocationException
from jmsql.store.errors import jms_errors
from jmsql.values.counting import counted

NOT_RECONCILED = 1


def demo(
    flights: Annotated[int, typer.Option(min=100, max=ALL_FLIGHTS, help="How many flights.")] = 15_000,
    everything: Annotated[bool, typer.Option("--all", help=f"All {ALL_FLIGHTS:,} flights.")] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers, beside the delay desk.")] = 2,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Where the archive and the plot go.")
    ] = Path("jmsql-demo"),
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Send the flights out of New York in 2013 through a queue and a topic, kill workers, and prove that none is lost.

    A backend stores each flight, sends a message about it to a queue and publishes it on a topic, in one transaction.
    The queue's workers write a row for each message in one transaction with its receipt; a selector leads delayed
    flights to a worker of their own. So do those of the topic's durable subscriptions, each with a selector of its own;
    one is shared, and one is away until all is published. Two workers are killed while they hold messages, and
    messages of one airline fail at first and are delivered again. In the end SQL compares the handled and
    received messages with the stored rows.

    At last Spark archives the queue's history to DIRECTORY/archive, as `jmsql archive` does, and computes of the
    archive when flights are late; where there is no Java, that is left out, with a sentence.

    It makes the schema `jmsql_demo`, the queue `jmsql_demo.flights` and the subscriptions to the topic
    `jmsql_demo.departures` again each time, and touches nothing else.

    Exits with 1 if a flight is missing or came twice, also in the archive.

    Example: `jmsql demo --flights 50000 --workers 4`
    """
    require_packages()
    from jmsql.cli.demo_report import (  # need the packages
        outcome_document,
        pipeline_document,
        print_outcome,
        print_pipeline,
    )

    found = open_database(url, schema)
    number = ALL_FLIGHTS if everything else flights
    database = DemoDatabase(found.url, found.schema)
    engine = database.open_engine()
    try:
        with jms_errors("running the demo"), alone(engine):
            prepare(engine, database, upgrade=found.is_embedded)
            with Display(number) as display:
                casualties = run(engine, database, number, workers, display)
            outcome = reconcile(engine, database, casualties)
            piped = _pipe(engine, database, output)
    finally:
        engine.dispose()
    if as_json:
        print_json(outcome_document(outcome, casualties) | {"pipeline": pipeline_document(piped)})
    else:
        print_outcome(outcome, casualties)
        print_pipeline(piped)
        console().print(f"\nTo see its queues in a browser: {_console_command(url, found.schema)}", markup=False)
    if not outcome.is_reconciled or (isinstance(piped, Piped) and not piped.is_reconciled):
        raise typer.Exit(NOT_RECONCILED)


def _console_command(url: str | None, schema: str) -> str:
    """Return the command that shows the queues; it finds the database as this one has."""
    program = "jmsql" if shutil.which("jmsql") else os.path.relpath(Path(sys.executable).with_name("jmsql"))
    words = [program, "console"]
    if url is not None and url != os.environ.get("JMSQL_URL"):
        words += ["--url", url]  # without a password: the option takes none
    if schema != "jmsql":
        words += ["--schema", schema]
    return shlex.join(words)


def _pipe(engine: Engine, database: DemoDatabase, output: Path) -> Piped | str:
    """Run the pipeline, or return why it is left out."""
    missing = missing_packages(PACKAGES)
    if missing:
        return f"Python has no {', '.join(missing)}: pip install 'jmsql[demo]'."
    from jmsql.spark.session import find_java, spark_errors, spark_session

    try:
        find_java()
    except ResourceAllocationException as error:
        return str(error)
    with spark_errors("computing the delays"):
        return pipe(engine, database, output, lambda: spark_session("jmsql demo", database.url), _step)


@contextmanager
def _step(doing: str) -> Iterator[None]:
    """Show what is being done, and that it goes on."""
    console(error=True).print(doing)
    with progress() as display:
        display.add_task(doing, total=None)
        yield


_LINES = 4


class Display(Progress):
    """Shows how many messages were sent, handled, and received by each subscription. A context manager."""

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
