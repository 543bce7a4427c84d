"""`jmsql batch`: batches, whose callbacks are sent when all their messages have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jmsql.cli.options import Json, Schema, Url, Yes, command_group, confirm, open_database
from jmsql.cli.output import answer, console, print_json, print_table, remark_more, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from jmsql.store.administration.batches import BatchSummary

application = command_group(
    "See batches and their progress, and end or delete one that was left open.\n\nExample: `jmsql batch list`"
)

Number = Annotated[int, typer.Argument(metavar="BATCH", help="The number of the batch.", show_default=False)]


@application.command("list")
def list_batches(
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Only batches of this name.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="So many at most.")] = 20,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """List the last batches, with the counts of their messages.

    Example: `jmsql batch list --limit 5`
    """
    with open_database(url, schema).administration() as administration:
        found = administration.batches(name, limit=limit + 1)
    _print(found[:limit], as_json=as_json)
    remark_more(len(found), limit)


@application.command("show")
def show_batch(number: Number, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Show the counts of a batch's messages.

    Example: `jmsql batch show 17`
    """
    with open_database(url, schema).administration() as administration:
        _print([administration.batch(number)], as_json=as_json)


@application.command("close")
def close_batch(number: Number, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """End the block of a batch whose opener has died between two commits.

    The callback is sent once its messages have ended.

    Example: `jmsql batch close 17`
    """
    with open_database(url, schema).administration() as administration:
        administration.close_batch(number)
    answer({"batch": number, "state": "closed"}, f"The batch {number} is closed.", as_json=as_json)


@application.command("delete")
def delete_batch(
    number: Number, yes: Yes = False, url: Url = None, schema: Schema = "jmsql", as_json: Json = False
) -> None:
    """Delete a batch, so that no callback comes. Its messages stay in their queues.

    Example: `jmsql batch delete 17 --yes`
    """
    confirm(f"Delete the batch {number}?", yes=yes)
    with open_database(url, schema).administration() as administration:
        administration.delete_batch(number)
    answer({"batch": number, "state": "deleted"}, f"The batch {number} is deleted.", as_json=as_json)


def _print(batches: Sequence[BatchSummary], *, as_json: bool) -> None:
    if as_json:
        print_json([each._asdict() for each in batches])
        return
    if not batches:
        console().print("There are no batches.")
        return
    numbers = ("batch", "total", "done", "failed", "expired", "cancelled", "waiting")
    listing = table("batch", "name", "state", *numbers[1:], "opened", "ended", numbers=numbers, spare=("opened",))
    for each in batches:
        counts = (each.total, each.done, each.failed, each.expired, each.cancelled, each.waiting)
        listing.add_row(
            *(str(each.id), each.name, each.state, *(f"{count:,}" for count in counts)),
            *(_moment(each.opened_at), _moment(each.ended_at)),
        )
    print_table(listing)


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
