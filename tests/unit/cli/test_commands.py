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

from jmsql.cli.application import app
from jmsql.cli.commands import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_shows_the_first_paragraph_of_a_commands_help(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert COMMANDS[name].summary == inspect.cleandoc(command.help).partition("\n\n")[0].replace("\n", " ")


NOWHERE = "postgresql://app@localhost:1/shop"
"""A database that refuses connections."""


def loaded(*arguments: str, exit_code: int = 0) -> set[str]:
    """The modules that a process of the command has loaded in the end."""
    program = (
        "import sys\nfrom jmsql.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JMSQL_URL": NOWHERE},
    )
    assert ran.returncode == exit_code, ran.stderr
    return set(ran.stderr.split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("queues", "--help"), ("worker", "--help")], ids=" ".join
)
def test_what_needs_no_database_loads_nothing_that_connects_to_one(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments).isdisjoint({"alembic", "lark", "psycopg", "pydantic", "pyspark", "sqlalchemy"})


@pytest.mark.parametrize(
    "arguments",
    [
        ("queues",),
        ("subscriptions", "--json"),
        ("clients",),
        ("show", "ID:1"),
        ("dead-letters",),
        ("purge", "orders", "--yes"),
        ("destination", "list"),
        ("destination", "create", "orders"),
        ("history", "list"),
        ("roles", "list"),
        ("doctor",),
        ("top", "--once"),
    ],
    ids=" ".join,
)
def test_what_connects_loads_the_driver_alone(arguments: tuple[str, ...]) -> None:
    """SQLAlchemy takes as long to load as all that these commands need; pydantic is how Typer converts options."""
    modules = loaded(*arguments, exit_code=3)
    assert "psycopg" in modules
    assert modules.isdisjoint({"alembic", "lark", "pydantic", "pyspark", "sqlalchemy"})
    assert modules.isdisjoint({"jmsql.client._sync.session.session", "jmsql.selectors.expressions"})


@pytest.mark.parametrize("arguments", [("queues", "--json"), ("destination", "list", "--json")], ids=" ".join)
def test_json_is_written_without_what_shows_tables(arguments: tuple[str, ...]) -> None:
    assert "rich" not in loaded(*arguments, exit_code=3)


def test_a_command_loads_no_other() -> None:
    modules = loaded("queues", "--help")
    others = {COMMANDS[name].place.partition(":")[0] for name in COMMANDS} - {"destinations.queues"}
    assert modules.isdisjoint(f"jmsql.cli.{other}" for other in others)


def commands(command: Any, context: typer.Context) -> Iterator[tuple[Any, typer.Context]]:
    yield command, context
    for each in getattr(command, "commands", {}).values():
        yield from commands(each, typer.Context(each, parent=context))


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_a_default_is_what_typer_would_make_of_it(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
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


def test_what_is_given_is_converted_if_it_is_no_text() -> None:
    command = load_command("worker")
    arguments = ["shop:app", "-c", "3", "--log-format", "json", "--drain-timeout", "1"]
    context = command.make_context("worker", arguments)
    given = {name: context.params[name] for name in ("application", "concurrency", "log_format", "drain_timeout")}
    assert given == {"application": "shop:app", "concurrency": 3, "log_format": "json", "drain_timeout": 1.0}
    assert [type(value).__name__ for value in given.values()] == ["str", "int", "LogFormat", "float"]
