"""The list of the subcommands says what they say of themselves, and calling one loads no other."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from jmsql.cli.application import app
from jmsql.cli.commands import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_shows_the_first_paragraph_of_a_commands_help(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert COMMANDS[name].summary == inspect.cleandoc(command.help).partition("\n\n")[0].replace("\n", " ")


NOWHERE = "postgresql://app@localhost:1/shop"
"""A database that refuses connections."""


@pytest.mark.parametrize(
    ("arguments", "option", "largest"),
    [
        (("queues", "--limit", str(2**31)), "--limit", "2,147,482,648"),
        (("batch", "list", "--limit", str(2**31)), "--limit", "2,147,482,648"),
        (("history", "list", "--limit", str(10**30)), "--limit", "2,147,482,648"),
        (("destination", "set", "orders", "--maximum-deliveries", str(2**31)), "--maximum-deliveries", "2,147,482,648"),
        (("activity", "--before", str(2**63)), "--before", "9,223,372,036,854,774,808"),
        (("batch", "show", str(2**63)), "BATCH", "9,223,372,036,854,774,808"),
        (("doctor", "--longest-claim", "inf"), "--longest-claim", "9,223,372,036,854,774,808"),
    ],
)
def test_a_number_too_large_for_postgresql_is_refused_by_its_name(
    arguments: tuple[str, ...], option: str, largest: str
) -> None:
    result = CliRunner().invoke(app, arguments, env={"JMSQL_URL": NOWHERE})
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr
    assert f"Expected a number up to {largest}" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("activity", "--before", str(2**31)),
        ("batch", "show", str(2**31)),
        ("doctor", "--longest-claim", str(2**31)),
    ],
)
def test_identifiers_and_seconds_may_take_64_bits(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, arguments, env={"JMSQL_URL": NOWHERE})
    assert result.exit_code != 2
    assert "Invalid value" not in result.stderr


PROGRAM = """
import shlex, sys
from jmsql.cli import main

modules = list(sys.modules)
for line in sys.argv[1:]:
    sys.argv = shlex.split(line)
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    modules += [line, str(code), *sys.modules]
print(*modules, sep="\\n", file=sys.stderr)
"""


def loaded(*lines: str, exit_code: int = 0) -> set[str]:
    """The modules that a process which runs these commands, one after the other, has loaded in the end.

    Args:
        lines: The commands.
        exit_code: With what each ends.
    """
    environment = os.environ | {"JMSQL_URL": NOWHERE}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *lines], capture_output=True, text=True, check=True, env=environment
    )
    written = ran.stderr.splitlines()
    assert {line: written[written.index(line) + 1] for line in lines} == dict.fromkeys(lines, str(exit_code))
    return set(written)


def test_commands_without_a_database_load_no_driver() -> None:
    modules = loaded("jmsql --help", "jmsql --version", "jmsql queues --help", "jmsql worker --help")
    assert modules.isdisjoint({"alembic", "lark", "psycopg", "pydantic", "pyspark", "sqlalchemy"})


def test_commands_that_connect_load_the_driver_alone() -> None:
    """SQLAlchemy takes as long to load as all that these commands need; pydantic is how Typer converts options."""
    modules = loaded(
        "jmsql queues",
        "jmsql subscriptions",
        "jmsql clients",
        "jmsql show ID:1",
        "jmsql browse orders",
        "jmsql move orders others",
        "jmsql purge orders --yes",
        "jmsql dead-letters",
        "jmsql retry",
        "jmsql unsubscribe desk",
        "jmsql destination list",
        "jmsql destination create orders",
        "jmsql destination index",
        "jmsql history list",
        "jmsql roles list",
        "jmsql doctor",
        "jmsql top --once",
        exit_code=3,
    )
    assert "psycopg" in modules
    assert modules.isdisjoint({"alembic", "lark", "pydantic", "pyspark", "sqlalchemy"})
    assert modules.isdisjoint({"jmsql.client._sync.session.session", "jmsql.selectors.expressions"})


def test_the_supervisor_loads_neither_the_driver_nor_the_messages() -> None:
    modules = loaded("jmsql worker no_such_module:app", exit_code=2)
    assert "jmsql.worker.supervisor" in modules
    assert modules.isdisjoint({"http.server", "jmsql.messages", "psycopg", "pydantic", "rich", "sqlalchemy"})


def test_json_is_written_without_loading_tables() -> None:
    assert "rich" not in loaded("jmsql queues --json", "jmsql destination list --json", exit_code=3)


def test_a_command_loads_no_other() -> None:
    modules = loaded("jmsql queues --help")
    others = {COMMANDS[name].place.partition(":")[0] for name in COMMANDS} - {"destinations.queues"}
    assert modules.isdisjoint(f"jmsql.cli.{other}" for other in others)


def commands(command: Any, context: typer.Context) -> Iterator[tuple[Any, typer.Context]]:
    yield command, context
    for each in getattr(command, "commands", {}).values():
        yield from commands(each, typer.Context(each, parent=context))


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_a_default_is_taken_as_typer_would_convert_it(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """It is taken as it is."""
    root = get_command(app)
    command = root if name is None else load_command(name)
    for each, context in commands(command, typer.Context(root)):
        for parameter in each.get_params(context):
            taken, convert = parameter.process_value, type(parameter).process_value
            monkeypatch.setattr(parameter, "callback", None)
            if not parameter.required:
                default = parameter.get_default(context)
                assert taken(context, default) == convert(parameter, context, default)


def test_given_values_are_converted_to_their_types() -> None:
    command = load_command("worker")
    arguments = ["shop:app", "-c", "3", "--log-format", "json", "--drain-timeout", "1"]
    context = command.make_context("worker", arguments)
    given = {name: context.params[name] for name in ("application", "concurrency", "log_format", "drain_timeout")}
    assert given == {"application": "shop:app", "concurrency": 3, "log_format": "json", "drain_timeout": 1.0}
    assert [type(value).__name__ for value in given.values()] == ["str", "int", "LogFormat", "float"]
