"""Bringing the schema to the version that this release works with."""

from __future__ import annotations

import importlib.resources
import shlex
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine

from jmsql.exceptions import JMSException, JMSSecurityException
from jmsql.public_names import set_module
from jmsql.store.engine import open_engine
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import Schema, in_schema, internal_schema, quote_identifier

# Alembic is imported where it is used: it takes longer than all else that clients import.

__all__ = [
    "DEFAULT_SCHEMA",
    "VERSION_TABLE",
    "apply_revision",
    "check_schema",
    "check_version",
    "create_schemas",
    "current_version",
    "migrate",
    "migrate_command",
    "newest_version",
]

DEFAULT_SCHEMA = "jmsql"
VERSION_TABLE = "schema_version"
_MADE_BY_ANOTHER = (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateTable)
"""What a run fails with that has waited for another to make the same schema."""
_one_run = threading.Lock()
"""Held while a thread migrates: Alembic keeps what it works on in its module."""
_LONGEST_NAME = 63 - len(internal_schema(""))
"""How many bytes the name of a schema may have, so that PostgreSQL keeps all of that of its internals."""
_UNFIT = set("'$%{}")
_RIGHTS = sqlalchemy.text(
    """
    select current_user::text, current_database()::text,
           (select pg_get_userbyid(n.nspowner)::text from pg_namespace n where n.nspname = :schema)"""
)


def create_schemas(schema: str) -> str:
    """Return the SQL that makes the schema and that of its internals if they are not there.

    Only then it takes the right to do so.
    """
    quoted = Schema(schema)
    return "".join(
        f"do $$ begin if to_regnamespace('{name}') is null then create schema {name}; end if; end $$;"
        for name in (quoted, quoted.internal)
    )


def apply_revision(version: str, scripts: Iterable[Path]) -> None:
    """Have a running migration bring its schema to a version, by executing the SQL of files."""
    from alembic import op

    context = op.get_context()
    name = None if context.config is None else context.config.get_main_option("jmsql_schema")
    schema = name or DEFAULT_SCHEMA
    op.execute(create_schemas(schema))
    for script in scripts:
        op.execute(in_schema(script.read_text(encoding="utf-8"), schema))
    if (context.version_table_schema, context.version_table) != (schema, VERSION_TABLE):
        # An application's own Alembic notes the versions of all that it migrates elsewhere.
        table = f"{quote_identifier(schema)}.{VERSION_TABLE}"
        op.execute(
            f"create table if not exists {table} (version_num varchar(32) primary key); "
            f"delete from {table}; insert into {table} values ('{version}')"
        )


@cache
def _migrations_directory() -> Traversable:
    """Return the directory of the migrations, which may be in a ZIP archive: Spark brings packages along so."""
    installed = importlib.resources.files("jmsql").joinpath("migrations")
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "migrations"


@cache
def newest_version() -> str:
    """Return the version of the schema that this release works with: the number of its newest migration."""
    names = (path.name for path in _migrations_directory().joinpath("versions").iterdir())
    return max((name.partition("_")[0] for name in names if name[0].isdigit()), key=int)


def current_version(connection: Connection, schema: str = DEFAULT_SCHEMA) -> str | None:
    """Return the version of the schema in the database, or None if the schema is not there."""
    table = f"{quote_identifier(schema)}.{VERSION_TABLE}"
    if connection.scalar(sqlalchemy.select(sqlalchemy.func.to_regclass(table))) is None:
        return None
    version: str | None = connection.scalar(sqlalchemy.text(f"select version_num from {table}"))
    return version


def migrate_command(schema: str) -> str:
    """Return the command that makes the schema or brings it up to date, for advice."""
    return "`jmsql migrate`" if schema == DEFAULT_SCHEMA else f"`jmsql migrate --schema {shlex.quote(schema)}`"


