"""Bringing the schema to the version that this release works with."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine

from jmsql.exceptions import JMSException, JMSSecurityException
from jmsql.public_names import set_module
from jmsql.store.connections.engine import open_engine
from jmsql.store.errors import jms_errors
from jmsql.store.identifier import in_schema, internal_schema, quote_identifier
from jmsql.store.schema.version import (
    DEFAULT_SCHEMA,
    VERSION_TABLE,
    check_name,
    check_own,
    check_version,
    current_version,
    migrate_command,
    migrations_directory,
    newest_version,
)
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.clock import monotonic

# Alembic is imported where it is used: it takes longer than all else that clients import.


LONGEST_WAIT = 60.0
"""For how many seconds a migration tries to get its locks."""
_LOCK_TIMEOUT = "500ms"
"""How long it waits for one at a time. All clients that want the same wait behind it, and less than `deadlock_timeout`
has the migration give way, and not a client."""
_PAUSE = 0.5
"""Seconds between two tries, in which clients get on."""
_IN_USE = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

_MADE_BY_ANOTHER = (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateTable)
"""The errors of a run that has waited for another to make the same schema."""
_one_run = threading.Lock()
"""Held while a thread migrates: Alembic keeps its context in a module's globals."""
# Views, policies and defaults bind names when they are created; with another search path, a role could place objects of
# its own there.
_FIND_OWN_OBJECTS = "set local search_path = pg_catalog, pg_temp"
_REQUIRE_ENCODING = """
    do $$ begin
        if current_setting('server_encoding') <> 'UTF8' then
            raise 'The database has the encoding %, which cannot hold every text. jmsql needs UTF8.',
                current_setting('server_encoding')
                using hint = 'create database NAME encoding ''UTF8'' template template0';
        end if;
    end $$"""
_NOTE_SEARCH_PATH = (
    "select pg_catalog.set_config('jmsql.former_search_path', pg_catalog.current_setting('search_path'), true)"
)
_RESTORE_SEARCH_PATH = (
    "select pg_catalog.set_config('search_path', pg_catalog.current_setting('jmsql.former_search_path'), true)"
)
_LIFT_TIME_LIMITS = """
    select pg_catalog.set_config(name, '0', true) from pg_catalog.pg_settings
    where name in ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')"""
"""The role or the database may have limits for the application's statements, some of which a migration exceeds."""
# An event trigger can switch row security on for each new table. Without a policy, roles other than the owner then see
# no row of it.
_DISABLE_ROW_SECURITY = """
    do $$
    declare
        hidden regclass;
    begin
        for hidden in
            select c.oid from pg_catalog.pg_class c
            where c.relnamespace in ('{}'::pg_catalog.regnamespace, '{}'::pg_catalog.regnamespace)
              and c.relrowsecurity and not exists (select from pg_catalog.pg_policy p where p.polrelid = c.oid)
        loop
            execute 'alter table ' || hidden::text || ' disable row level security';
        end loop;
    end
    $$"""
# A dump that was restored without privileges (`pg_restore --no-privileges`) leaves to everybody the functions that run
# with their owner's rights, or no function to anybody, if the database's default privileges say so.
_SET_PRIVILEGES = """
    do $$
    begin
        if (select pg_catalog.pg_has_role(c.relowner, 'usage') from pg_catalog.pg_class c
            where c.relname = 'message' and c.relnamespace = '{0}'::pg_catalog.regnamespace)
        then
            if {0}.has_lost_privileges() then
                perform {0}.renew_privileges();
            end if;
        end if;
    end
    $$"""
_HAS_WRITTEN = "select pg_catalog.pg_current_xact_id_if_assigned() is not null"
_RIGHTS = sqlalchemy.text(
    """
    select current_user::text, current_database()::text,
           (select pg_get_userbyid(n.nspowner)::text from pg_catalog.pg_namespace n where n.nspname = :schema)"""
)


