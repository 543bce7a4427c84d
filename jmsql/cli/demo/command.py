"""`jmsql demo`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import Engine

from jmsql.cli.demo.display import Display
from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.terminal.output import console, print_json, progress
from jmsql.demo.database import DemoDatabase
from jmsql.demo.flights import ALL_FLIGHTS, missing_packages, require_packages
from jmsql.demo.pipeline import PACKAGES, Piped, pipe
from jmsql.demo.preparation import alone, prepare
from jmsql.demo.reconciliation import reconcile
from jmsql.demo.run import run
from jmsql.exceptions import ResourceAllocationException
from jmsql.store.errors import jms_errors

__all__ = ["demo"]

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
    messages of one airline fail at first and are delivered again. In the end SQL compares what was handled and
    received with what was stored.

    At last Spark archives the queue's history to DIRECTORY/archive, as `jmsql archive` does, and computes of the
    archive when flights are late; where there is no Java, that is left out, with a sentence.

    It makes the schema `jmsql_demo`, the queue `jmsql_demo.flights` and the subscriptions to the topic
    `jmsql_demo.departures` again each time, and touches nothing else.

    Exits with 1 if a flight is missing or came twice, also in the archive.

    Example: `jmsql demo --flights 50000 --workers 4`
    """
    require_packages()
    from jmsql.cli.demo.pipeline_report import pipeline_document, print_pipeline  # need the packages
    from jmsql.cli.demo.report import outcome_document, print_outcome

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
    if not outcome.is_reconciled or (isinstance(piped, Piped) and not piped.is_reconciled):
        raise typer.Exit(NOT_RECONCILED)


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
