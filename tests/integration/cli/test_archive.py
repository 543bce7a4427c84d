"""`jmsql archive`, as far as it comes without a database; the rest is in the tests of Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import Command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument 'TARGET'"),
        (("--properties", "csv"), "'csv' is not one of 'json', 'map'"),
        (("--destination", "temp://orders"), "is not a destination"),
        (("--keep-days", "3"), "--keep-days goes together with --drop"),
        (("--partitions", "0"), "greater than or equal to 1"),
    ],
)
def test_wrong_usage_is_refused_before_anything_starts(
    jmsql: Command, arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    outcome = jmsql("archive", *((str(tmp_path), *arguments) if arguments else ()))
    assert outcome.exit_code == 2
    assert words in re.sub(r"[\s│]+", " ", outcome.errors)


def test_without_its_packages_it_says_how_to_get_them(
    jmsql: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "adbc_driver_postgresql", None)
    outcome = jmsql("archive", str(tmp_path / "lake"))
    assert (outcome.exit_code, outcome.output) == (3, b"")
    assert outcome.errors == 'jmsql: adbc_driver_postgresql is missing: pip install "jmsql[archive]".\n'


def test_archive_loads_neither_spark_nor_java() -> None:
    program = "import sys, jmsql.spark; jmsql.spark.archive; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
