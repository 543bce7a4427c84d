"""The demonstration's command: it runs the application, and prints the proof.

``python -m examples.flights``, or ``make demo``. Exit codes: 0 reconciled, 1 not, 3 PostgreSQL or jmsql refused.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

import jmsql
from examples.flights.database import DemoDatabase
from examples.flights.display import Display, step
from examples.flights.flights import ALL_FLIGHTS, missing_packages
from examples.flights.pipeline import PACKAGES, Piped, missing_java, pipe
from examples.flights.preparation import alone, prepare
from examples.flights.reconciliation import reconcile
from examples.flights.report import (
    outcome_document,
    pipeline_document,
    print_json,
    print_outcome,
    print_pipeline,
    screen,
)
from examples.flights.run import run
from jmsql.embedded import start_server

NOT_RECONCILED = 1
REFUSED = 3

application = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@application.command()
def demo(
    flights: Annotated[int, typer.Option(min=100, max=ALL_FLIGHTS, help="How many flights.")] = 15_000,
    everything: Annotated[bool, typer.Option("--all", help=f"All {ALL_FLIGHTS:,} flights.")] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers, beside the delay desk.")] = 2,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Where the archive and the plot go.")
    ] = Path("jmsql-demo"),
    url: Annotated[
        str | None, typer.Option(envvar="JMSQL_URL", help="The database; without it, the embedded server.")
    ] = None,
    schema: Annotated[str, typer.Option(envvar="JMSQL_SCHEMA", help="jmsql's schema there.")] = "jmsql",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
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

    Example: `make demo ARGS="--flights 50000 --workers 4"`
    """
    try:
        is_reconciled = _demonstrate(
            DemoDatabase(url or start_server().url, schema),
            ALL_FLIGHTS if everything else flights,
            workers,
            output,
            is_embedded=url is None,
            as_json=as_json,
        )
    except (jmsql.JMSException, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error  # without the statement and its values
        typer.echo(f"demo: {str(cause).strip()}", err=True)
        raise typer.Exit(REFUSED) from error
    if not is_reconciled:
        raise typer.Exit(NOT_RECONCILED)


def _demonstrate(
    database: DemoDatabase, flights: int, workers: int, output: Path, *, is_embedded: bool, as_json: bool
) -> bool:
    """Run all of it and print the report; return True if everything is reconciled."""
    engine = database.open_engine()
    try:
        with alone(engine):
            prepare(engine, database, upgrade=is_embedded)
            with Display(flights) as display:
                casualties = run(engine, database, flights, workers, display)
            outcome = reconcile(engine, database, casualties)
            piped = _pipe(engine, database, output)
    finally:
        engine.dispose()
    if as_json:
        print_json(outcome_document(outcome, casualties) | {"pipeline": pipeline_document(piped)})
    else:
        print_outcome(outcome, casualties)
        print_pipeline(piped)
        command = _console_command(database, is_embedded=is_embedded)
        screen().print(f"\nTo see its queues in a browser: {command}", markup=False)
    return outcome.is_reconciled and (isinstance(piped, str) or piped.is_reconciled)


def _console_command(database: DemoDatabase, *, is_embedded: bool) -> str:
    """Return the command that shows the queues; it finds the database as this one has."""
    program = "jmsql" if shutil.which("jmsql") else os.path.relpath(Path(sys.executable).with_name("jmsql"))
    words = [program, "console"]
    if not is_embedded and database.url != os.environ.get("JMSQL_URL"):
        words += ["--url", database.url]
    if database.schema != "jmsql":
        words += ["--schema", database.schema]
    return shlex.join(words)


def _pipe(engine: Engine, database: DemoDatabase, output: Path) -> Piped | str:
    """Run the pipeline, or return why it is left out."""
    missing = missing_packages(PACKAGES)
    if missing:
        return f"Python has no {', '.join(missing)}: pip install 'jmsql[statistics]'."
    return missing_java() or pipe(engine, database, output, step)


def _exit(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> NoReturn:
    """Run the command; Ctrl-C and SIGTERM end it by an exception, so that it ends its workers."""
    signal.signal(signal.SIGINT, _exit)
    signal.signal(signal.SIGTERM, _exit)
    application(prog_name="demo")
    sys.exit()
