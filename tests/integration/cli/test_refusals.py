"""What the command says and returns when something is wrong: one line, without a traceback or a password."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
import sqlalchemy

import jmsql as library
from jmsql.embedded import start_server
from tests.integration.cli.conftest import Command

PASSWORD = "entirely-secret"
COMMANDS = (
    ("migrate",),
    ("send", "orders", "x"),
    ("receive", "orders"),
    ("browse", "orders"),
    ("queues",),
    ("subscriptions",),
    ("unsubscribe", "audit"),
    ("clients",),
    ("purge", "orders", "--yes"),
    ("destination", "list"),
    ("roles", "list"),
    ("binding", "list"),
    ("move", "orders", "old"),
    ("archive", "/nowhere"),
    ("doctor",),
    ("statistics",),
)


@pytest.fixture(scope="module")
def url_with_password() -> Iterator[sqlalchemy.URL]:
    """A server that wants the password of its ordinary role."""
    directory = Path(tempfile.mkdtemp(prefix="jmsql-password-"))
    directory.chmod(0o711)
    with start_server(directory / "server", durable=False) as server:
        with psycopg.connect(server.url, autocommit=True) as superuser:
            superuser.execute(f"create role clerk login password '{PASSWORD}'")
            superuser.execute("create database shop owner clerk")
        yield sqlalchemy.make_url(server.url).set(database="shop", username="clerk", password=PASSWORD)
    shutil.rmtree(directory)


@pytest.mark.parametrize("arguments", COMMANDS, ids=[arguments[0] for arguments in COMMANDS])
def test_a_server_that_is_down(jmsql: Command, arguments: tuple[str, ...]) -> None:
    outcome = jmsql(*arguments, url=f"postgresql://clerk:{PASSWORD}@127.0.0.1:1/shop")
    assert outcome.exit_code == 3
    assert outcome.output == b""
    [line] = outcome.errors.splitlines()
    assert line.startswith("jmsql: ")
    assert "cannot be reached" in line
    assert PASSWORD not in line


def test_a_wrong_password(jmsql: Command, url_with_password: sqlalchemy.URL) -> None:
    wrong = url_with_password.set(password="not-the-secret").render_as_string(hide_password=False)
    outcome = jmsql("queues", url=wrong)
    assert outcome.exit_code == 3
    assert "PostgreSQL refused the user or the password" in outcome.errors
    assert len(outcome.errors.splitlines()) == 1
    assert "not-the-secret" not in outcome.errors


def test_the_password_is_shown_by_no_command(
    jmsql: Command, jmsql_process: Command, url_with_password: sqlalchemy.URL
) -> None:
    url = url_with_password.render_as_string(hide_password=False)
    outcomes = [jmsql_process("--verbose", "migrate", url=url)]
    commands = (("send", "orders", "x"), ("doctor",), ("clients", "--json"))
    outcomes += [jmsql(*arguments, url=url) for arguments in commands]
    assert [outcome.exit_code for outcome in outcomes] == [0, 0, 0, 0]
    for outcome in outcomes:
        assert PASSWORD not in outcome.text
        assert PASSWORD not in outcome.errors


def test_a_password_on_the_command_line(jmsql: Command) -> None:
    outcome = jmsql("queues", "--url", f"postgresql://clerk:{PASSWORD}@127.0.0.1:1/shop")
    assert outcome.exit_code == 2
    assert "PGPASSWORD" in outcome.errors
    assert PASSWORD not in outcome.errors


@pytest.mark.parametrize("url", ["mysql://localhost/shop", "postgresql://host:port/shop", "shop"])
def test_a_url_of_no_postgresql_database(jmsql: Command, url: str) -> None:
    outcome = jmsql("queues", url=url)
    assert outcome.exit_code == 3
    assert "postgresql://" in outcome.errors
    assert len(outcome.errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", COMMANDS[1:7], ids=[arguments[0] for arguments in COMMANDS[1:7]])
def test_a_schema_that_is_missing(jmsql: Command, arguments: tuple[str, ...]) -> None:
    outcome = jmsql(*arguments, "--schema", "nowhere")
    assert outcome.exit_code == 3
    assert "run `jmsql migrate --schema nowhere`" in outcome.errors
    assert len(outcome.errors.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("receive",), ("browse",), ("purge", "--yes")], ids=lambda words: words[0])
def test_a_queue_that_does_not_exist(jmsql: Command, arguments: tuple[str, ...]) -> None:
    outcome = jmsql(*arguments, "nowhere")
    assert outcome.exit_code == 3
    assert outcome.errors == "jmsql: There is no queue 'nowhere'. `jmsql destination list` lists those there are.\n"
    assert jmsql("queues", "--json").document == []


def test_advice_is_for_the_schema_that_was_named(jmsql: Command) -> None:
    assert jmsql("migrate", "--schema", "other shop").exit_code == 0
    outcome = jmsql("browse", "nowhere", "--schema", "other shop")
    assert "`jmsql destination list --schema 'other shop'` lists those there are" in outcome.errors
    doctor = jmsql("doctor", "--schema", "nowhere", "--json").document
    assert {"Run `jmsql migrate --schema nowhere`."} == {
        finding["advice"] for finding in doctor["findings"] if finding["check"] == "schema"
    }


@pytest.fixture
def reader(url_with_password: sqlalchemy.URL) -> Iterator[tuple[psycopg.Connection, str]]:
    """A superuser's connection to a database, and the URL of the database for a role without rights in it."""
    superuser = url_with_password.set(drivername="postgresql", username="postgres", password=None)
    with psycopg.connect(superuser.render_as_string(), autocommit=True) as connection:
        connection.execute("create role reader login password 'reading'")
        try:
            yield connection, url_with_password.set(username="reader", password="reading").render_as_string(False)
        finally:
            connection.execute("drop schema if exists stock, stock_internal cascade")
            connection.execute("drop owned by reader cascade")
            connection.execute("drop role reader")


