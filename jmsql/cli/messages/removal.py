"""`jmsql move`, `jmsql purge` and `jmsql deliver`: messages go to another queue, for good, or to consumers now."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Protocol

import typer

from jmsql.cli.options import Json, QueueName, Schema, Selector, Url, Yes, check_selector, confirm, open_database
from jmsql.cli.output import answer, progress, working
from jmsql.values.counting import counted

_NOTHING_FOUND = 1


def move(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The queue to move from.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="The queue to move to.", show_default=False)],
    selector: Selector = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The maximum number of messages.", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Move the messages of a queue to another queue.

    They keep their headers, and come after those that are there. Messages that a client holds at that moment stay, and
    so do those that come in meanwhile. It goes in steps of 5,000 messages, each a transaction of its own: a message is
    in one of the two queues at any time, and doing it again moves the rest.

    Example: `jmsql move orders orders.old --selector "year < 2025"`
    """
    check_selector(selector)
    with open_database(url, schema).administration() as administration:
        with working("Counting ..."):
            found = administration.count(source, selector)
        most = found if limit is None else min(limit, found)
        moved = _finish("Moving", partial(administration.move, source, target, selector, limit=limit), most)
    document = {"from": source, "to": target, "moved": moved}
    answer(document, f"Moved {counted(moved, 'message')} from {source!r} to {target!r}.", as_json=as_json)


def purge(
    queue: QueueName,
    selector: Selector = None,
    yes: Yes = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Delete the messages of a queue for good.

    Messages that a client holds at that moment stay. It asks first; messages that are sent while it waits for your
    answer stay, too. Where there is no terminal to ask on, --yes is needed.

    Example: `jmsql purge orders --selector "color = 'blue'"`
    """
    check_selector(selector)
    database = open_database(url, schema)
    with database.administration() as administration:
        with working("Counting ..."):
            newest = database.newest()  # before the count: a message that comes later stays, whatever the answer
            found = administration.count(queue, selector)
        if found:
            confirm(f"Delete {counted(found, 'message')} from the queue {queue!r} for good?", yes=yes)
        deleted = _finish("Deleting", partial(administration.purge, queue, selector, newest=newest), found)
    document = {"queue": queue, "deleted": deleted}
    answer(document, f"Deleted {counted(deleted, 'message')} from the queue {queue!r}.", as_json=as_json)


def deliver(
    queue: QueueName,
    selector: Selector = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="The maximum number; the first ones.", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Deliver messages of a queue now that wait for a retry, or for their delivery time.

    Nothing else of them changes: they keep the number of their deliveries, their errors and their expiration. Doing it
    again does no harm.

    Exits with 1 if no such message waits.

    Example: `jmsql deliver orders --selector "customer = 17"`
    """
    check_selector(selector)
    with open_database(url, schema).administration() as administration, working("Delivering ..."):
        delivered = administration.deliver(queue, selector, limit=limit)
    document = {"queue": queue, "delivered": delivered}
    answer(document, f"Delivered {counted(delivered, 'message')} of the queue {queue!r} now.", as_json=as_json)
    if not delivered:
        raise typer.Exit(_NOTHING_FOUND)


class _Steps(Protocol):
    def __call__(self, *, progress: Callable[[int], object]) -> int: ...


def _finish(doing: str, steps: _Steps, total: int) -> int:
    """Do it, show the progress, and return for how many messages they were."""
    with progress() as display:
        task = display.add_task(doing, total=total)
        return steps(progress=lambda done: display.update(task, completed=done))
