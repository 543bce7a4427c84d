"""`jmsql binding`: administered objects, by name."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.options import Json, Schema, Url, open_database, read_destination
from jmsql.cli.terminal.output import console, print_json, print_table, table
from jmsql.values.destinations import Destination

__all__ = ["application"]

application = typer.Typer(
    help="Keep connection factories and destinations in the database, for `jmsql.lookup`.\n\n"
    "Example: `jmsql binding bind jms/orders queue://orders`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Such as jms/orders.", show_default=False)]


@application.command()
def bind(
    name: Name,
    destination: Annotated[
        str | None,
        typer.Argument(
            metavar="DESTINATION", help="A queue's name, or queue://NAME or topic://NAME.", show_default=False
        ),
    ] = None,
    factory: Annotated[
        bool, typer.Option("--factory", help="Bind a connection factory for this database and schema instead.")
    ] = False,
    url: Url = None,
    schema: Schema = "jmsql",
) -> None:
    """Bind a queue, a topic, or a connection factory to a name, instead of what was bound to it.

    The factory is one for the database that the command works with; its password is not stored.

    Example: `jmsql binding bind jms/factory --factory`
    """
    if (destination is None) != factory:
        raise typer.BadParameter("Give a DESTINATION, or --factory.")
    database = open_database(url, schema)
    administered = database.factory() if destination is None else read_destination(destination)
    with database.administration() as administration:
        administration.bind(name, administered)
    console().print(f"Bound {name!r} to {_shown(administered)}.", markup=False)


@application.command()
def unbind(name: Name, url: Url = None, schema: Schema = "jmsql") -> None:
    """Forget what is bound to a name.

    Example: `jmsql binding unbind jms/orders`
    """
    with open_database(url, schema).administration() as administration:
        administration.unbind(name)
    console().print(f"Nothing is bound to {name!r} any more.", markup=False)


@application.command("list")
def list_bindings(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List what is bound to names.

    Example: `jmsql binding list`
    """
    with open_database(url, schema).administration() as administration:
        bindings = administration.bindings()
    if as_json:
        print_json({name: _shown(administered) for name, administered in bindings.items()})
        return
    if not bindings:
        console().print("Nothing is bound.")
        return
    listing = table("name", "object")
    for name, administered in bindings.items():
        listing.add_row(name, _shown(administered))
    print_table(listing)


def _shown(administered: object) -> str:
    return str(administered) if isinstance(administered, Destination) else repr(administered)
