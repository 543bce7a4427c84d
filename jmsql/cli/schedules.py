"""`jmsql schedule`: schedules, which send a message at each of their ticks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jmsql.cli.options import (
    Json,
    Priority,
    Properties,
    Schema,
    Url,
    Yes,
    check_duration,
    command_group,
    confirm,
    open_database,
    read_destination,
    read_interval,
)
from jmsql.cli.output import answer, console, print_json, print_table, table

if TYPE_CHECKING:
    from jmsql.store.schedules.definition import ScheduleSummary
    from jmsql.values.ticks import Timing

application = command_group(
    "Make, pause and explain schedules, which send a message at each of their ticks.\n\n"
    'Example: `jmsql schedule set nightly reports --cron "0 3 * * *" --time-zone Europe/Berlin`'
)

_TICKS_SHOWN = 10


class MissedTicks(StrEnum):
    """The missed ticks that are sent late."""

    once = "once"
    skip = "skip"
    all = "all"


def _check_name(name: str | None) -> str | None:
    from jmsql.store.schedules.definition import check_name

    try:
        if name is not None:
            check_name(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the schedule.", callback=_check_name, show_default=False)
]
Cron = Annotated[
    str | None,
    typer.Option(
        "--cron",
        metavar="TEXT",
        help="Minute, hour, day of the month, month, day of the week, before which seconds may stand; or @daily.",
        show_default=False,
    ),
]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="INTERVAL", help="An interval: 10s, 30min, 2h, 7d.", show_default=False),
]
TimeZone = Annotated[str, typer.Option("--time-zone", metavar="ZONE", help="The time zone of --cron.")]


@application.command("list")
def list_schedules(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the schedules, with their next and last ticks.

    Example: `jmsql schedule list`
    """
    with open_database(url, schema).administration() as administration:
        schedules = administration.schedules()
    if as_json:
        print_json([_document(schedule) for schedule in schedules])
    elif not schedules:
        console().print("There are no schedules.")
    else:
        listing = table(
            *("schedule", "times", "destination", "next tick", "last tick", "sent", "remarks"),
            numbers=("sent",),
            spare=("last tick", "destination"),
        )
        for each in schedules:
            listing.add_row(
                *(each.name, _times(each), each.destination, _moment(each.next_at), _moment(each.last_at)),
                *(f"{each.sent:,}", _remarks(each)),
            )
        print_table(listing)


