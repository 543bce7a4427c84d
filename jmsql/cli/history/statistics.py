"""`jmsql statistics`: statistics of the history, computed by Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer
from rich.text import Text

from jmsql.cli.advice import advice
from jmsql.cli.options import (
    Json,
    Schema,
    SparkSettings,
    Url,
    open_database,
    read_destination,
    read_timestamp,
    spark_settings,
)
from jmsql.cli.output import console, print_json, progress, table
from jmsql.exceptions import ResourceAllocationException
from jmsql.values.counting import counted

if TYPE_CHECKING:
    from jmsql.spark.statistics import Results, Source


NOTHING_FOUND = 1
_PACKAGES = ("jinja2", "matplotlib", "pyspark", "pyarrow")


def _check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise typer.BadParameter(f"{name!r} is not a time zone; write UTC or Europe/Berlin.") from error
    return name


def statistics(
    context: typer.Context,
    archive: Annotated[
        str | None, typer.Option(metavar="TARGET", help="An archive's directory, local or s3a://, to read as well.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history/--no-history", help="Read the history in the database, or the archive alone.")
    ] = True,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Where the Parquet files and the report go.")
    ] = Path("jmsql-statistics"),
    destination: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this queue's, or queue://NAME or topic://NAME. May be repeated."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Messages that left at that time or later: 2026-03-01, or 30min, 2h, 7d ago."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Messages that left before; written as for --since.")
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE", callback=_check_time_zone, help="The time zone of the hours, such as Europe/Berlin."
        ),
    ] = "UTC",
    top: Annotated[
        int, typer.Option(min=1, max=1000, help="How many destinations, consumers and groups are named.")
    ] = 10,
    spark_conf: SparkSettings = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Compute statistics of the history: a Spark job, with a report in HTML.

    For each destination, and each destination and hour: messages and bytes, time in queue (p50, p95, p99),
    redeliveries, expiries, reasons of dead letters, shares of the consumers, largest groups. They are written as
    Parquet to DIRECTORY/parquet, in place of the files there, as plots to DIRECTORY/plots, and all in one to
    DIRECTORY/report.html.

    A message in the history and in the archive counts once. It needs the extra `statistics`, and Java 17 or newer.

    Exits with 1 if there is nothing to count.

    Example: `jmsql statistics --archive s3a://lake/messages --since 7d --time-zone Europe/Berlin`
    """
    if not history and archive is None:
        raise typer.BadParameter("Without the history there is nothing to read: name an archive with --archive.")
    settings = spark_settings(spark_conf)
    destinations = [read_destination(name) for name in destination or ()]
    range_ = read_timestamp(since), read_timestamp(until)
    _require_packages()
    from jmsql.spark.session import spark_errors, spark_session
    from jmsql.spark.statistics import Source, compute_statistics, write_statistics
    from jmsql.spark.statistics.report import write_report

    database = open_database(url, schema) if history else None
    if database is not None:
        with database.administration():
            pass  # Spark takes its time to start; problems with the database show before.
    source = Source(history, archive, destinations, *range_, schema=schema)
    with progress() as display:
        task = display.add_task("Starting Spark", total=None)

        def show(doing: str, done: int, total: int) -> None:
            display.update(task, description=doing, completed=done, total=total)

        address = None if database is None else database.url
        verbose: bool = context.find_root().params["verbose"]
        with (
            spark_session("jmsql statistics", address, settings, verbose=verbose) as spark,
            spark_errors("computing the statistics"),
        ):
            results = compute_statistics(spark, source, time_zone=time_zone, top=top, progress=show)
        if results.is_empty:
            typer.echo(advice(_nothing_found(source)), err=True)
            raise typer.Exit(NOTHING_FOUND)
        write_statistics(results, output / "parquet")
        report = write_report(results, output, top, show)
    if as_json:
        print_json(_document(results, report))
    else:
        _print(results, report, top)


def _require_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ResourceAllocationException(
            f'Statistics need packages that are not installed ({", ".join(missing)}): pip install "jmsql[statistics]".'
        )


def _nothing_found(source: Source) -> str:
    place = " and ".join(
        ([f"the archive {source.archive!r}"] if source.archive is not None else [])
        + (["the history"] if source.history else [])
    )
    chosen = source.destinations or source.since is not None or source.until is not None
    keeping = "" if not source.history else " `jmsql destination set NAME --history` makes a destination keep it."
    return f"There is nothing{' of that' if chosen else ''} in {place}.{'' if chosen else keeping}"


def _document(results: Results, report: Path) -> dict[str, Any]:
    return {
        "report": str(report),
        "parquet": str(report.parent / "parquet"),
        "time_zone": results.time_zone,
        "messages": results.messages,
        "statistics": {name: results.rows(name) for name in results.overall},
    }


def _print(results: Results, report: Path, top: int) -> None:
    from jmsql.spark.statistics.report import list_statistics

    screen = console()
    for listing in list_statistics(results, top):
        shown = table(*listing.columns, numbers=listing.numbers)
        for row in listing.rows:
            shown.add_row(*(Text(cell) for cell in row))
        screen.print(Text(listing.title, style="bold"))
        screen.print(shown)
        if listing.left_out:
            screen.print(f"{listing.left_out:,} more with fewer messages.")
        screen.print()
    screen.print(f"{counted(results.messages, 'message')}, in {report.parent / 'parquet'}.", markup=False)
    screen.print(f"The report is {report}.", markup=False)
