"""`jmsql roles`: who may do what."""

from __future__ import annotations

import typer

from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.terminal.output import console, print_json, print_table, table

__all__ = ["application"]

application = typer.Typer(
    help="Make the roles that have access to all destinations, and see who has access to which.\n\n"
    "Example: `jmsql roles create`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@application.command()
def create(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Make the roles jmsql_producer, jmsql_consumer, jmsql_browser and jmsql_admin, if they are not there.

    Their members may do with all destinations of the schema what the roles are called after. It takes a role that may
    make others (CREATEROLE) and owns the schema. It switches PostgreSQL's row security on: from then on, only the owner
    of the schema and those who were given access do anything with destinations.

    Example: `jmsql roles create`
    """
    with open_database(url, schema).administration() as administration:
        made = administration.create_roles()
    if as_json:
        print_json({"made": made})
    else:
        console().print(f"Made {', '.join(made)}." if made else "The roles were there; they have their rights.")


@application.command("list")
def list_roles(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the roles that have access to destinations.

    Example: `jmsql roles list --json`
    """
    with open_database(url, schema).administration() as administration:
        summaries = administration.grants()
    if as_json:
        print_json([summary._asdict() for summary in summaries])
        return
    if not summaries:
        console().print("No access was granted. The schema's owner has it, and the roles that were granted its tables.")
        return
    actions = ("send", "receive", "browse", "administer")
    listing = table("role", "destination", *actions)
    for each in summaries:
        destination = "(all)" if each.destination is None else f"{each.kind}://{each.destination}"
        listing.add_row(each.role, destination, *("yes" if getattr(each, action) else "" for action in actions))
    print_table(listing)
