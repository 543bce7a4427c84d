"""`jmsql selector` and `jmsql destination index`: a selector in PostgreSQL, and the index that serves it."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from jmsql.cli.advice import advice
from jmsql.cli.options import Json, QueueName, Schema, Url, command_group, open_database
from jmsql.cli.output import answer, console, print_json, print_rows, progress, working
from jmsql.client._sync.link.opening import open_runner
from jmsql.selectors import Selector
from jmsql.store.administration import selector_indexes
from jmsql.store.administration.selector_indexes import Explanation, IndexProgress
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.counting import counted

application = command_group(
    "See how a selector runs in PostgreSQL.\n\nExample: `jmsql selector explain orders \"color = 'blue'\"`"
)


@application.callback()
def group() -> None:
    """Keep `explain` a subcommand, though it is alone."""


def read_selector(text: str) -> Selector:
    """Read a selector that must choose something.

    Raises:
        InvalidSelectorException: It has an error.
        typer.BadParameter: It is empty.
    """
    parsed = Selector.parse(text)
    if parsed is None:
        raise typer.BadParameter("An empty selector chooses all messages, in the order of the primary key.")
    return parsed


@application.command()
def explain(
    queue: QueueName,
    selector: Annotated[
        str, typer.Argument(metavar="SELECTOR", help="The selector, in quotes of the shell.", show_default=False)
    ],
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Show a selector in SQL, and the plan by which the first ten messages are found that it chooses.

    It runs the plan, and takes nothing. It says whether an index serves the selector, and which could.

    Example: `jmsql selector explain orders "color = 'blue' AND weight > 2500"`
    """
    parsed = read_selector(selector)
    with open_runner(open_database(url, schema).url, schema) as runner, working("Looking ..."):
        explanation = selector_indexes.explain(runner, queue, parsed)
    if as_json:
        served_by = explanation.served_by
        document = explanation._asdict() | {"served_by": None if served_by is None else served_by._asdict()}
        print_json(document | {"advice": _advice(queue, explanation)})
        return
    screen = console()
    screen.print("condition", style="bold")
    screen.print(f"  {explanation.condition}", markup=False)
    for name, value in explanation.parameters.items():
        screen.print(f"  {name} = {value!r}", markup=False)
    screen.print("\nplan", style="bold")
    for line in explanation.plan:
        screen.print(f"  {line}", markup=False)
    screen.print(
        f"\nRead {counted(explanation.rows, 'message')} for the first {explanation.found:,}, in "
        f"{explanation.milliseconds:,.1f} ms, by {explanation.uses or 'reading the whole table'}.",
        markup=False,
    )
    screen.print(_advice(queue, explanation), markup=False)


def _advice(queue: str, explanation: Explanation) -> str:
    if explanation.served_by is not None:
        return f"The index {explanation.served_by.name} on {', '.join(explanation.served_by.expressions)} serves it."
    if explanation.expressions:
        return (
            f"No index serves it. {advice(f'`jmsql destination index {shlex.quote(queue)} SELECTOR`')} makes one on "
            f"{', '.join(explanation.expressions)}: worth it where few of many messages match."
        )
    return (
        "No index can serve it: one serves comparisons of a property, JMSType or JMSCorrelationID with a literal by =, "
        "alone or joined by AND."
    )


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


def _make(runner: PsycopgRunner, queue: str, selector: str, *, as_json: bool) -> None:
    with progress(with_numbers=False) as display:
        task = display.add_task("making the index", total=None)

        def report(step: IndexProgress) -> None:
            display.update(task, description=step.phase, completed=step.done, total=step.total or None)

        found, is_new = selector_indexes.create_index(runner, queue, read_selector(selector), report)
    says = "Made the index" if is_new else "There already is the index"
    text = f"{says} {found.name} on {', '.join(found.expressions)}."
    answer(found._asdict() | {"made": is_new}, text, as_json=as_json)


def _drop(runner: PsycopgRunner, selector: str, *, as_json: bool) -> None:
    dropped = runner.run(selector_indexes.drop_index(read_selector(selector)))
    if as_json:
        print_json({"dropped": None if dropped is None else dropped._asdict()})
    elif dropped is not None:
        console().print(f"Dropped the index {dropped.name}.", markup=False)
    else:
        console(error=True).print("No index serves the selector.")
    if dropped is None:
        raise typer.Exit(1)


def _list(runner: PsycopgRunner, *, as_json: bool) -> None:
    found = runner.run(selector_indexes.selector_indexes())
    print_rows(
        found,
        lambda each: (
            *(each.name, ", ".join(each.expressions), "yes" if each.valid else "no"),
            *(f"{each.bytes / 2**20:,.1f} MiB", f"{each.scans:,}"),
        ),
        *("index", "on", "valid", "size", "scans"),
        numbers=("size", "scans"),
        nothing="There is no index for selectors.",
        as_json=as_json,
    )
