"""Shells complete the command, and its help names the environment variables."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from jmsql.cli.application import app
from tests.integration.cli.conftest import Command


@pytest.mark.parametrize(
    ("words", "expected", "unexpected"),
    [
        ("jmsql s", {"send", "show", "subscribe", "subscriptions"}, "receive"),
        ("jmsql destination p", {"pause"}, "list"),
        ("jmsql worker --on-sub", {"--on-subscription-change"}, "--url"),
        ("jmsql worker shop:app --on-subscription-change ", {"refuse", "keep", "drop"}, "send"),
    ],
)
def test_bash_completes_commands_options_and_their_values(words: str, expected: set[str], unexpected: str) -> None:
    count = str(len(words.split(" ")) - 1)
    environment = {"_JMSQL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    result = CliRunner().invoke(app, env=environment, prog_name="jmsql")
    assert result.stderr == ""
    assert expected <= set(result.stdout.split())
    assert unexpected not in result.stdout.split()


def test_the_script_for_a_shell_is_of_the_command() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "jmsql"],
        env=os.environ | {"_JMSQL_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "complete -o default -F _jmsql_completion jmsql" in result.stdout


@pytest.mark.parametrize(
    "words", [("queues",), ("worker",), ("destination", "list"), ("history", "list"), ("show",)], ids=" ".join
)
def test_help_names_the_environment_variables(jmsql: Command, words: tuple[str, ...]) -> None:
    text = jmsql(*words, "--help").text
    assert "JMSQL_URL" in text
    assert "JMSQL_SCHEMA" in text


def test_help_of_all_names_those_of_all(jmsql: Command) -> None:
    text = jmsql("--help").text
    for name in ("JMSQL_URL", "JMSQL_SCHEMA", "PGPASSWORD"):
        assert name in text
