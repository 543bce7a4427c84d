"""The schema of jmsql: `manage.py migrate` makes it and brings it up to date, and a system check looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, Error, connections, router
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation, OperationCategory
from django.db.migrations.recorder import MigrationRecorder

from jmsql.django.configuration import connection_factory, database_alias, require_psycopg, schema_name
from jmsql.exceptions import JMSException
from jmsql.store.identifier import internal_schema, quote_identifier
from jmsql.store.schema.migration import migrate
from jmsql.store.schema.version import check_name, check_own, current_version, newest_version
from jmsql.store.wire._sync.runner import PsycopgRunner

_APP = "jmsql"
"""The label of the app."""

NEWEST_MIGRATION = "0001_schema"
"""The migration that brings the schema to the version of this release."""


class MigrateSchema(Operation):
    """Makes the schema, or brings it to the version of this release, in the database that has the messages.

    Each version of the schema has a migration, so that Django knows the missing migrations of an older schema.

    Args:
        version: The version that the migration asks for at least.
    """

    reduces_to_sql = False
    category = OperationCategory.ADDITION

    def __init__(self, version: str) -> None:
        self.version = version

    def state_forwards(self, app_label: str, state: object) -> None:
        """Do nothing: the tables are no models."""

    def database_forwards(self, _: str, schema_editor: Any, *__: object) -> None:
        """Migrate the schema, unless it has the version.

        Raises:
            JMSException: PostgreSQL refused.
        """
        alias = schema_editor.connection.alias
        if _has_messages(alias) and int(_version(alias) or 0) < int(self.version):
            _migrate()

    def database_backwards(self, _: str, schema_editor: Any, *__: object) -> None:
        """Refuse to delete the messages.

        Raises:
            IrreversibleError: The database has the schema.
        """
        alias = schema_editor.connection.alias
        if _has_messages(alias) and _version(alias) is not None:
            schema = schema_name()
            names = ", ".join(map(quote_identifier, (schema, internal_schema(schema))))
            raise IrreversibleError(
                f"The schema {schema!r} may have messages, so it is not dropped. Drop it yourself, by SQL: drop schema "
                f"{names} cascade. Then run the command again."
            )

    def describe(self) -> str:
        """Return its description."""
        return f"Bring the schema {schema_name()!r} of jmsql to version {self.version}"


def _has_messages(alias: str) -> bool:
    return alias == database_alias() and router.allow_migrate(alias, _APP)


def _migrate() -> None:
    factory = connection_factory()
    assert factory.url is not None
    migrate(factory.url, factory.schema)


def _is_expected(alias: str) -> bool:
    """Return True unless the migration of the schema is still to be applied in a database."""
    module, _ = MigrationLoader.migrations_module(_APP)
    if module is None:
        return True
    return (_APP, NEWEST_MIGRATION) in MigrationRecorder(connections[alias]).applied_migrations()


def restore_schema(
    using: str, verbosity: int = 1, stdout: Any = None, plan: Sequence[tuple[Any, bool]] = (), **_: Any
) -> None:
    """Make a schema again that is gone though its migration was applied; called before each `migrate`.

    A project that switches migrations off has its schema by this alone.

    Raises:
        JMSException: PostgreSQL refused.
    """
    if not _has_messages(using) or _version(using) == newest_version() or not _is_expected(using):
        return
    if any(migration.app_label == _APP and is_backwards for migration, is_backwards in plan):
        return
    if verbosity >= 1 and stdout is not None:
        stdout.write(f"  Bringing the schema {schema_name()} of jmsql to version {newest_version()}")
    _migrate()


def _version(alias: str) -> str | None:
    """Return the version of the schema in a database, None if it is not there."""
    connection = require_psycopg(alias)
    with connection.wrap_database_errors:
        connection.ensure_connection()
        return PsycopgRunner(connection.connection, schema_name()).run(current_version(schema_name()))


def check_settings(app_configs: object, **_: Any) -> list[checks.CheckMessage]:  # noqa: ARG001 - the same for all apps
    """Find a database of the settings that cannot have messages, or a schema that cannot be theirs."""
    try:
        require_psycopg(database_alias())
        check_name(schema_name())
    except (ImproperlyConfigured, JMSException) as error:
        return [checks.Error(str(error), id="jmsql.E001")]
    return []


def check_schema(
    app_configs: object,  # noqa: ARG001 - the same for all apps
    databases: Sequence[str] | None = None,
    **_: Any,
) -> list[checks.CheckMessage]:
    """Find a schema that is missing, or of a version that is not this release's."""
    alias = database_alias()
    if alias not in (databases or ()) or check_settings(None):
        return []
    try:
        found, is_expected = _version(alias), _is_expected(alias)
    except (Error, JMSException) as error:
        return [checks.Error(f"The schema of jmsql cannot be looked at: {error}", id="jmsql.E002")]
    schema, newest = schema_name(), newest_version()
    if found is None:
        try:
            check_own(schema)
        except JMSException as error:
            return [checks.Error(str(error), id="jmsql.E001")]
    is_older = found is None or int(found) < int(newest)
    if found == newest or (is_older and not is_expected):  # `migrate --check` tells of migrations to apply
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
    option = "" if alias == DEFAULT_DB_ALIAS else f" --database {alias}"
    is_there = "is not there" if found is None else f"has version {found}"
    return [
        checks.Warning(
            f"The schema {schema!r} of jmsql {is_there}, and this release has version {newest}.",
            hint=None if not is_older else f"Run `manage.py migrate{option}`.",
            id="jmsql.W001",
        )
    ]
