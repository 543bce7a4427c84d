"""What `jmsql statistics` refuses, before Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--no-history",), "name an archive with --archive"),
        (("--time-zone", "Europe/Nowhere"), "'Europe/Nowhere' is not a time zone"),
        (("--time-zone", "../UTC"), "is not a time zone"),
        (("--since", "yesterday"), "'yesterday' is not a time"),
        (("--destination", "topic://"), "at least one character"),
        (("--spark-conf", "master"), "'master' is not a setting"),
    ],
)
def test_wrong_usage_is_refused(jmsql: Command, arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    outcome = jmsql("statistics", "--output", str(tmp_path / "output"), *arguments)
    assert (outcome.exit_code, outcome.output) == (2, b"")
    assert words in " ".join(outcome.errors.replace("│", "").split())
    assert list(tmp_path.iterdir()) == []


def test_missing_java_is_told_in_one_sentence(jmsql_clean_url: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    result = subprocess.run(
        [sys.executable, "-m", "jmsql", "statistics", "--output", str(tmp_path / "output")],
        env=environment | {"JMSQL_URL": jmsql_clean_url, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("jmsql: No Java was found. Spark needs Java 17 or newer: install it (Debian")
    assert len(result.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
