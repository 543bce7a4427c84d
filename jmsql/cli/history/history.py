"""`jmsql history`: messages that have left destinations with history, sent again or removed."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

import typer

from jmsql.cli.messages.documents import (
    body_preview,
    past_document,
    past_message_as_text,
    properties_preview,
)
from jmsql.cli.options import (
    Json,
    Schema,
    Selector,
    Url,
    Yes,
    command_group,
    confirm,
    open_database,
    read_destination,
    read_timestamp,
)
from jmsql.cli.output import (
    answer,
    json_text,
    print_rows,
    print_table,
    progress,
    remark_more,
    remark_unseen,
    table,
    working,
    write,
)
from jmsql.client._sync.administration.history import OUTCOMES
from jmsql.store.history.past_messages import PastMessage
from jmsql.values.counting import counted
from jmsql.values.destinations import Destination

NOTHING_FOUND = 1

application = command_group(
    "See the messages that have left destinations with history, send them again, and remove them.\n\n"
    "`jmsql destination set NAME --history` makes a destination keep it."
)

Since = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Messages that left at that time or later: 2026-03-01, 2026-03-01T12:30 (this computer's "
        "time, unless an offset such as +01:00 follows), or 30min, 2h, 7d ago.",
    ),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Messages that left before; written as for --since.")]
Outcomes = Annotated[
    list[str] | None,
    typer.Option("--outcome", metavar="OUTCOME", help=f"How it left: {', '.join(OUTCOMES)}. May be repeated."),
]
Subscription = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only messages of this subscription to the topic.")
]


@application.command("list")
def list_messages(
    destination: Annotated[
        str | None,
        typer.Argument(metavar="[DESTINATION]", help="A queue's name, or queue://NAME or topic://NAME; all without."),
    ] = None,
    since: Since = None,
    until: Until = None,
    selector: Selector = None,
    outcome: Outcomes = None,
    subscription: Subscription = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number of messages.")] = 20,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show the messages that were the last to leave, the very last one first.

    With --json, each message is a line with all that is known of it. Exits with 1 if there is none.

    Example: `jmsql history list orders --since 2h --outcome expired`
    """
    _check_outcomes(outcome)
    shown = 0
    listing = table(
        *("left at", "destination", "outcome", "delivered", "time in queue", "properties", "body"),
        numbers=("delivered", "time in queue"),
        cut=("properties", "body"),
        spare=("delivered", "time in queue", "properties"),
    )
    with open_database(url, schema).administration() as administration:
        found = administration.history.messages(
            _optional_destination(destination),
            since=read_timestamp(since),
            until=read_timestamp(until),
            selector=selector,
            outcomes=outcome,
            subscription=subscription,
            limit=limit + 1,
        )
        for past in found:
            shown += 1
            if shown > limit:
                break
            if as_json:
                write(json_text(past_document(past)).encode() + b"\n")
            else:
                listing.add_row(*_cells(past))
        sees_all = administration.sees_all_messages()
    if shown and not as_json:
        print_table(listing)
    remark_more(shown, limit)
    remark_unseen(sees_all=sees_all)
    if not shown:
        typer.echo("No message found.", err=True)
        raise typer.Exit(NOTHING_FOUND)


