"""`jmsql dead-letters` and `jmsql retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jmsql.cli.options import Json, Schema, Selector, Url, open_database
from jmsql.cli.output import age, console, in_lines, print_json, print_rows, remark_unseen, working
from jmsql.store.administration.dead_letters import DeadLetter
from jmsql.values.counting import counted

_NOTHING_FOUND = 1

if TYPE_CHECKING:
    from rich.text import Text


def dead_letters(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Those in this queue alone.", show_default=False)
    ] = None,
    selector: Selector = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number.")] = 100,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show each last error in full.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """List dead letters: messages whose delivery failed too often, or that have expired. The newest comes first.

    A selector may compare JMS_jmsql_OriginalDestination, JMS_jmsql_DeadLetterReason ('maximum deliveries',
    'maximum retries', 'rejected', 'unreadable' or 'expired'), JMS_jmsql_Deliveries and JMS_jmsql_LastError.
    `jmsql browse` shows the messages themselves.

    Example: `jmsql dead-letters DLQ --selector "JMS_jmsql_OriginalDestination = 'queue://orders'"`
    """
    with open_database(url, schema).administration() as administration, working("Looking ..."):
        found = administration.dead_letters(queue, selector, limit=limit)
        sees_all = administration.sees_all_messages()

    def cells(each: DeadLetter) -> tuple[str | Text | None, ...]:
        origin = each.original_destination or ""
        if each.original_subscription is not None:
            origin += f" ({each.original_subscription})"
        error = in_lines(each.last_error or "") if traceback and not as_json else each.error
        deliveries = "" if each.deliveries is None else f"{each.deliveries:,}"
        return each.queue, origin, each.reason, deliveries, age(each.died_at), error, each.message_id

    print_rows(
        *(found, cells, "queue", "from", "reason", "deliveries", "died", "error", "message"),
        numbers=("deliveries", "died"),
        spare=("deliveries", "died", "queue"),
        nothing="There is no dead letter.",
        as_json=as_json,
    )
    remark_unseen(sees_all=sees_all)


def retry(
    queue: Annotated[str, typer.Argument(metavar="[QUEUE]", help="Where the dead letters are.")] = "DLQ",
    selector: Selector = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The maximum number; the first ones.", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Move dead letters back to where they come from, in one transaction.

    They keep identifiers, headers, properties and bodies, and count as never delivered. Those that a client holds
    stay, and those whose queue or subscription is gone. Doing it again does no harm.

    Exits with 1 if there was nothing to move.

    Example: `jmsql retry DLQ --selector "JMS_jmsql_LastError LIKE '%TimeoutError%'" --limit 100`
    """
    with open_database(url, schema).administration() as administration, working("Moving ..."):
        done = administration.retry(queue, selector, limit=limit)
    if as_json:
        print_json({"queue": queue} | done._asdict())
    else:
        for destination, count in sorted(done.returned.items()):
            console().print(f"{counted(count, 'message')} went back to {destination}.", markup=False)
        if done.left:
            held = done.left - sum(done.gone.values())
            for origin, count in sorted(done.gone.items()):
                console().print(
                    f"{_left(count, queue)}: {origin} is gone. `jmsql move` puts them elsewhere.", markup=False
                )
            if held > 0:
                console().print(f"{_left(held, queue)}: a client holds them, or has just taken them.", markup=False)
        if not done.returned and not done.left:
            console().print(f"There is no such dead letter in the queue {queue!r}.", markup=False)
    if not done.returned:
        raise typer.Exit(_NOTHING_FOUND)


def _left(count: int, queue: str) -> str:
    return f"{counted(count, 'message')} {'stays' if count == 1 else 'stay'} in {queue!r}"
