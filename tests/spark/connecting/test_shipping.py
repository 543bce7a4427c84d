from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.client.server import Server
from tests.zip_archive import write_archive

pytestmark = pytest.mark.timeout(400)


def test_package_is_brought_along_in_a_zip_archive(secret_url: str, server: Server, tmp_path: Path) -> None:
    archive = tmp_path / "jmsql.zip"
    write_archive(archive)
    installed = tmp_path / "installed"
    for package in ("jmsql", "pyspark_jmsql"):
        (installed / package).mkdir(parents=True)
        (installed / package / "__init__.py").write_text("raise ImportError('not the one of the archive')")
    settings = {
        **os.environ,
        "JMSQL_URL": secret_url,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--driver-memory 1g --py-files {archive} pyspark-shell",
        "PYTHONPATH": str(installed),
    }
    answer = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "programs" / "shipped_program.py", tmp_path / "checkpoint"],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=380,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    path, *bodies = answer.stdout.split()
    assert "jmsql.zip" in path
    assert bodies == ["one", "two"]
    server.terminate("jmsql-spark-keeping-a-snapshot")
