"""`jmsql migrate`, `jmsql roles` and `jmsql binding`: the schema, who has access, and objects by name."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.options import Json, Schema, Url, command_group, open_database, read_destination
from jmsql.cli.output import answer, console, print_json, print_rows, print_table, table, working
from jmsql.store.schema.version import newest_version
from jmsql.values.destinations import Destination


def migrate(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Create the schema in the database, or migrate it to the version of this release.

    Safe to run twice, and by several at once. It needs no superuser, only the right to create a schema: CREATE on
    the database. A schema that is there is brought up to date by its owner.

    Example: `jmsql migrate --url postgresql://app@db/shop`
    """
    from jmsql.store.schema import migration  # loads Alembic

    database = open_database(url, schema)
    with working(f"Migrating the schema {schema!r} ..."):
        before = migration.migrate(database.url, schema)
    after = newest_version()
    if before == after:
        text = f"The schema {schema!r} in {database} is at version {after} already."
    elif before is not None and int(before) > int(after):
        text = (
            f"The schema {schema!r} in {database} is at version {before}, of the next release, with which this one "
            "works as well."
        )
    else:
        text = f"Migrated the schema {schema!r} in {database} from version {before or '(none)'} to {after}."
    versions = {"from": before, "to": max(before or after, after, key=int)}
    answer(database.place._asdict() | {"schema": schema} | versions, text, as_json=as_json)


roles = command_group(
    "Make the roles that have access to all destinations, and see who has access to which.\n\n"
    "Example: `jmsql roles create`"
)


@roles.command()
def create(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Make the roles jmsql_producer, jmsql_consumer, jmsql_browser and jmsql_admin, if they are not there.

    Their members may send to, receive from, browse or administer all destinations of the schema, as the names say. It
    takes a role that may make others (CREATEROLE) and owns the schema. It switches PostgreSQL's row security on: from
    then on, only the owner of the schema and those who were given access do anything with destinations.

    Example: `jmsql roles create`
    """
    with open_database(url, schema).administration() as administration:
        made = administration.create_roles()
    text = f"Made {', '.join(made)}." if made else "The roles were there; they have their rights."
    answer({"made": made}, text, as_json=as_json)


@roles.command("list")
def list_roles(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the roles that have access to destinations.

    Example: `jmsql roles list --json`
    """
    with open_database(url, schema).administration() as administration:
        summaries = administration.grants()
    actions = ("send", "receive", "browse", "administer")
    print_rows(
        summaries,
        lambda each: (
            each.role,
            "(all)" if each.destination is None else f"{each.kind}://{each.destination}",
            *("yes" if getattr(each, action) else "" for action in actions),
        ),
        *("role", "destination", *actions),
        nothing="No access was granted. The schema's owner has it, and the roles that were granted its tables.",
        as_json=as_json,
    )


bindings = command_group(
    "Keep connection factories and destinations in the database, for `jmsql.lookup`.\n\n"
    "Example: `jmsql binding bind jms/orders queue://orders`"
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Such as jms/orders.", show_default=False)]


@bindings.command()
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
    """Bind a queue, a topic, or a connection factory to a name, in place of an earlier object.

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


@bindings.command()
def unbind(name: Name, url: Url = None, schema: Schema = "jmsql") -> None:
    """Remove the object that is bound to a name.

    Example: `jmsql binding unbind jms/orders`
    """
    with open_database(url, schema).administration() as administration:
        administration.unbind(name)
    console().print(f"Nothing is bound to {name!r} any more.", markup=False)


@bindings.command("list")
def list_bindings(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the bound objects by name.

    Example: `jmsql binding list`
    """
    with open_database(url, schema).administration() as administration:
        found = administration.bindings()
    if as_json:
        print_json({name: _shown(administered) for name, administered in found.items()})
        return
    if not found:
        console().print("Nothing is bound.")
        return
    listing = table("name", "object")
    for name, administered in found.items():
        listing.add_row(name, _shown(administered))
    print_table(listing)


def _shown(administered: object) -> str:
    return str(administered) if isinstance(administered, Destination) else repr(administered)
