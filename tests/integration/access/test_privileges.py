"""What each kind of role may do with each object of the schema, compared to the list in privileges.ini."""

from __future__ import annotations

import configparser
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

from jmsql import migrate
from jmsql.embedded import start_server
from tests.integration.access.role_kinds import KINDS, roles_of_each_kind

LIST = Path(__file__).with_name("privileges.ini")

COLUMNS_OF_THE_LIST = ("nobody", "browse", "send", "receive", "administer")

PRIVILEGES_ON_TABLES = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
PRIVILEGES_ON_COLUMNS = ("select", "insert", "update", "references")
LOCKS = (
    "row share",
    "row exclusive",
    "share update exclusive",
    "share",
    "share row exclusive",
    "exclusive",
    "access exclusive",
)


def other_servers() -> list[str]:
    """The versions of PostgreSQL on the machine that the tests do not run on."""
    ours = Path(os.environ.get("JMSQL_TEST_PROGRAMS", "/"))
    return [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin")) if path != ours]


TESTS_SERVER = "tests' server"
DEFAULT_PRIVILEGES = "default privileges"
"""A database of the tests' server in which new functions are their owner's alone."""


@pytest.fixture(
    scope="module",
    params=[TESTS_SERVER, DEFAULT_PRIVILEGES, *other_servers()],
    ids=lambda place: Path(place).parent.name or place,
)
def database(request: pytest.FixtureRequest, jmsql_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The owner's connection to a schema of each server, in which somebody keeps history."""
    if request.param == TESTS_SERVER:
        with psycopg.connect(jmsql_url, autocommit=True) as connection:
            yield connection
        return
    if request.param == DEFAULT_PRIVILEGES:
        url = sqlalchemy.make_url(jmsql_url)
        another = url.set(database=f"{url.database}_privileges")
        name = sql.Identifier(another.database or "")
        with psycopg.connect(jmsql_url, autocommit=True) as owner:
            owner.execute(sql.SQL("create database {}").format(name))
            try:
                with psycopg.connect(another.render_as_string(hide_password=False), autocommit=True) as connection:
                    connection.execute("alter default privileges revoke execute on functions from public")
                    migrate(another.render_as_string(hide_password=False))
                    yield connection
            finally:
                owner.execute(sql.SQL("drop database {} with (force)").format(name))
        return
    with tempfile.TemporaryDirectory(prefix="jmsql-tests-") as directory:
        Path(directory).chmod(0o711)  # for root: the server's account must pass through
        with start_server(Path(directory, "data"), programs=Path(request.param), durable=False) as server:
            migrate(server.url)
            with psycopg.connect(server.url, autocommit=True) as connection:
                yield connection


@pytest.fixture
def roles(database: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """A role of each kind."""
    protected = (
        "select oid::regclass::text from pg_class where relrowsecurity "
        "and relnamespace = 'jmsql_internal'::regnamespace"
    )
    before = database.execute(protected).fetchall()
    database.execute("select jmsql_internal.make_history_partition('2001-02-03')")
    with roles_of_each_kind(database) as names:
        assert all(names[kind] for kind in KINDS)  # made outside of the transactions of tests, which roll back
        yield names
    database.execute("drop table jmsql_internal.message_history_20010203; delete from jmsql_internal.permission")
    for (table,) in set(database.execute(protected).fetchall()) - set(before):
        database.execute(f"alter table {table} disable row level security".encode())


def privileges_on_tables(database: psycopg.Connection[Any], role: str) -> dict[str, str]:
    """What a role may do with each table and view: a privilege, or one with columns."""
    found: dict[str, list[str]] = {}
    rows = database.execute(
        """
        select c.relname, p.privilege, has_table_privilege(%(role)s, c.oid, p.privilege),
               array(select a.attname from pg_attribute a
                     where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                       and p.privilege = any(%(on_columns)s)
                       and has_column_privilege(%(role)s, c.oid, a.attnum, p.privilege)
                     order by a.attname)
        from pg_class c
        cross join unnest(%(privileges)s::text[]) with ordinality as p (privilege, number)
        where c.relnamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
          and c.relkind in ('r', 'p', 'v', 'm', 'f')
        order by c.relname, p.number
        """,
        {
            "role": role,
            "privileges": [
                *PRIVILEGES_ON_TABLES,
                *(["maintain"] if database.info.server_version >= 170000 else []),
            ],
            "on_columns": list(PRIVILEGES_ON_COLUMNS),
        },
    )
    for table, privilege, on_table, columns in rows:
        name = "message_history_*" if table.startswith("message_history_") else table
        given = found.setdefault(name, [])
        if on_table:
            given.append(privilege)
        elif columns:
            given.append(f"{privilege} ({', '.join(columns)})")
    return {name: ", ".join(given) for name, given in found.items()}


def privileges_on_others(database: psycopg.Connection[Any], role: str) -> dict[str, str]:
    """What a role may do with each sequence and function, and with the schema."""
    rows = database.execute(
        """
        select 'sequence ' || c.relname, p.privilege, has_sequence_privilege(%(role)s, c.oid, p.privilege)
        from pg_class c cross join unnest(array['usage', 'select', 'update']) p (privilege)
        where c.relnamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace) and c.relkind = 'S'
        union all
        select 'function ' || regexp_replace(p.oid::regprocedure::text, 'jmsql(_internal)?[.]', '', 'g')
                   || case when p.prosecdef then ' (with its owner''s rights)' else '' end,
               'execute', has_function_privilege(%(role)s, p.oid, 'execute')
        from pg_proc p where p.pronamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
        union all
        select 'schema ' || n.nspname, p.privilege, has_schema_privilege(%(role)s, n.oid, p.privilege)
        from pg_namespace n, unnest(array['usage', 'create']) p (privilege)
        where n.nspname in ('jmsql', 'jmsql_internal')
        """,
        {"role": role},
    )
    found: dict[str, list[str]] = {}
    for name, privilege, given in rows:
        found.setdefault(name, []).extend([privilege] if given else [])
    return {name: ", ".join(given) for name, given in found.items()}


def all_privileges(database: psycopg.Connection[Any], role: str) -> dict[str, str]:
    tables = {f"table {name}": given for name, given in privileges_on_tables(database, role).items()}
    return tables | privileges_on_others(database, role)


def listed() -> dict[str, dict[str, str]]:
    """What privileges.ini says, by what a role may do, and by object."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(LIST)
    found: dict[str, dict[str, str]] = {column: dict.fromkeys(parser.sections(), "") for column in COLUMNS_OF_THE_LIST}
    for name in parser.sections():
        for columns, privileges in parser[name].items():
            for column in columns.split(", "):
                found[column][name] = " ".join(privileges.split())
    return found


def test_each_role_has_the_privileges_that_are_listed_and_no_other(
    database: psycopg.Connection[Any], roles: dict[str, str]
) -> None:
    expected = listed()
    for kind, (action, _) in KINDS.items():
        actual = all_privileges(database, roles[kind])
        wanted = expected[action or "nobody"]
        assert sorted(actual) == sorted(wanted), "each object has a section in privileges.ini"
        assert actual == wanted, kind


def test_administrators_alone_lock_a_table_against_others(
    database: psycopg.Connection[Any], roles: dict[str, str]
) -> None:
    tables = [
        name
        for (name,) in database.execute(
            """
            select oid::regclass::text from pg_class
            where relnamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace) and relkind in ('r', 'p', 'v')
            """
        )
    ]
    for kind in KINDS:
        if kind == "administrator":
            continue
        with database.transaction(force_rollback=True):
            database.execute(sql.SQL("set local role {}").format(sql.Identifier(roles[kind])))
            for table in tables:
                for lock in LOCKS:
                    statement = f"lock table {table} in {lock} mode nowait"
                    with pytest.raises(psycopg.errors.InsufficientPrivilege), database.transaction():
                        database.execute(statement.encode())


def test_no_function_of_a_trigger_can_be_had_for_a_table_of_ones_own(
    database: psycopg.Connection[Any], roles: dict[str, str]
) -> None:
    functions = [
        name
        for (name,) in database.execute(
            """
            select oid::regproc::text from pg_proc
            where pronamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
              and prorettype = 'trigger'::regtype
            """
        )
    ]
    assert functions
    for kind in KINDS:
        with database.transaction(force_rollback=True):
            database.execute(sql.SQL("set local role {}").format(sql.Identifier(roles[kind])))
            database.execute("create temporary table mine (queue_id integer)")
            for function in functions:
                statement = f"create trigger t after insert on mine for each row execute function {function}()"
                with pytest.raises(psycopg.errors.InsufficientPrivilege), database.transaction():
                    database.execute(statement.encode())


@pytest.mark.parametrize(
    "change", ["grant execute on all functions in schema {} to", "revoke execute on all functions in schema {} from"]
)
def test_a_grant_after_a_restore_without_privileges_leaves_each_function_to_its_roles(
    database: psycopg.Connection[Any], roles: dict[str, str], change: LiteralString
) -> None:
    before = {kind: all_privileges(database, roles[kind]) for kind in ("stranger", "sender")}
    with database.transaction(force_rollback=True):
        # By PostgreSQL's default, or by the database's (`alter default privileges`).
        for schema in ("jmsql", "jmsql_internal"):
            database.execute(sql.SQL(f"{change} public").format(sql.Identifier(schema)))
        assert {kind: all_privileges(database, roles[kind]) for kind in before} != before
        database.execute("select jmsql.grant_access('orders', %s, 'send')", [roles["sender"]])
        assert {kind: all_privileges(database, roles[kind]) for kind in before} == before
        database.execute(sql.SQL("set local role {}").format(sql.Identifier(roles["sender"])))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.execute("select jmsql_internal.permit(current_user, array['administer'], null)")


def test_a_grant_forgets_the_permissions_of_roles_that_were_dropped(
    database: psycopg.Connection[Any], roles: dict[str, str]
) -> None:
    of_dropped = "select count(*) from jmsql_internal.permission where grantee not in (select oid from pg_roles)"
    with database.transaction(force_rollback=True):
        database.execute("create role jmsql_test_dropped")
        database.execute("select jmsql.grant_access('orders', 'jmsql_test_dropped', 'send', 'receive')")
        database.execute("drop owned by jmsql_test_dropped")
        database.execute("drop role jmsql_test_dropped")
        assert database.execute(of_dropped).fetchone() == (2,)
        database.execute("select jmsql.grant_access('orders', %s, 'send')", [roles["sender"]])
        assert database.execute(of_dropped).fetchone() == (0,)
        assert database.execute(
            "select count(*) from jmsql_internal.access_list where grantee not in (select oid from pg_roles)"
        ).fetchone() == (0,)