def create_schemas(schema: str) -> str:
    """Return the SQL that creates the schema and its internal one if they do not exist.

    Only then it takes the right to do so.
    """
    return "".join(
        f"do $$ begin if to_regnamespace('{name}') is null then create schema {name}; end if; end $$;"
        for name in map(quote_identifier, (schema, internal_schema(schema)))
    )


def _disable_row_security(schema: str) -> str:
    """Return the SQL that disables row security on the tables of a schema that have no policy."""
    names = [quote_identifier(name).replace("'", "''") for name in (schema, internal_schema(schema))]
    return _DISABLE_ROW_SECURITY.format(*names)


def _set_lost_privileges(schema: str) -> str:
    """Return the SQL that gives functions their privileges again, if they have lost them."""
    return _SET_PRIVILEGES.format(quote_identifier(internal_schema(schema)))


def apply_revision(version: str, scripts: Iterable[Path]) -> None:
    """Have a running migration bring its schema to a version, by executing the SQL of files."""
    from alembic import op

    context = op.get_context()
    name = None if context.config is None else context.config.get_main_option("jmsql_schema")
    schema = name or DEFAULT_SCHEMA
    op.execute(_NOTE_SEARCH_PATH)
    op.execute(_FIND_OWN_OBJECTS)
    op.execute(_REQUIRE_ENCODING)  # an application's own Alembic connects without jmsql
    _execute_several(create_schemas(schema))
    for script in scripts:
        _execute_several(in_schema(script.read_text(encoding="utf-8"), schema))
    if (context.version_table_schema, context.version_table) != (schema, VERSION_TABLE):
        # An application's own Alembic notes the versions of all that it migrates elsewhere.
        table = f"{quote_identifier(schema)}.{VERSION_TABLE}"
        _execute_several(
            f"create table if not exists {table} (version_num varchar(32) primary key); "
            f"delete from {table}; insert into {table} values ('{version}')"
        )
    op.execute(_disable_row_security(schema))
    op.execute(_RESTORE_SEARCH_PATH)


def _execute_several(statements: str) -> None:
    """Have a running migration execute SQL that may hold several statements."""
    from alembic import op

    connection = op.get_context().connection
    if connection is None or connection.dialect.driver != "asyncpg":
        op.execute(statements)
        return
    # On asyncpg, SQLAlchemy prepares what it executes, which can be one statement only. asyncpg itself takes several.
    adapted: Any = connection.connection.dbapi_connection
    adapted.run_async(lambda driver_connection: driver_connection.execute(statements))


def refuse_downgrade() -> None:
    """Have a running migration say why it takes no schema back to the version before.

    Raises:
        JMSException: Always.
    """
    raise JMSException(
        "The schema is never downgraded: a release works with the version after its own, too, so that an older release "
        "can run again without it."
    )


@set_module("jmsql")
def migrate(url: str, schema: str = DEFAULT_SCHEMA) -> str | None:
    """Make the schema, or bring it to the newest version.

    Safe to run twice, by several processes at once, and while clients send and receive. It never waits for a lock for
    more than half a second, which would hold them up, and tries again for a minute. Needs no superuser: the right to
    create a schema in the database, or to create objects in the schema if it is there.

    Args:
        url: Where the database is, as for [`ConnectionFactory`][jmsql.ConnectionFactory].
        schema: The schema's name.

    Returns:
        The version that it had; None if it was not there.

    Raises:
        JMSSecurityException: The role lacks a right; the message says which, and who can give it.
        JMSException: The database cannot be reached, or the migration failed, or other transactions have kept it from
            its locks; then nothing has changed. Or the name has an invalid character, or belongs to a shared schema,
            such as ``public``; or the schema is of a release after the next one.
    """
    check_name(schema)
    engine = open_engine(url, use_native_hstore=False)  # nothing to look up in the search path
    try:
        with _one_run, jms_errors(f"migrating the schema {schema!r}"), _sufficient_rights(engine, schema):
            return _migrate_beside_others(engine, schema)
    finally:
        engine.dispose()


