"""Making the schema: under any name that PostgreSQL takes, but for a few characters; by several at once; by Alembic."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import psycopg
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from psycopg import sql
from sqlalchemy.ext.asyncio import create_async_engine

import jmsql
from jmsql.client._sync.link.opening import open_runner
from jmsql.doctor import Health, Thresholds, examine
from jmsql.exceptions import JMSException
from jmsql.store.connections.engine import open_engine
from jmsql.store.schema.version import newest_version
from jmsql.testing.database import session_database
from tests.documentation import programs, run

VERSIONS = Path(__file__).parents[3] / "migrations" / "versions"


@pytest.fixture(params=["Shop queues", 'the "best"', r"a:b\c", "é" * 27])
def schema(request: pytest.FixtureRequest, jmsql_url: str) -> Iterator[str]:
    """A schema that is not there, and is not left there."""
    name: str = request.param
    yield name
    with psycopg.connect(jmsql_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            sql.SQL("drop schema if exists {}, {}, moved, moved_internal cascade").format(
                sql.Identifier(name), sql.Identifier(f"{name}_internal")
            )
        )


def test_schema_may_have_any_name(schema: str, jmsql_url: str) -> None:
    jmsql.migrate(jmsql_url, schema)
    with jmsql.ConnectionFactory(jmsql_url, schema=schema).create_context() as context:
        queue, topic = context.create_queue("orders"), context.create_topic("prices")
        consumer, subscriber = context.create_consumer(queue), context.create_shared_durable_consumer(topic, "audit")
        context.create_producer().send(queue, "order")
        context.create_producer(delivery_delay=0.001).send(topic, "price")
        assert consumer.receive_body(str, timeout=60) == "order"
        assert subscriber.receive_body(str, timeout=60) == "price"


def test_a_schema_that_was_renamed_is_refused_with_the_way_back(schema: str, jmsql_url: str) -> None:
    jmsql.migrate(jmsql_url, schema)
    with psycopg.connect(jmsql_url.replace("+psycopg", ""), autocommit=True) as server:
        for name, other in ((schema, "moved"), (f"{schema}_internal", "moved_internal")):
            names = map(sql.Identifier, (name, other))
            server.execute(sql.SQL("alter schema {} rename to {}").format(*names))
        with pytest.raises(jmsql.JMSException) as migrating:
            jmsql.migrate(jmsql_url, "moved")
        with pytest.raises(jmsql.JMSException) as connecting:
            jmsql.ConnectionFactory(jmsql_url, schema="moved").create_connection()
        with open_runner(jmsql_url, "moved", requires_schema=False) as runner:
            found = next(each for each in examine(runner, Thresholds()) if each.check == "schema")
        assert (found.health, found.says) == (Health.problem, f"it was {schema!r} before")
        ways = [re.findall("`(.+?)`", str(text)) for text in (migrating.value, connecting.value, found.advice)]
        assert ways[0] == ways[1] == ways[2]
        for command in ways[0]:
            server.execute(command.encode())
    with jmsql.ConnectionFactory(jmsql_url, schema=schema).create_context() as context:
        context.create_producer().send(context.create_queue("orders"), "order")


@pytest.mark.parametrize("schema", ["o'neil", "$$", "100%", "{a}", "", "x" * 55, "é" * 28])
def test_name_that_cannot_be_is_refused_in_a_sentence(schema: str, jmsql_url: str) -> None:
    with pytest.raises(jmsql.JMSException, match=r"The schema cannot be named '?.*: choose a name of 1 to 54 bytes"):
        jmsql.migrate(jmsql_url, schema)


def test_several_runs_at_once_make_one_schema(jmsql_url: str) -> None:
    command = [sys.executable, "-c", "import jmsql, sys; print(jmsql.migrate(*sys.argv[1:]))", jmsql_url, "several"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    with ThreadPoolExecutor(2) as threads:
        former = [str(version) for version in threads.map(lambda _: jmsql.migrate(jmsql_url, "several"), range(2))]
    former += [run.communicate()[0].strip() for run in runs]
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("drop schema several, several_internal cascade")
    assert sorted(former) == [newest_version()] * 4 + ["None"]


@pytest.mark.parametrize("question", ["to_regclass", "to_regnamespace"])
def test_run_that_commits_between_two_questions_of_another_is_no_half_of_a_schema(
    jmsql_url: str, question: str
) -> None:
    command = [sys.executable, "-c", "import jmsql, sys; jmsql.migrate(*sys.argv[1:])", jmsql_url, "interleaved"]
    other_runs: list[subprocess.CompletedProcess[bytes]] = []

    def run_other(_: Any, __: Any, statement: str, *___: Any) -> None:
        if question in statement and not other_runs:
            other_runs.append(subprocess.run(command, check=True))

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", run_other)
    try:
        assert jmsql.migrate(jmsql_url, "interleaved") == newest_version()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", run_other)
    assert len(other_runs) == 1
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("drop schema interleaved, interleaved_internal cascade")


def test_no_lock_that_a_stranger_may_take_holds_it_off(jmsql_url: str) -> None:
    with psycopg.connect(jmsql_url, autocommit=True) as stranger:
        stranger.execute("select pg_advisory_lock(x'6A6D73716C'::bigint)")
        assert jmsql.migrate(jmsql_url, "undisturbed") is None
        stranger.execute("drop schema undisturbed, undisturbed_internal cascade")


def test_migrating_after_a_restore_without_privileges_leaves_no_function_to_all(jmsql_url: str) -> None:
    permit = "select has_function_privilege('public', 'restored_internal.permit(name, text[], integer)', 'execute')"
    jmsql.migrate(jmsql_url, "restored")
    with psycopg.connect(jmsql_url, autocommit=True) as owner:
        assert owner.execute(permit).fetchone() == (False,)
        owner.execute("grant execute on all functions in schema restored_internal to public")
        assert jmsql.migrate(jmsql_url, "restored") == newest_version()
        assert owner.execute(permit).fetchone() == (False,)
        owner.execute("drop schema restored, restored_internal cascade")


@pytest.mark.parametrize("version", ["0027", "9999"])
def test_newer_schema_is_refused_in_a_sentence(jmsql_url: str, version: str) -> None:
    jmsql.migrate(jmsql_url, "newer")
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("update newer.schema_version set version_num = %s", [version])
        with pytest.raises(jmsql.JMSException, match=f"version {version}.* made by a newer release: upgrade jmsql"):
            jmsql.migrate(jmsql_url, "newer")
        connection.execute("drop schema newer, newer_internal cascade")


@pytest.mark.parametrize(("lost", "left"), [("half", "half_internal"), ("half_internal", "half")])
def test_half_of_the_schema_is_refused_in_a_sentence(jmsql_url: str, lost: str, left: str) -> None:
    jmsql.migrate(jmsql_url, "half")
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute(f"drop schema {lost} cascade")
        with pytest.raises(jmsql.JMSException, match=f"a schema '{left}', but none '{lost}'.*drop what is left"):
            jmsql.migrate(jmsql_url, "half")
        connection.execute(f"drop schema {left} cascade")


def test_schema_of_the_next_release_is_left_as_it_is(jmsql_url: str) -> None:
    following = f"{int(newest_version()) + 1:04}"
    jmsql.migrate(jmsql_url, "following")
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("update following.schema_version set version_num = %s", [following])
        assert jmsql.migrate(jmsql_url, "following") == following
        jmsql.ConnectionFactory(jmsql_url, schema="following").create_connection().close()
        connection.execute("drop schema following, following_internal cascade")


ENVIRONMENT = """
from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
"""


def test_it_joins_the_alembic_of_an_application(jmsql_url: str, tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    (tmp_path / "versions").mkdir()
    config = alembic.config.Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{tmp_path / 'versions'}\n{VERSIONS}")
    config.set_main_option("jmsql_schema", "joined")
    engine = open_engine(jmsql_url)
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "heads")
        with jmsql.ConnectionFactory(jmsql_url, schema="joined").create_context() as context:
            context.create_producer().send(context.create_queue("orders"), "order")
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql("drop schema if exists joined, joined_internal cascade")
            connection.exec_driver_sql("drop table if exists alembic_version")
        engine.dispose()


def test_it_joins_the_alembic_of_an_application_on_asyncpg(jmsql_url: str, tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    (tmp_path / "versions").mkdir()
    config = alembic.config.Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{tmp_path / 'versions'}\n{VERSIONS}")
    config.set_main_option("jmsql_schema", "joined")

    def upgrade(connection: sqlalchemy.Connection) -> None:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, "heads")

    async def migrate(*, commits: bool) -> None:
        engine = create_async_engine(sqlalchemy.make_url(jmsql_url).set(drivername="postgresql+asyncpg"))
        try:
            async with engine.connect() as connection:
                transaction = await connection.begin()
                await connection.run_sync(upgrade)
                await (transaction.commit() if commits else transaction.rollback())
        finally:
            await engine.dispose()

    try:
        asyncio.run(migrate(commits=False))
        with psycopg.connect(jmsql_url.replace("+psycopg", "")) as database:
            assert database.execute("select to_regnamespace('joined')").fetchone() == (None,)
        asyncio.run(migrate(commits=True))
        with jmsql.ConnectionFactory(jmsql_url, schema="joined").create_context() as context:
            context.create_producer().send(context.create_queue("orders"), "order")
    finally:
        with psycopg.connect(jmsql_url.replace("+psycopg", ""), autocommit=True) as database:
            database.execute("drop schema if exists joined, joined_internal cascade")
            database.execute("drop table if exists alembic_version")


@pytest.mark.parametrize("schema", ["public", "information_schema", "pg_catalog", "pg_shop"])
def test_a_schema_for_others_is_refused(jmsql_url: str, schema: str) -> None:
    with pytest.raises(JMSException, match=f"The schema cannot be '{schema}'.*Choose another name, such as jmsql"):
        jmsql.migrate(jmsql_url, schema)
    with psycopg.connect(jmsql_url) as database:
        found = database.execute("select to_regnamespace(%s)", [f"{schema}_internal"]).fetchone()
        assert found == (None,)


@pytest.mark.filterwarnings("ignore:Did not recognize type:sqlalchemy.exc.SAWarning")
def test_autogenerate_leaves_the_schema_alone_as_the_page_shows_it(jmsql_server_url: str) -> None:
    [shown] = [program for program in programs("docs/operations.md") if "include_name" in program.text]
    include_name = run(shown, {})["include_name"]
    application = sqlalchemy.MetaData()
    shipment = sqlalchemy.Table("shipment", application, sqlalchemy.Column("shipment_id", sqlalchemy.Integer))
    with session_database(jmsql_server_url, "jmsql") as database:
        engine = open_engine(database.url)
        with engine.connect() as connection:
            application.create_all(connection)

            def proposed(**options: object) -> list[tuple[Any, ...]]:
                context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
                return list(compare_metadata(context, application))

            assert len(proposed()) > 30, "it would drop all that it does not know"
            assert proposed(include_name=include_name) == []
            shipment.append_column(sqlalchemy.Column("weight", sqlalchemy.Integer))
            [(kind, _, table, column)] = proposed(include_name=include_name)
            assert (kind, table, column.name) == ("add_column", "shipment", "weight")
        engine.dispose()


INTERFERENCE = """
    create table noted (settings text[]);
    create function interfere() returns event_trigger language plpgsql as $$
    declare
        made record;
    begin
        insert into public.noted values (array[
            current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'),
            coalesce(current_setting('transaction_timeout', true), '0')]);
        for made in select * from pg_event_trigger_ddl_commands()
            where command_tag = 'CREATE TABLE' and schema_name <> 'pg_temp'
        loop
            execute format('alter table %s enable row level security', made.object_identity);
        end loop;
    end
    $$;
    create event trigger interfere on ddl_command_end when tag in ('CREATE TABLE')
        execute function public.interfere()"""
HIDDEN = """
    select c.oid::regclass::text from pg_class c
    where c.relnamespace in ('hidden'::regnamespace, 'hidden_internal'::regnamespace) and c.relrowsecurity
      and not exists (select from pg_policy p where p.polrelid = c.oid)"""


def test_neither_an_event_trigger_nor_time_limits_of_the_role_change_a_migration(
    jmsql_server_url: str,
) -> None:
    limits = "-c statement_timeout=1h -c idle_in_transaction_session_timeout=1h"
    with (
        session_database(jmsql_server_url, "jmsql") as database,
        psycopg.connect(database.url, autocommit=True) as connection,
    ):
        connection.execute(INTERFERENCE)
        limited = sqlalchemy.make_url(database.url).update_query_dict({"options": limits})
        jmsql.migrate(limited.render_as_string(hide_password=False), "hidden")
        assert connection.execute("select distinct settings from noted").fetchall() == [(["0", "0", "0"],)]
        assert connection.execute(HIDDEN).fetchall() == []
        connection.execute("alter table hidden_internal.permission enable row level security")
        jmsql.migrate(database.url, "hidden")
        assert connection.execute(HIDDEN).fetchall() == []
