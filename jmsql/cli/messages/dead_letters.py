"""`jmsql dead-letters` and `jmsql retry`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from jmsql.cli.advice import advice
from jmsql.cli.options import Json, Schema, Selector, Url, open_database, read_destination
from jmsql.cli.output import (
    age,
    console,
    in_lines,
    print_advice,
    print_json,
    print_rows,
    remark_more,
    remark_unseen,
    working,
)
from jmsql.store.administration.dead_letters import DeadLetter, Retry
from jmsql.values.counting import counted

_NOTHING_FOUND = 1
_ID = "ID:"
"""The beginning of each JMSMessageID."""

if TYPE_CHECKING:
    from rich.text import Text

    from jmsql.admin import Administration

Origin = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="DESTINATION", help="Only those that come from this queue or topic.", show_default=False
    ),
]


def dead_letters(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Those in this queue alone.", show_default=False)
    ] = None,
    origin: Origin = None,
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

    Examples:
    - `jmsql dead-letters --from orders`
    - `jmsql dead-letters DLQ --selector "JMS_jmsql_Deliveries > 5"`
    """
    database = open_database(url, schema)
    now = database.clock()
    with database.administration() as administration, working("Looking ..."):
        found = administration.dead_letters(queue, _chosen(selector, origin), limit=limit + 1)
        sees_all = administration.sees_all_messages()
        elsewhere = [] if found or queue is None else _queues_of_letters_from(administration, queue)

    def cells(each: DeadLetter) -> tuple[str | Text | None, ...]:
        source = each.original_destination or ""
        if each.original_subscription is not None:
            source += f" ({each.original_subscription})"
        error = in_lines(each.last_error or "") if traceback and not as_json else each.error
        deliveries = "" if each.deliveries is None else f"{each.deliveries:,}"
        return each.queue, source, each.reason, deliveries, age(each.died_at, now), error, each.message_id

    print_rows(
        *(found[:limit], cells, "queue", "from", "reason", "deliveries", "died", "error", "message"),
        numbers=("deliveries", "died"),
        spare=("deliveries", "died", "queue"),
        nothing=f"There is no such dead letter in the queue {queue!r}." if queue else "There is no dead letter.",
        as_json=as_json,
    )
    remark_more(len(found), limit)
    remark_unseen(sees_all=sees_all)
    _remark_elsewhere(elsewhere, "jmsql dead-letters", queue)


def retry(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[QUEUE] [ID...]",
            help="The queue of the dead letters, DLQ by default, and the identifiers of single ones. Without a queue, "
            "identifiers are found in any.",
            show_default=False,
        ),
    ] = None,
    origin: Origin = None,
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

    Examples:
    - `jmsql retry ID:2f1d4c1e-0b1a-4c55-a0f3-000000000001`
    - `jmsql retry --from orders`
    - `jmsql retry DLQ --selector "JMS_jmsql_LastError LIKE '%TimeoutError%'" --limit 100`
    """
    names, identifiers = _parted(given or [])
    chosen = _chosen(selector, origin, identifiers)
    elsewhere: list[str] = []
    with open_database(url, schema).administration() as administration, working("Moving ..."):
        if identifiers and not names:
            letters = administration.dead_letters(None, chosen, limit=max(100, len(identifiers)))
            names = sorted({each.queue for each in letters})
        queues = names or ["DLQ"]
        done = {queue: administration.retry(queue, chosen, limit=limit) for queue in queues}
        if not identifiers and not any(each.returned or each.left for each in done.values()):
            elsewhere = _queues_of_letters_from(administration, queues[0])
    returned = Counter[str]()
    for each in done.values():
        returned.update(each.returned)
    if as_json:
        if len(done) == 1:
            print_json({"queue": queues[0]} | done[queues[0]]._asdict())
        else:
            print_json([{"queue": queue} | each._asdict() for queue, each in done.items()])
    else:
        for destination, count in sorted(returned.items()):
            console().print(f"{counted(count, 'message')} went back to {destination}.", markup=False)
        for queue, each in done.items():
            _print_left(queue, each)
        if not any(each.returned or each.left for each in done.values()):
            place = "" if identifiers and len(queues) != 1 else f" in the queue {queues[0]!r}"
            console().print(f"There is no such dead letter{place}.", markup=False)
    _remark_elsewhere(elsewhere, "jmsql retry", queues[0])
    if not returned:
        raise typer.Exit(_NOTHING_FOUND)


def _parted(given: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the queue, if there is one, and the identifiers.

    Raises:
        typer.BadParameter: Two queues are given.
    """
    names = [each for each in given if not each.startswith(_ID)]
    if len(names) > 1:
        raise typer.BadParameter(f"Expected one queue, and identifiers that begin with {_ID}, got {' '.join(names)}.")
    return names, [each for each in given if each.startswith(_ID)]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _chosen(selector: str | None, origin: str | None, identifiers: Collection[str] = ()) -> str | None:
    """Return the selector of messages that fulfil all conditions; None: there is none."""
    conditions = [] if selector is None else [f"({selector})"]
    if origin is not None:
        conditions.append(f"JMS_jmsql_OriginalDestination = {_literal(read_destination(origin).uri)}")
    if identifiers:
        conditions.append(f"JMSMessageID in ({', '.join(map(_literal, identifiers))})")
    return " and ".join(conditions) or None


def _queues_of_letters_from(administration: Administration, origin: str) -> list[str]:
    """Return the queues in which some dead letters of a queue are."""
    return sorted({each.queue for each in administration.dead_letters(None, _chosen(None, origin), limit=100)})


def _remark_elsewhere(queues: Iterable[str], command: str, origin: str | None) -> None:
    source = shlex.quote(origin or "")
    for queue in queues:
        shown = advice(f"`{command} {shlex.quote(queue)} --from {source}`")
        typer.echo(f"Dead letters from {origin!r} are in {queue!r}: {shown}.", err=True)


def _print_left(queue: str, done: Retry) -> None:
    held = done.left - sum(done.gone.values())
    for origin, count in sorted(done.gone.items()):
        print_advice(f"{_left(count, queue)}: {origin} is gone. `jmsql move` puts them elsewhere.")
    if held > 0:
        console().print(f"{_left(held, queue)}: a client holds them, or has just taken them.", markup=False)


def _left(count: int, queue: str) -> str:
    return f"{counted(count, 'message')} {'stays' if count == 1 else 'stay'} in {queue!r}"
