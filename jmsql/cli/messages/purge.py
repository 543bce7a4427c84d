"""`jmsql purge`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jmsql.cli.options import Json, QueueName, Schema, Selector, Url, check_selector, open_database
from jmsql.cli.terminal.output import console, counted, print_json, progress, working

__all__ = ["purge"]


def purge(
    queue: QueueName,
    selector: Selector = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Delete the messages of a queue for good.

    Messages that a client holds at that moment stay, and so do those that come in meanwhile. It asks first; where
    there is no terminal to ask on, --yes is needed.

    Example: `jmsql purge orders --selector "color = 'blue'"`
    """
    check_selector(selector)
    with open_database(url, schema).administration() as administration:
        with working("Counting ..."):
            found = administration.count(queue, selector)
        if found and not yes:
            if not sys.stdin.isatty():
                raise typer.BadParameter("There is no terminal to ask on; say --yes.")
            question = f"Delete {counted(found, 'message')} from the queue {queue!r} for good?"
            typer.confirm(question, abort=True, err=True)
        deleted = 0
        with progress() as display:
            task = display.add_task("Deleting", total=found)
            for step in administration.purge(queue, selector):
                deleted += step
                display.update(task, completed=deleted)
    if as_json:
        print_json({"queue": queue, "deleted": deleted})
    else:
        console().print(f"Deleted {counted(deleted, 'message')} from the queue {queue!r}.", markup=False)
