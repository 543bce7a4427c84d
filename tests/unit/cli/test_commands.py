"""The list of the subcommands says what they say of themselves, and calling one loads no other."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from jmsql.cli.commands import COMMANDS, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_shows_the_first_paragraph_of_a_commands_help(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert COMMANDS[name].summary == inspect.cleandoc(command.help).partition("\n\n")[0].replace("\n", " ")


def loaded(*arguments: str) -> set[str]:
    """The modules that a process of the command has loaded in the end."""
    program = (
        "import sys\nfrom jmsql.cli import main\ntry:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("queues", "--help"), ("worker", "--help")], ids=" ".join
)
def test_what_needs_no_database_loads_nothing_that_connects_to_one(arguments: tuple[str, ...]) -> None:
    assert loaded(*arguments).isdisjoint({"alembic", "lark", "psycopg", "pyspark", "sqlalchemy"})


def test_a_command_loads_no_other() -> None:
    modules = loaded("queues", "--help")
    others = {COMMANDS[name].place.partition(":")[0] for name in COMMANDS} - {"destinations.queues"}
    assert modules.isdisjoint(f"jmsql.cli.{other}" for other in others)
