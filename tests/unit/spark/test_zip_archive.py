"""The package in a ZIP archive, as Spark brings it along with ``--py-files``."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import jmsql
from jmsql.store.schema_version import newest_version

PROGRAM = """
import jmsql
import pyspark_jmsql
from jmsql.spark.reading import history_reader, snapshot
from jmsql.spark.streaming import history_stream_reader, queue_stream_reader
from jmsql.spark.writing import maintenance, writer
from jmsql.store.schema_version import check_version, newest_version

check_version(newest_version(), "jmsql")
print(jmsql.__file__, newest_version())
"""


def test_all_that_tasks_need_is_found_in_a_zip_archive(tmp_path: Path) -> None:
    root = Path(jmsql.__file__).parents[1]
    archive = tmp_path / "jmsql.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for package, place in (("jmsql", "jmsql"), ("migrations", "jmsql/migrations"), ("pyspark_jmsql",) * 2):
            for path in (root / package).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    target.write(path, Path(place, path.relative_to(root / package)))
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert answer.stderr == ""
    assert answer.stdout.split() == [str(archive / "jmsql" / "__init__.py"), newest_version()]
