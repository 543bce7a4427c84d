"""Bringing the schema to the version that this release works with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import sqlalchemy
from sqlalchemy import Connection

from jmsql.exceptions import JMSException
from jmsql.store.engine import open_engine
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import quote_identifier

# Alembic is imported where it is used: it takes longer than all else that clients import.

__all__ = ["check_schema", "check_version", "current_version", "migrate", "newest_version", "target_schema"]

DEFAULT_SCHEMA = "jmsql"
_MIGRATION_LOCK = 0x6A6D73716C  # "jmsql": two runs at once wait for each other
_LONGEST_NAME = 63
"""How many bytes of a name PostgreSQL keeps."""
_UNFIT = set("'$%{}")


def target_schema() -> str:
    """Tell a running migration, in SQL's quotes, which schema to work on."""
    from alembic import op

    config = op.get_context().config
    name = None if config is None else config.get_main_option("jmsql_schema")
    return quote_identifier(name or DEFAULT_SCHEMA)


@cache
def _migrations_directory() -> Path:
    package = Path(__file__).resolve().parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


@cache
def newest_version() -> str:
    """Return the version of the schema that this release works with: the number of its newest migration."""
    return max(path.name for path in (_migrations_directory() / "versions").glob("[0-9]*.py")).partition("_")[0]


def current_version(connection: Connection, schema: str = DEFAULT_SCHEMA) -> str | None:
    """Return the version of the schema in the database, or None if the schema is not there."""
    table = f"{quote_identifier(schema)}.schema_version"
    if connection.scalar(sqlalchemy.select(sqlalchemy.func.to_regclass(table))) is None:
        return None
    version: str | None = connection.scalar(sqlalchemy.text(f"select version_num from {table}"))
    return version


def check_schema(connection: Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """Make sure that the schema is there and of the right version.

    Raises:
        JMSException: It is not; the message says what to do.
    """
    check_version(current_version(connection, schema), schema)


def check_version(found: str | None, schema: str) -> None:
    """Make sure that a version of the schema, None if it is not there, is the right one.

    Raises:
        JMSException: It is not; the message says what to do.
    """
    if found == newest_version():
        return
    if found is None:
        raise JMSException(
            f"The database has no schema {schema!r}: run `jmsql migrate`, or jmsql.migrate(), to make it.",
            "3F000",
        )
    if found < newest_version():
        advice = "run `jmsql migrate`, or jmsql.migrate(), to bring it up to date"
    else:
        advice = "it was made by a newer release: upgrade jmsql"
    raise JMSException(
        f"The schema {schema!r} has version {found}, and this release works with version {newest_version()}: {advice}.",
        "3F000",
    )


def _check_name(schema: str) -> None:
    """Refuse a name that the migrations cannot write into functions, where it stands in literals too."""
    if not 0 < len(schema.encode()) <= _LONGEST_NAME or _UNFIT & set(schema):
        raise JMSException(
            f"The schema cannot be named {schema!r}: choose a name of 1 to {_LONGEST_NAME} bytes without any of "
            f"{' '.join(sorted(_UNFIT))}"
        )


def migrate(url: str, schema: str = DEFAULT_SCHEMA, version: str = "head") -> None:
    """Make the schema, or bring it to the newest version.

    Safe to run twice, and by several processes at once. Needs no superuser: the right to create a schema in the
    database, or to create objects in the schema if it is there.

    Args:
        url: Where the database is, as for [`ConnectionFactory`][jmsql.ConnectionFactory].
        schema: The schema's name.
        version: The version to bring it to.

    Raises:
        JMSException: The database cannot be reached, or the migration failed; then nothing has changed. Or the name
            has a character that cannot be in it.
    """
    _check_name(schema)
    engine = open_engine(url)
    try:
        with jms_errors(f"migrating the schema {schema!r}"), engine.begin() as connection:
            lock = sqlalchemy.func.pg_advisory_xact_lock(_MIGRATION_LOCK, type_=sqlalchemy.Text())
            connection.execute(sqlalchemy.select(lock))
            if version != "head" or current_version(connection, schema) != newest_version():
                _upgrade(connection, schema, version)
    finally:
        engine.dispose()


def _upgrade(connection: Connection, schema: str, version: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations_directory()).replace("%", "%%"))
    config.set_main_option("jmsql_schema", schema.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, version)