def _migrate_beside_others(engine: Engine, schema: str) -> str | None:
    deadline = monotonic() + LONGEST_WAIT
    made_by_another = False
    while True:
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
                connection.exec_driver_sql(_LIFT_TIME_LIMITS)
                connection.exec_driver_sql(_FIND_OWN_OBJECTS)
                return _migrate(connection, schema)
        except sqlalchemy.exc.DBAPIError as error:
            if isinstance(error.orig, _IN_USE):
                if monotonic() >= deadline:
                    raise JMSException(
                        f"migrating the schema {schema!r}: for {LONGEST_WAIT:g} seconds other transactions have held "
                        "locks that it takes, so nothing was changed. `jmsql doctor` names transactions that stay "
                        "open; let them end, and migrate again.",
                        error.orig.sqlstate,
                    ) from error
                time.sleep(_PAUSE)
            elif made_by_another or not isinstance(error.orig, _MADE_BY_ANOTHER):
                raise
            else:
                made_by_another = True


def _has_tables(connection: Connection, schema: str) -> bool:
    table = f"{quote_identifier(internal_schema(schema))}.message"
    return connection.scalar(sqlalchemy.select(sqlalchemy.func.to_regclass(table))) is not None


def _migrate(connection: Connection, schema: str) -> str | None:
    driver_connection = connection.connection.driver_connection
    assert isinstance(driver_connection, psycopg.Connection)
    runner = PsycopgRunner(driver_connection, schema, prepares=False)
    former = runner.run(current_version(schema))
    if former is None and _has_tables(connection, schema):
        # Another run has committed between the two questions.
        former = runner.run(current_version(schema))
    if former is not None and former != newest_version():
        # Not an advisory lock, which any role could take and keep.
        connection.exec_driver_sql(f"lock table {quote_identifier(schema)}.{VERSION_TABLE} in share row exclusive mode")
        former = runner.run(current_version(schema))
    if (former is not None) != _has_tables(connection, schema):
        there, missing = (internal_schema(schema), schema) if former is None else (schema, internal_schema(schema))
        raise JMSException(
            f"There is a schema {there!r}, but none {missing!r} that belongs to it: restore that from a backup, or "
            "drop what is left of both to begin again. Versions before the first release made only one."
        )
    if former is None:
        check_own(schema)
    if former is not None and int(former) >= int(newest_version()):
        check_version(former, schema)
        connection.exec_driver_sql(_set_lost_privileges(schema))
    else:
        if former is not None:
            # Grants and revocations wait, instead of writing the same rows of the catalog at once.
            permission = f"{quote_identifier(internal_schema(schema))}.permission"
            connection.exec_driver_sql(f"lock table {permission} in share row exclusive mode")
        _upgrade(connection, schema)
        if former is None and not connection.exec_driver_sql(_HAS_WRITTEN).scalar():
            former = runner.run(current_version(schema))  # another run has committed in the meantime
    connection.exec_driver_sql(_disable_row_security(schema))
    return former


@contextmanager
def _sufficient_rights(engine: Engine, schema: str) -> Iterator[None]:
    """Name the missing right, if there is one, and the role that can grant it."""
    try:
        yield
    except (sqlalchemy.exc.DBAPIError, JMSSecurityException) as error:
        refusal = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error.__cause__
        if not isinstance(refusal, psycopg.errors.InsufficientPrivilege):
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
            f"migrating the schema {schema!r}: {advice} ({refusal.diag.message_primary}).", refusal.sqlstate
        ) from error


def _upgrade(connection: Connection, schema: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.set_main_option("jmsql_schema", schema.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _begin_child() -> None:
    """In a forked child: a thread of the parent may migrate, and holds the lock for ever here."""
    global _one_run
    _one_run = threading.Lock()


os.register_at_fork(after_in_child=_begin_child)
