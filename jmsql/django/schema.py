"""The schema of jmsql: `manage.py migrate` makes it and brings it up to date, and a system check looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, router

from jmsql.django.configuration import connection_factory, database_alias, require_psycopg, schema_name
from jmsql.exceptions import JMSException
from jmsql.store.schema.migration import migrate
from jmsql.store.schema.version import current_version, newest_version
from jmsql.store.wire._sync.runner import PsycopgRunner


def migrate_schema(using: str, verbosity: int = 1, stdout: Any = None, **_: Any) -> None:
    """Make the schema, or bring it to the version of this release; called by Django after each `migrate`.

    Raises:
        JMSException: PostgreSQL refused.
    """
    if using != database_alias() or not router.allow_migrate(using, "jmsql"):
        return
    factory = connection_factory()
    if _version(using) == newest_version():
        return
    if verbosity >= 1 and stdout is not None:
        stdout.write(f"  Bringing the schema {factory.schema} of jmsql to version {newest_version()}")
    assert factory.url is not None
    migrate(factory.url, factory.schema)


def _version(alias: str) -> str | None:
    """Return the version of the schema in a database, None if it is not there."""
    connection = require_psycopg(alias)
    with connection.wrap_database_errors:
        connection.ensure_connection()
        return PsycopgRunner(connection.connection, schema_name()).run(current_version(schema_name()))


def check_settings(app_configs: object, **_: Any) -> list[checks.CheckMessage]:  # noqa: ARG001 - whatever is checked
    """Find a database of the settings that cannot have messages."""
    try:
        require_psycopg(database_alias())
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="jmsql.E001")]
    return []


def check_schema(
    app_configs: object,  # noqa: ARG001 - whatever is checked
    databases: Sequence[str] | None = None,
    **_: Any,
) -> list[checks.CheckMessage]:
    """Find a schema that is missing, or of a version that is not this release's."""
    alias = database_alias()
    if alias not in (databases or ()) or check_settings(None):
        return []
    try:
        found = _version(alias)
    except (Error, JMSException) as error:
        return [checks.Error(f"The schema of jmsql cannot be looked at: {error}", id="jmsql.E002")]
    schema, newest = schema_name(), newest_version()
    if found == newest:
        return []
    if found is not None and int(found) > int(newest) + 1:
        return [
            checks.Error(
                f"The schema {schema!r} has version {found}, which is too new for this release of jmsql: it works with "
                f"version {newest}.",
                hint="Install the release of jmsql with which the schema was migrated, or a newer one.",
                id="jmsql.E003",
            )
        ]
    is_there = "is not there" if found is None else f"has version {found}"
    return [
        checks.Warning(
            f"The schema {schema!r} of jmsql {is_there}, and this release has version {newest}.",
            hint=None if found is not None and int(found) > int(newest) else "Run `manage.py migrate`.",
            id="jmsql.W001",
        )
    ]
