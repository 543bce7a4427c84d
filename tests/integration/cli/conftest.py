"""The command, in this process and as one of its own, on the database of the tests."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import psycopg
import pytest
import sqlalchemy
from typer.testing import CliRunner

from jmsql.cli.application import app


class Outcome:
    """What a run of the command came to."""

    def __init__(self, exit_code: int, output: bytes, errors: str) -> None:
        self.exit_code = exit_code
        self.output = output
        self.errors = errors

    @property
    def text(self) -> str:
        """The standard output as text."""
        return self.output.decode()

    @property
    def document(self) -> Any:
        """The standard output as one JSON document."""
        return json.loads(self.output)

    @property
    def lines(self) -> list[Any]:
        """The standard output as lines of JSON."""
        return [json.loads(line) for line in self.output.splitlines()]

    def __repr__(self) -> str:
        return f"<Outcome {self.exit_code}, output {self.output!r}, errors {self.errors!r}>"


class Command(Protocol):
    """Runs the command."""

    def __call__(self, *arguments: str, stdin: bytes = b"", url: str | None = None) -> Outcome:
        """Run it with `arguments`, on the database at `url` if it is not to be the tests' own."""


@pytest.fixture
def jmsql(jmsql_clean_url: str) -> Command:
    """The command in this process."""

    def run(*arguments: str, stdin: bytes = b"", url: str | None = None) -> Outcome:
        environment = {"JMSQL_URL": jmsql_clean_url if url is None else url}
        result = CliRunner().invoke(app, arguments, input=stdin, env=environment, catch_exceptions=False)
        return Outcome(result.exit_code, result.stdout_bytes, result.stderr)

    return run


@pytest.fixture
def jmsql_process(jmsql_clean_url: str) -> Command:
    """The command as a process of its own."""

    def run(*arguments: str, stdin: bytes = b"", url: str | None = None) -> Outcome:
        result = subprocess.run(
            [sys.executable, "-m", "jmsql", *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            env=os.environ | {"JMSQL_URL": url or jmsql_clean_url},
        )
        return Outcome(result.returncode, result.stdout, result.stderr.decode())

    return run


class Asked(Protocol):
    """Runs the command on a terminal, where it asks a question."""

    def __call__(self, *arguments: str, meanwhile: Callable[[], object], answer: bytes = b"y\n") -> Outcome:
        """Run it with `arguments`, do something while its question stands, and answer."""


@pytest.fixture
def jmsql_asked(jmsql_clean_url: str) -> Asked:
    """The command as a process of its own, on a terminal."""

    def run(*arguments: str, meanwhile: Callable[[], object], answer: bytes = b"y\n") -> Outcome:
        terminal, its_end = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "jmsql", *arguments],
            stdin=its_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"JMSQL_URL": jmsql_clean_url},
        ) as process:
            assert process.stderr is not None
            errors = b""
            while b"?" not in errors and (part := os.read(process.stderr.fileno(), 1000)):
                errors += part
            meanwhile()
            os.write(terminal, answer)
            output, others = process.communicate()
        os.close(terminal)
        os.close(its_end)
        return Outcome(process.returncode, output, (errors + others).decode())

    return run


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """A connection of the test's own."""
    url = sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        yield connection
