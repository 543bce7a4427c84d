"""`jmsql archive`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jmsql.cli.options import DatabaseAddress, Json, Schema, Url, open_database, read_destination
from jmsql.cli.output import console, print_advice, print_json, progress, table
from jmsql.exceptions import ResourceAllocationException
from jmsql.spark.connection import default_database
from jmsql.spark.options import PropertyFormat
from jmsql.values.counting import counted

if TYPE_CHECKING:
    from jmsql.spark.archiving.job import ArchiveReport

NOT_SAFE = 1


def archive(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A directory: a path, or a URL such as s3://bucket/archive.")
    ],
    destinations: Annotated[
        list[str] | None,
        typer.Option(
            "--destination",
            metavar="DESTINATION",
            help="Only its history: a queue's name, queue://NAME or topic://NAME. May be repeated.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also write the messages that wait now, to TARGET/_live; none is consumed.")
    ] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="Remove settled days from the history of which the archive has all.")
    ] = False,
    keep_days: Annotated[
        int, typer.Option("--keep-days", metavar="N", min=0, help="With --drop: the days before today that stay.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show, day by day, how much would be archived and removed.")
    ] = False,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Over how many connections a batch is read.")
    ] = 1,
    max_messages: Annotated[
        int, typer.Option("--max-messages-per-batch", metavar="N", min=1, help="The most messages in a batch.")
    ] = 1_000_000,
    properties: Annotated[
        PropertyFormat,
        typer.Option("--properties", help="How properties are stored: as JSON text, or as a map of typed values."),
    ] = PropertyFormat.json,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the small files of each destination and day before today.")
    ] = False,
    file_size: Annotated[
        int, typer.Option("--file-size", metavar="MIB", min=1, help="The size from which on a new file is begun.")
    ] = 256,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Write the history to Parquet files, by destination and day: those added since the last run, each once.

    A run may be killed at any moment; the next one goes on from there. One run at a time writes to a target. It takes
    the extra `archive`.

    With --drop, a day is removed from the history when it is settled, and the archive has each of its messages. Exits
    with 1 if a day was kept because the archive does not.

    Example: `jmsql archive /srv/archive --drop --keep-days 7`
    """
    chosen = [read_destination(name) for name in destinations or ()]
    if keep_days and not drop:
        raise typer.BadParameter("--keep-days goes together with --drop.")
    database = open_database(url, schema)
    try:
        import adbc_driver_postgresql  # noqa: F401 - loaded when it is needed

        from jmsql.spark import archive as run
    except ImportError as error:
        raise ResourceAllocationException(f'{error.name} is missing: pip install "jmsql[archive]".') from error
    with progress() as display, default_database(database.url):
        task = display.add_task("Archiving", total=None)
        report = run(
            target,
            destinations=chosen,
            schema=schema,
            properties=properties,
            live=live,
            drop=drop,
            keep_days=keep_days,
            merge=merge,
            dry_run=dry_run,
            partitions=partitions,
            max_messages_per_batch=max_messages,
            file_size=file_size * 2**20,
            progress=lambda doing, messages: display.update(task, description=doing, completed=messages),
        )
    if as_json:
        print_json(_document(report))
    else:
        _show(report, drop=drop)
        if not report.messages and not _keeps_history(database):
            print_advice("No destination keeps its history: see `jmsql destination set NAME --history`.")
    if not report.is_safe:
        raise typer.Exit(NOT_SAFE)


def _keeps_history(database: DatabaseAddress) -> bool:
    with database.administration() as administration:
        return any(each.settings.get("history") for each in administration.destinations())


def _document(report: ArchiveReport) -> dict[str, Any]:
    document = asdict(report)
    document["days"] = [{**asdict(day), "day": day.day.isoformat()} for day in report.days]
    return document


def _show(report: ArchiveReport, *, drop: bool) -> None:
    screen = console()
    if report.dry_run:
        screen.print(f"Would archive {counted(report.messages, 'message')} to {report.target}.", markup=False)
    else:
        batches = f"{report.batches:,} batch{'' if report.batches == 1 else 'es'}"
        screen.print(f"Archived {counted(report.messages, 'message')} in {batches} to {report.target}.", markup=False)
    if report.live_messages is not None:
        words = "Would write" if report.dry_run else "Wrote"
        waiting = counted(report.live_messages, "waiting message")
        screen.print(f"{words} {waiting} to {report.target}/_live.", markup=False)
    if report.merged_files:
        screen.print(f"Merged {counted(report.merged_files, 'small file')}.")
    if report.days:
        listing = table(
            *("day", "in history", "in archive", "missing", "doubled", "removed", "why not"),
            numbers=("in history", "in archive", "missing", "doubled"),
        )
        for day in report.days:
            numbers = (day.in_history, day.in_archive, day.missing, day.doubled)
            listing.add_row(
                day.day.isoformat(),
                *(f"{number:,}" for number in numbers),
                _removed(day.dropped, report.dry_run),
                day.kept_because or "",
            )
        screen.print(listing)
    elif drop:
        screen.print("No day was to be removed.")


def _removed(dropped: bool, dry_run: bool) -> str:
    if not dropped:
        return "no"
    return "would be" if dry_run else "yes"