@application.command()
def show(
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE_ID", help="Its JMSMessageID.", show_default=False)],
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show a message that has left, each time that it did. All of the history is read.

    Exits with 1 if it is not there.

    Example: `jmsql history show ID:7d3a1c5e-3f0b-4c55-9a35-2a5b6c7d8e9f`
    """
    with open_database(url, schema).administration() as administration, working("Looking for it ..."):
        entries = administration.history.message(message_id)
    if not entries:
        typer.echo("No message found.", err=True)
        raise typer.Exit(NOTHING_FOUND)
    for past in entries:
        if as_json:
            write(json_text(past_document(past)).encode() + b"\n")
        else:
            write(past_message_as_text(past))


@application.command()
def days(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the days of the history, each a partition of the table, with their size.

    Example: `jmsql history days`
    """
    with open_database(url, schema).administration() as administration:
        found = administration.history.days()
    print_rows(
        found,
        lambda each: (
            *(each.day.isoformat(), each.partition, f"{each.estimated_messages:,}", f"{each.bytes / 1024**2:,.1f}"),
            "yes" if each.settled else "no",
        ),
        *("day", "partition", "about messages", "MiB", "settled"),
        numbers=("about messages", "MiB"),
        nothing="There is no history. `jmsql destination set NAME --history` makes a destination keep it.",
        as_json=as_json,
    )


@application.command()
def replay(
    source: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="Where the messages were: a queue or topic://NAME.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="QUEUE", help="The queue that they are sent to.")],
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Messages that left at that time or later: 2026-03-01T12:30, or 30min, 2h, 7d ago."
        ),
    ],
    until: Until = None,
    selector: Selector = None,
    outcome: Outcomes = None,
    subscription: Subscription = None,
    keep_ids: Annotated[
        bool, typer.Option("--keep-ids", help="Keep the JMSMessageID and JMSTimestamp of each, instead of new ones.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Send messages that left a destination in a range of time to a queue, in the order in which they were first sent.

    That is acknowledged messages, unless --outcome says otherwise. All of it is one transaction: if the command is
    interrupted, nothing was sent. It asks first, and sends no message that leaves while it waits for your answer;
    where there is no terminal to ask on, --yes is needed.

    Example: `jmsql history replay orders --since 2026-03-01T12:00 --until 2026-03-01T13:00 --to orders-again`
    """
    _check_outcomes(outcome)
    destination, target = read_destination(source), read_destination(to)
    range_: dict[str, Any] = {
        "since": read_timestamp(since),
        "until": read_timestamp(until),
        "selector": selector,
        "outcomes": outcome or ["acknowledged"],
        "subscription": subscription,
    }
    database = open_database(url, schema)
    with database.administration() as administration:
        if not yes:
            with working("Counting ..."):
                now = database.clock()()  # before the count: a message that leaves later is not sent
                range_["until"] = now if range_["until"] is None else min(range_["until"], now)
                found = administration.history.count(destination, **range_)
            confirm(f"Send {counted(found, 'message')} to the queue {target.name!r}?", yes=yes)
        with progress() as display:
            task = display.add_task("Sending", total=None)
            sent = administration.history.replay(
                destination,
                to,
                keep_ids=keep_ids,
                progress=lambda sent, total: display.update(task, completed=sent, total=total),
                **range_,
            )
    document = {"from": destination.uri, "to": target.uri, "sent": sent}
    answer(document, f"Sent {counted(sent, 'message')} of {destination} to the queue {target.name!r}.", as_json=as_json)


@application.command()
def prune(
    before: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"],
            metavar="DAY",
            help="Remove messages that left before this day, in UTC, however long they were to be kept.",
        ),
    ] = None,
    destination: Annotated[
        str | None,
        typer.Option(metavar="DESTINATION", help="Remove only the history of this queue or topic, before the day."),
    ] = None,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Remove the history that its destinations keep no longer, or all that is older than --before.

    Clients do the former once a minute, if they connect as the schema's owner. Whole days go at once if nothing of
    them stays. With --before it asks first; where there is no terminal to ask on, --yes is needed.

    Example: `jmsql history prune --before 2026-03-01`
    """
    if before is None and destination is not None:
        raise typer.BadParameter("--destination goes together with --before.")
    day: date | None = None if before is None else before.date()
    of = "" if destination is None else f" of {read_destination(destination)}"
    if day is not None:
        confirm(f"Remove the history{of} before {day} for good?", yes=yes)
    removed_days, removed_messages = 0, 0
    with open_database(url, schema).administration() as administration, working("Removing ..."):
        for step in administration.history.prune(before=day, destination=_optional_destination(destination)):
            removed_days += step.dropped
            removed_messages += step.messages
    text = f"Removed about {counted(removed_messages, 'message')}, and {counted(removed_days, 'whole day')}."
    answer({"days": removed_days, "about_messages": removed_messages}, text, as_json=as_json)


def _check_outcomes(outcomes: list[str] | None) -> None:
    for outcome in outcomes or ():
        if outcome not in OUTCOMES:
            raise typer.BadParameter(f"{outcome!r} is not an outcome; there are {', '.join(OUTCOMES)}.")


def _optional_destination(name: str | None) -> Destination | None:
    return None if name is None else read_destination(name)


def _cells(past: PastMessage) -> tuple[str, ...]:
    entry, message = past.entry, past.message
    seconds = entry.time_in_queue
    name = entry.destination if entry.destination_type == "queue" else f"topic://{entry.destination}"
    return (
        f"{entry.acknowledged_at.astimezone():%Y-%m-%d %H:%M:%S}",
        name if entry.subscription is None else f"{name} {entry.subscription}",
        entry.outcome,
        str(entry.delivery_count),
        "" if seconds is None else f"{seconds.total_seconds():,.1f} s",
        properties_preview(message),
        body_preview(message),
    )