def check_schema(connection: Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """Make sure that the schema is there and of a version that this release works with.

    Raises:
        JMSException: It is not; the message says what to do.
    """
    check_version(current_version(connection, schema), schema)


def check_version(found: str | None, schema: str) -> None:
    """Make sure that this release works with a version of the schema, None if it is not there.

    It does with its own, the one before and the one after, so that processes of two releases run side by side.

    Raises:
        JMSException: It does not; the message says what to do.
    """
    if found is None:
        raise JMSException(
            f"The database has no schema {schema!r}: run {migrate_command(schema)}, or jmsql.migrate(), to make it.",
            "3F000",
        )
    number, newest = int(found), int(newest_version())
    if max(newest - 1, 1) <= number <= newest + 1:
        return
    if number < newest:
        advice = f"run {migrate_command(schema)}, or jmsql.migrate(), to bring it up to date"
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


@set_module("jmsql")
def migrate(url: str, schema: str = DEFAULT_SCHEMA) -> str | None:
    """Make the schema, or bring it to the newest version.

    Safe to run twice, and by several processes at once. Needs no superuser: the right to create a schema in the
    database, or to create objects in the schema if it is there.

    Args:
        url: Where the database is, as for [`ConnectionFactory`][jmsql.ConnectionFactory].
        schema: The schema's name.

    Returns:
        The version that it had; None if it was not there.

    Raises:
        JMSSecurityException: The role lacks a right; the message says which, and who can give it.
        JMSException: The database cannot be reached, or the migration failed; then nothing has changed. Or the name
            has a character that cannot be in it, or the schema is of a release after the next one.
    """
    _check_name(schema)
    engine = open_engine(url)
    try:
        with _one_run, jms_errors(f"migrating the schema {schema!r}"), _sufficient_rights(engine, schema):
            try:
                with engine.begin() as connection:
                    return _migrate(connection, schema)
            except sqlalchemy.exc.DBAPIError as error:
                if not isinstance(error.orig, _MADE_BY_ANOTHER):
                    raise
            with engine.begin() as connection:
                return _migrate(connection, schema)
    finally:
        engine.dispose()


def _has_tables(connection: Connection, schema: str) -> bool:
    table = f"{Schema(schema).internal}.message"
    return connection.scalar(sqlalchemy.select(sqlalchemy.func.to_regclass(table))) is not None


def _migrate(connection: Connection, schema: str) -> str | None:
    former = current_version(connection, schema)
    if former is not None and former != newest_version():
        # Not an advisory lock, which any role could take and keep.
        connection.exec_driver_sql(f"lock table {quote_identifier(schema)}.{VERSION_TABLE} in share row exclusive mode")
        former = current_version(connection, schema)
    if (former is not None) != _has_tables(connection, schema):
        there, missing = (internal_schema(schema), schema) if former is None else (schema, internal_schema(schema))
        raise JMSException(
            f"There is a schema {there!r}, but none {missing!r} that belongs to it: restore that from a backup, or "
            "drop what is left of both to begin again. Versions before the first release made only one."
        )
    if former is not None and int(former) >= int(newest_version()):
        check_version(former, schema)
    else:
        _upgrade(connection, schema)
    return former


@contextmanager
def _sufficient_rights(engine: Engine, schema: str) -> Iterator[None]:
    """Say which right is missing, where one is, and who gives it."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise
        with engine.connect() as connection:
            role, database, owner = connection.execute(_RIGHTS, {"schema": schema}).one()
        if owner is None:
            advice = (
                f"{role!r} may not create a schema in the database {database!r}. Have its owner or a superuser run "
                f"`grant create on database {quote_identifier(database)} to {quote_identifier(role)}`"
            )
        elif owner != role:
            advice = f"{owner!r} owns it, and {role!r} may not change it. Run {migrate_command(schema)} as {owner!r}"
        else:
            advice = f"something in it belongs to a role other than {role!r}"
        raise JMSSecurityException(
            f"migrating the schema {schema!r}: {advice} ({error.orig.diag.message_primary}).", error.orig.sqlstate
        ) from error


def _upgrade(connection: Connection, schema: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations_directory()).replace("%", "%%"))
    config.set_main_option("jmsql_schema", schema.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
