"""Each subcommand's help: no name of an option is cut, and it needs none of the extras."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement

from jmsql.cli import help as help_of_commands
from jmsql.cli.application import app
from jmsql.cli.commands import COMMANDS, load_command
from tests.integration.cli.conftest import Command


def subcommands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and all below it, each with the words that call it."""
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from subcommands((*words, name), each)


ALL: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
ALL += [found for name in COMMANDS for found in subcommands((name,), load_command(name))]


@pytest.mark.parametrize(("words", "command"), ALL, ids=[" ".join(("jmsql", *words)) for words, _ in ALL])
def test_help_fits_into_80_columns_and_cuts_no_name(
    words: tuple[str, ...], command: Any, jmsql: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = jmsql(*words, "--help").text
    assert max(map(len, text.splitlines())) <= 80
    shown = set(re.findall(r"^ +(-[^ ,]+(?:(?:, | / )-[^ ,]+)*)", text, re.MULTILINE))
    names = {name for line in shown for name in re.split(", | / ", line)}
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if parameter.param_type_name == "option":
            assert {*parameter.opts, *parameter.secondary_opts} <= names
    for name, each in getattr(command, "commands", {}).items():
        summary = each.short_help or ""
        assert f"{name} {summary}" in re.sub(r"\s+", " ", text), "each summary is whole"


def test_examples_can_be_typed_as_they_stand(jmsql: Command) -> None:
    text = jmsql("destination", "set", "--help").text
    [example] = re.findall(r"Example:\n((?:.*\\\n)*.*\n)", text)
    joined = " ".join(example.replace("\\\n", " ").split())
    assert joined == (
        "jmsql destination set orders --maximum-deliveries 5 --redelivery-delay 1 --redelivery-multiplier 2"
    )


def test_help_needs_no_package_of_an_extra() -> None:
    extras = {re.sub("[-.]", "_", Requirement(line).name) for line in requires("jmsql") or () if "extra ==" in line}
    blocked = [*sorted(extras - {"jmsql", "psycopg", "rich", "sqlalchemy", "typer"}), "numpy", "opentelemetry"]
    program = f"""
import sys
sys.modules.update(dict.fromkeys({blocked}))
from jmsql.cli import main
for name in {list(COMMANDS)}:
    sys.argv = ["jmsql", name, "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert set(re.findall("^Usage: jmsql ([a-z-]+)", ran.stdout, re.MULTILINE)) == COMMANDS.keys()


@pytest.mark.parametrize(
    ("arguments", "plain"),
    [
        ("[OPTIONS] {FROM} {TO}", "[OPTIONS] FROM TO"),
        ("[OPTIONS] [[PATTERN]]", "[OPTIONS] [PATTERN]"),
        ("[OPTIONS] [[QUEUE] [SELECTOR]]", "[OPTIONS] [QUEUE] [SELECTOR]"),
        ("[OPTIONS] [[QUEUE] [ID...]]...", "[OPTIONS] [QUEUE] [ID...]"),
        ("[OPTIONS] {ID...}...", "[OPTIONS] ID..."),
        ("[OPTIONS] COMMAND [ARGS]...", "[OPTIONS] COMMAND [ARGS]..."),
    ],
)
def test_usages_are_written_as_in_manuals(arguments: str, plain: str) -> None:
    assert help_of_commands._plain_usage(arguments) == plain


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("--reason <str>", "--reason TEXT"),
        ("-n, --limit <int range>", "-n, --limit NUMBER"),
        ("--sort <age|depth>", "--sort age|depth"),
        ("--json", "--json"),
        ("[QUEUE <str>", "QUEUE"),
        ("SELECTOR] <str>", "SELECTOR"),
        ("[PATTERN] <str>", "[PATTERN]"),
    ],
)
def test_names_of_options_show_no_types_of_python(name: str, plain: str) -> None:
    assert help_of_commands._plain_name(name) == plain


def test_no_help_shows_braces_or_types_of_python(jmsql: Command) -> None:
    for words, _ in ALL:
        text = jmsql(*words, "--help").text
        assert not re.findall(r"^Usage.*[{}].*|^Usage.*\[\[.*|^ +\S.* <(?:str|int|float|list).*", text, re.MULTILINE), (
            words
        )


def test_the_database_of_a_worker_is_described_for_workers_alone(jmsql: Command) -> None:
    assert "Default: the application's own factory" in " ".join(jmsql("worker", "--help").text.split())
    assert "factory" not in jmsql("migrate", "--help").text
