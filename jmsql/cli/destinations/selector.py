"""`jmsql selector`: what becomes of a selector in PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.options import Json, QueueName, Schema, Url, open_database
from jmsql.cli.terminal.output import console, counted, print_json, working
from jmsql.client._sync.database.opening import open_runner
from jmsql.selectors import Selector
from jmsql.store.administration import selector_indexes
from jmsql.store.administration.selector_indexes import Explanation

__all__ = ["application", "read_selector"]

application = typer.Typer(
    help="See what becomes of a selector in PostgreSQL.\n\nExample: `jmsql selector explain orders \"color = 'blue'\"`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
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
            f"No index serves it. `jmsql destination index {queue} SELECTOR` makes one on "
            f"{', '.join(explanation.expressions)}: worth it where few of many messages match."
        )
    return (
        "No index can serve it: one serves comparisons of a property, JMSType or JMSCorrelationID with a literal by =, "
        "alone or joined by AND."
    )