def test_migrating_without_the_right_to_make_a_schema(jmsql: Command, reader: tuple[psycopg.Connection, str]) -> None:
    superuser, url = reader
    outcome = jmsql("migrate", "--schema", "stock", url=url)
    assert outcome.exit_code == 3
    [line] = outcome.errors.splitlines()
    assert "'reader' may not create a schema in the database 'shop'" in line
    [advice] = re.findall("`(grant .*?)`", line)
    assert advice == 'grant create on database "shop" to "reader"'
    superuser.execute(advice.encode())
    assert jmsql("migrate", "--schema", "stock", url=url).exit_code == 0


@pytest.mark.parametrize("rights", ["", "grant usage on schema stock to reader"], ids=["none", "usage"])
def test_migrating_a_schema_of_another_owner(
    jmsql: Command, reader: tuple[psycopg.Connection, str], rights: LiteralString
) -> None:
    superuser, url = reader
    superuser.execute("create schema stock authorization clerk")
    if rights:
        superuser.execute(rights)
    outcome = jmsql("migrate", "--schema", "stock", url=url)
    assert outcome.exit_code == 3
    [line] = outcome.errors.splitlines()
    assert "'clerk' owns it, and 'reader' may not change it. Run `jmsql migrate --schema stock` as 'clerk'" in line


