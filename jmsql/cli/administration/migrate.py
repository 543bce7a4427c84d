"""`jmsql migrate`."""

from __future__ import annotations

from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.terminal.output import console, print_json, working
from jmsql.store.schema import migration
from jmsql.store.schema.version import newest_version

__all__ = ["migrate"]


def migrate(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Make the schema in the database, or bring it to the version that this release works with.

    Safe to run twice, and by several at once. It needs no superuser, only the right to create a schema: CREATE on
    the database. A schema that is there is brought up to date by its owner.

    Example: `jmsql migrate --url postgresql://app@db/shop`
    """
    database = open_database(url, schema)
    with working(f"Migrating the schema {schema!r} ..."):
        before = migration.migrate(database.url, schema)
    after = newest_version()
    if as_json:
        print_json({"schema": schema, "from": before, "to": max(before or after, after, key=int)})
    elif before == after:
        console().print(f"The schema {schema!r} is at version {after} already.")
    elif before is not None and int(before) > int(after):
        console().print(
            f"The schema {schema!r} is at version {before}, of the next release, with which this one works as well."
        )
    else:
        console().print(f"Migrated the schema {schema!r} from version {before or '(none)'} to {after}.")