@application.command("set")
def set_schedule(
    name: Name,
    destination: Annotated[
        str,
        typer.Argument(metavar="DESTINATION", help="A queue's name, or queue://NAME or topic://NAME."),
    ],
    body: Annotated[
        str | None, typer.Argument(metavar="[BODY]", help="The text of the messages.", show_default=False)
    ] = None,
    cron: Cron = None,
    every: Every = None,
    time_zone: TimeZone = "UTC",
    missed: Annotated[
        MissedTicks, typer.Option(help="Which ticks are sent late, after a time in which no client ran.")
    ] = MissedTicks.once,
    overlap: Annotated[
        bool,
        typer.Option("--overlap/--no-overlap", help="Send a message also while the last one is in its queue."),
    ] = True,
    properties: Properties = None,
    priority: Priority = 4,
    time_to_live: Annotated[
        float,
        typer.Option(callback=check_duration, metavar="SECONDS", help="The messages expire after this time; 0: never."),
    ] = 0.0,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Make a schedule, or change the one of that name. One that an application declares is changed there.

    Example: `jmsql schedule set nightly reports '{"kind": "nightly"}' --cron "0 3 * * *" --time-zone Europe/Berlin`
    """
    from jmsql.cli.messages.send import read_properties
    from jmsql.messages import Message, TextMessage

    timing = _read_timing(cron, every, time_zone)
    to = read_destination(destination)
    message = Message() if body is None else TextMessage(body)
    for set_property in read_properties(properties or []):
        set_property(message)
    with open_database(url, schema).administration() as administration:
        try:
            administration.set_schedule(
                name,
                *(timing, to, message),
                time_zone=time_zone,
                missed=missed.value,
                overlap=overlap,
                priority=priority,
                time_to_live=time_to_live,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        summary = administration.schedule(name)
    answer(_document(summary), f"Set {name}; its next tick: {_moment(summary.next_at)}.", as_json=as_json)


@application.command()
def pause(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Pause a schedule: it has no ticks until it is resumed, also if a release declares it again.

    Example: `jmsql schedule pause nightly`
    """
    with open_database(url, schema).administration() as administration:
        administration.pause_schedule(name)
        summary = administration.schedule(name)
    answer(_document(summary), f"Paused {name}.", as_json=as_json)


@application.command()
def resume(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Go on with a schedule that is paused, from its next tick.

    Example: `jmsql schedule resume nightly`
    """
    with open_database(url, schema).administration() as administration:
        administration.resume_schedule(name)
        summary = administration.schedule(name)
    answer(_document(summary), f"Resumed {name}; its next tick: {_moment(summary.next_at)}.", as_json=as_json)


@application.command()
def now(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Send the message of a schedule now, beside its ticks.

    Example: `jmsql schedule now nightly`
    """
    with open_database(url, schema).administration() as administration:
        message_id = administration.send_scheduled(name)
    answer({"schedule": name, "message_id": message_id}, f"Sent {message_id}.", as_json=as_json)


@application.command()
def delete(name: Name, yes: Yes = False, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Delete a schedule. A worker whose application declares it makes it again when it starts.

    It asks first; where there is no terminal to ask on, --yes is needed.

    Example: `jmsql schedule delete nightly --yes`
    """
    with open_database(url, schema).administration() as administration:
        administration.schedule(name)
        confirm(f"Delete the schedule {name}?", yes=yes)
        administration.delete_schedule(name)
    answer({"schedule": name}, f"Deleted {name}.", as_json=as_json)


@application.command()
def explain(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A schedule.", callback=_check_name, show_default=False)
    ] = None,
    cron: Cron = None,
    every: Every = None,
    time_zone: TimeZone = "UTC",
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show the next ten ticks of a schedule, or of times that you give, in the schedule's time zone and in UTC.

    With --cron or --every it needs no database.

    Examples:
    - `jmsql schedule explain nightly`
    - `jmsql schedule explain --cron "30 2 * * *" --time-zone Europe/Berlin`
    """
    if (name is None) == (cron is None and every is None):
        raise typer.BadParameter("Give the name of a schedule, or --cron or --every.")
    first = None
    if name is None:
        timing = _timing(_read_timing(cron, every, time_zone), time_zone)
    else:
        with open_database(url, schema).administration() as administration:
            summary = administration.schedule(name)
        timing, first, time_zone = summary.timing, summary.next_at, summary.time_zone
    ticks = list(_next_ticks(timing, first, time_zone))
    if as_json:
        print_json([{"local": local.isoformat(), "utc": tick.isoformat()} for local, tick in ticks])
        return
    listing = table(time_zone, "UTC")
    for local, tick in ticks:
        listing.add_row(f"{local:%a %Y-%m-%d %H:%M:%S %z}", f"{tick:%Y-%m-%d %H:%M:%S}")
    print_table(listing)


def _next_ticks(timing: Timing, first: datetime | None, time_zone: str) -> Iterator[tuple[datetime, datetime]]:
    from jmsql.values.ticks import find_zone

    zone = find_zone(time_zone)
    tick = timing.after(datetime.now(UTC)) if first is None else first
    for _ in range(_TICKS_SHOWN):
        if tick is None:
            return
        yield tick.astimezone(zone), tick.astimezone(UTC)
        tick = timing.after(tick)


def _read_timing(cron: str | None, every: str | None, time_zone: str) -> str | timedelta:
    if (cron is None) == (every is None):
        raise typer.BadParameter("Give the times as --cron or as --every.")
    when = read_interval(every) if cron is None and every is not None else cron
    assert when is not None
    _timing(when, time_zone)
    return when


def _timing(when: str | timedelta, time_zone: str) -> Timing:
    from jmsql.values.ticks import read_timing

    try:
        return read_timing(when, time_zone)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _document(schedule: ScheduleSummary) -> dict[str, Any]:
    every = None if schedule.every is None else schedule.every.total_seconds()
    return schedule._asdict() | {"every": every}


def _times(schedule: ScheduleSummary) -> str:
    if schedule.cron is None:
        return f"every {schedule.every}"
    return schedule.cron if schedule.time_zone == "UTC" else f"{schedule.cron} {schedule.time_zone}"


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _remarks(schedule: ScheduleSummary) -> str:
    remarks = [
        "paused" if schedule.paused else "",
        f"{schedule.missed_ticks:,} missed" if schedule.missed_ticks else "",
        f"{schedule.overlapped_ticks:,} overlapped" if schedule.overlapped_ticks else "",
        f"failed: {schedule.last_error}" if schedule.last_error else "",
    ]
    return ", ".join(filter(None, remarks))