@pytest.mark.parametrize("arguments", [("receive",), ("browse",), ("purge", "--yes")], ids=lambda words: words[0])
def test_a_selector_with_an_error(jmsql: Command, arguments: tuple[str, ...]) -> None:
    jmsql("send", "orders", "x")
    outcome = jmsql(*arguments, "orders", "--selector", "color = = 'blue'")
    assert outcome.exit_code == 2
    message, selector, caret = outcome.errors.splitlines()
    assert "position 9" in message
    assert selector.strip() == "color = = 'blue'"
    assert caret.index("^") == selector.index("= 'blue'")
    assert jmsql("queues", "--json").document[0]["ready"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("schedule", "pause", "a\nb"),
        ("schedule", "resume", "a\tb"),
        ("schedule", "now", "\udcff"),
        ("schedule", "delete", "", "--yes"),
        ("schedule", "explain", ""),
        ("result", "list", "--before", "7"),
        ("subscribe", "topic://prices", "", "--shared"),
        ("top", "--once", "--interval", "inf"),
        ("top", "--once", "--interval", "1e300"),
        ("metrics", "--host", "\udcff"),
    ],
    ids=" ".join,
)
def test_a_value_that_cannot_be_is_refused_as_wrong_usage(jmsql: Command, arguments: tuple[str, ...]) -> None:
    outcome = jmsql(*arguments)
    assert (outcome.exit_code, outcome.output) == (2, b"")
    assert "Traceback" not in outcome.errors


@pytest.mark.parametrize("name", ["redelivery-delay", "redelivery-multiplier", "deduplication-window"])
def test_a_setting_that_is_not_finite_is_refused_by_its_name(jmsql: Command, jmsql_clean_url: str, name: str) -> None:
    jmsql("destination", "create", "orders")
    outcome = jmsql("destination", "set", "orders", f"--{name}", "inf")
    assert outcome.exit_code == 2
    assert f"Invalid value for '--{name}'" in outcome.errors
    setting = name.replace("-", "_")
    with (
        library.admin.Administration(jmsql_clean_url) as administration,
        pytest.raises(library.JMSException, match=f'The setting "{setting}" cannot be inf: expected a finite number'),
    ):
        administration.alter("queue://orders", **{setting: math.inf})  # type: ignore[arg-type]


def test_a_schema_whose_name_is_no_text_is_refused_in_a_sentence(jmsql: Command) -> None:
    outcome = jmsql("queues", "--schema", "\udcff")
    assert outcome.exit_code == 3
    assert "The schema cannot be named '\\udcff'" in outcome.errors


def test_the_causes_of_an_error_are_shown_if_asked_for(jmsql: Command) -> None:
    outcome = jmsql("--verbose", "queues", url=f"postgresql://clerk:{PASSWORD}@127.0.0.1:1/shop")
    assert "caused by psycopg.OperationalError" in outcome.errors
    assert PASSWORD not in outcome.errors


def test_without_arguments_it_shows_its_help(jmsql: Command) -> None:
    outcome = jmsql()
    assert outcome.exit_code == 2
    assert all(arguments[0] in outcome.text + outcome.errors for arguments in COMMANDS)


@pytest.mark.parametrize("name", [arguments[0] for arguments in COMMANDS])
def test_every_command_has_a_help_with_an_example(jmsql: Command, name: str) -> None:
    outcome = jmsql(name, "--help")
    assert outcome.exit_code == 0
    assert "Example" in outcome.text
    assert f"jmsql {name}" in outcome.text.split("Example", 1)[1]


def test_the_version(jmsql: Command) -> None:
    assert jmsql("--version").text == f"jmsql {version('jmsql')}\n"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_a_missing_package_is_named_in_one_line(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from jmsql.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", program, "top"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert "pip install 'jmsql[cli]'" in line


def test_a_missing_libpq_is_named_in_one_line() -> None:
    libraries = ["psycopg_binary", "psycopg_c", "psycopg.pq.pq_ctypes"]
    program = f"import sys; sys.modules.update(dict.fromkeys({libraries})); from jmsql.cli import main; main()"
    arguments = ["queues", "--url", "postgresql://nobody@127.0.0.1:1/nothing"]
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert "pip install 'jmsql[cli]'" in line


def test_an_interrupted_command_ends_without_a_traceback(
    jmsql_clean_url: str, jmsql_factory: library.ConnectionFactory
) -> None:
    with jmsql_factory.create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(library.Queue("orders"))
        producer.send(session.create_text_message("printed"))
        with subprocess.Popen(
            [sys.executable, "-m", "jmsql", "receive", "orders", "--follow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"JMSQL_URL": jmsql_clean_url},
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"printed\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in errors
