"""`jmsql archive`, as far as it comes without Spark; the rest is in the tests of Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument 'TARGET'"),
        (("--format", "csv"), "'csv' is not one of 'parquet', 'delta', 'iceberg'"),
        (("--destination", "temp://orders"), "no destination"),
        (("--keep-days", "3"), "--keep-days goes together with --drop"),
        (("--spark-conf", "spark.master"), "write KEY=VALUE"),
        (("--partitions", "0"), "greater than or equal to 1"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(
    jmsql: Command, arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    outcome = jmsql("archive", *((str(tmp_path), *arguments) if arguments else ()))
    assert outcome.exit_code == 2
    assert words in re.sub(r"[\s│]+", " ", outcome.errors)


def test_without_java_it_says_how_to_get_it(
    jmsql_process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process of its own, since this one may have a session.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = jmsql_process("archive", str(tmp_path / "lake"))
    assert (outcome.exit_code, outcome.output) == (3, b"")
    assert "install it (Debian, Ubuntu: apt-get install default-jre-headless" in outcome.errors
    assert outcome.errors.count("\n") == 1
    assert not (tmp_path / "lake").exists()


def test_without_pyspark_it_says_how_to_get_it(jmsql: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql", None)
    outcome = jmsql("archive", str(tmp_path / "lake"))
    assert (outcome.exit_code, outcome.output) == (3, b"")
    assert outcome.errors == 'jmsql: pyspark.sql is missing: pip install "jmsql[spark]".\n'
