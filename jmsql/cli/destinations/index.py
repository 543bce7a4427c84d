"""`jmsql destination index`."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.destinations.selector import read_selector
from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.terminal.output import console, print_json, print_table, table
from jmsql.client._sync.database.opening import open_runner
from jmsql.store.administration.selector_indexes import IndexProgress, create_index, drop_index, selector_indexes
from jmsql.store.runners._sync.runner import AutocommitRunner

__all__ = ["index"]


def index(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE", help="A queue that has consumers with the selector.")
    ] = None,
    selector: Annotated[
        str | None, typer.Argument(metavar="SELECTOR]", help="The selector, in quotes of the shell.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop the index instead.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Make the index by which consumers with a selector find few messages among many; or list those there are.

    It is made while messages come and go, and serves the consumers of all queues whose selectors compare the same
    properties by =. PostgreSQL waits for transactions that are open. Each message with these properties costs a little
    more from then on, and none can be sent whose compared values have more than about 2,600 bytes.

    Exits with 2 if no index can serve the selector, with 1 if there is none to drop.

    Example: `jmsql destination index orders "color = 'blue'"`
    """
    with open_runner(open_database(url, schema).url, schema) as runner:
        if queue is None:
            _list(runner, as_json=as_json)
        elif selector is None:
            raise typer.BadParameter("Name the selector, too; or no queue, to list the indexes.")
        elif drop:
            _drop(runner, selector, as_json=as_json)
        else:
            _make(runner, queue, selector, as_json=as_json)


def _make(runner: AutocommitRunner, queue: str, selector: str, *, as_json: bool) -> None:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    error = console(error=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=error,
        transient=True,
        disable=not error.is_terminal,
    ) as display:
        task = display.add_task("making the index", total=None)

        def tell(progress: IndexProgress) -> None:
            display.update(task, description=progress.phase, completed=progress.done, total=progress.total or None)

        found, is_new = create_index(runner, queue, read_selector(selector), tell)
    if as_json:
        print_json(found._asdict() | {"made": is_new})
        return
    says = "Made the index" if is_new else "There already is the index"
    console().print(f"{says} {found.name} on {', '.join(found.expressions)}.", markup=False)


def _drop(runner: AutocommitRunner, selector: str, *, as_json: bool) -> None:
    dropped = runner.run(drop_index(read_selector(selector)))
    if as_json:
        print_json({"dropped": None if dropped is None else dropped._asdict()})
    elif dropped is not None:
        console().print(f"Dropped the index {dropped.name}.", markup=False)
    else:
        console(error=True).print("No index serves the selector.")
    if dropped is None:
        raise typer.Exit(1)


def _list(runner: AutocommitRunner, *, as_json: bool) -> None:
    found = runner.run(selector_indexes())
    if as_json:
        print_json([each._asdict() for each in found])
        return
    if not found:
        console().print("There is no index for selectors.")
        return
    listing = table("index", "on", "valid", "size", "scans", numbers=("size", "scans"))
    for each in found:
        listing.add_row(
            each.name,
            ", ".join(each.expressions),
            "yes" if each.valid else "no",
            f"{each.bytes / 2**20:,.1f} MiB",
            f"{each.scans:,}",
        )
    print_table(listing)
