"""The package in a ZIP archive, as Spark brings it along with ``--py-files``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jmsql.store.schema.version import newest_version
from tests.zip_archive import write_archive

PROGRAM = """
import jmsql
import pyspark_jmsql
from jmsql.spark.reading import batch_reader, snapshot
from jmsql.spark.streaming import history_stream_reader, queue_stream_reader
from jmsql.spark.writing import maintenance, writer
from jmsql.store.schema.version import check_version, newest_version

check_version(newest_version(), "jmsql")
print(jmsql.__file__, newest_version())
"""


def test_all_that_tasks_need_is_found_in_a_zip_archive(tmp_path: Path) -> None:
    archive = tmp_path / "jmsql.zip"
    write_archive(archive)
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
