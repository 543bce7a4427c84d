"""`jmsql move`."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.options import Json, Schema, Selector, Url, check_selector, open_database
from jmsql.cli.terminal.output import console, counted, print_json, progress, working

__all__ = ["move"]


def move(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The queue to move from.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="The queue to move to.", show_default=False)],
    selector: Selector = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most so many messages.", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Move the messages of a queue to another queue.

    They keep their headers, and come after those that are there. Messages that a client holds at that moment stay, and
    so do those that come in meanwhile. It goes in steps of 5,000 messages, each a transaction of its own: a message is
    in one of the two queues at any time, and doing it again moves what is left.

    Example: `jmsql move orders orders.old --selector "year < 2025"`
    """
    check_selector(selector)
    with open_database(url, schema).administration() as administration:
        with working("Counting ..."):
            found = administration.count(source, selector)
        moved = 0
        with progress() as display:
            task = display.add_task("Moving", total=found if limit is None else min(limit, found))
            for step in administration.move(source, target, selector, limit=limit):
                moved += step
                display.update(task, completed=moved)
    if as_json:
        print_json({"from": source, "to": target, "moved": moved})
    else:
        console().print(f"Moved {counted(moved, 'message')} from {source!r} to {target!r}.", markup=False)
