"""`jmsql result`: stored results of messages that have ended."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from jmsql.cli.options import Json, Schema, Url, command_group, open_database
from jmsql.cli.output import in_lines, json_text, print_json, print_rows, print_table, remark_more, remark_unseen, table

if TYPE_CHECKING:
    from rich.text import Text

_NOTHING_FOUND = 1

application = command_group(
    "List the stored results of messages that have ended, and see that of one message.\n\n"
    "Example: `jmsql result list --state failed`"
)


def _check_position(position: str | None) -> str | None:
    from jmsql.store.administration.results import require_position

    try:
        require_position(position)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return position


class State(StrEnum):
    """The ways in which a message ends."""

    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@application.command("list")
def list_results(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Only messages of this queue.", show_default=False)
    ] = None,
    state: Annotated[
        State | None, typer.Option("--state", metavar="STATE", help="Only those that ended so.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            callback=_check_position,
            help="Only results before this one: its position in --json.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number; the last ones.")] = 20,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """List the stored results of messages that have ended, the last first.

    Listeners with `keep_result` store them.

    Example: `jmsql result list quotes --state failed`
    """
    with open_database(url, schema).administration() as administration:
        found = administration.results(queue, state, before=before, limit=limit + 1)
        sees_all = administration.sees_all_messages()
    print_rows(
        found[:limit],
        lambda each: (
            *(each.message_id, each.destination or "", each.state, f"{each.deliveries:,}", _moment(each.finished_at)),
            each.error or each.value or "",
        ),
        *("message", "queue", "state", "deliveries", "ended", "value or error"),
        numbers=("deliveries",),
        spare=("deliveries",),
        nothing="There is no such result." if queue or state or before else "No result is stored.",
        as_json=as_json,
    )
    remark_more(len(found), limit)
    remark_unseen(sees_all=sees_all)


@application.command("show")
def show_result(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The JMSMessageID.", show_default=False)],
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show the state of a message, and its result where one is stored.

    Exits with 1 if nothing is known of it.

    Example: `jmsql result show ID:2f1d4c1e-0b1a-4c55-a0f3-000000000001`
    """
    found = open_database(url, schema).result(message_id)
    document = {
        name: getattr(found, name)
        for name in ("id", "state", "destination", "deliveries", "value", "error", "progress", "note", "sent_at",
                     "started_at", "finished_at", "next_attempt", "kept_until")
    }  # fmt: skip
    if as_json:
        print_json(document)
        raise typer.Exit(_NOTHING_FOUND if found.state == "unknown" else 0)
    listing = table("name", "value")
    for name, value in document.items():
        if value is not None:
            listing.add_row(name.replace("_", " "), _shown(name, value))
    print_table(listing)
    if found.state == "unknown":
        typer.echo(
            "It is not committed yet, was removed, or was handled by a listener without keep_result. "
            "Of a queue that the role may not browse, nothing is shown.",
            err=True,
        )
        raise typer.Exit(_NOTHING_FOUND)


def _shown(name: str, value: object) -> str | Text:
    if name == "value":
        return in_lines(json_text(value, indent=2))
    return _moment(value) if isinstance(value, datetime) else in_lines(str(value)) if name == "error" else str(value)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
