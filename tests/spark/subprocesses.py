"""Processes of Spark beside the one of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.python.daemon.module": "tests.spark.programs.preloaded_daemon",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""The settings of every session: with rows as few as those of the tests, planning and compiling costs the most."""

_ROOT = Path(__file__).parents[2]


def environment(url: str) -> dict[str, str]:
    """What a process of Spark needs to find Python, the tests and the database."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return {"PYSPARK_PYTHON": sys.executable, **os.environ, "JMSQL_URL": url, "PYTHONPATH": path}


def start_module(
    name: str, *arguments: str, environment: dict[str, str], log: IO[Any], output: int | IO[Any] | None = None
) -> subprocess.Popen[bytes]:
    """Run a module in a process that leads a group of its own.

    Args:
        name: The module.
        arguments: Its arguments.
        environment: Its environment. `PYSPARK_PYTHON` is the Python that runs it, as it runs what Spark starts.
        log: Where its standard error goes.
        output: Where its standard output goes; None: to the log.
    """
    return subprocess.Popen(
        [environment["PYSPARK_PYTHON"], "-m", name, *arguments],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log if output is None else output,
        stderr=log,
        process_group=0,
    )


def children_of(process: int) -> Iterator[tuple[int, str]]:
    """All processes below one, with their command lines."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            lines[int(path.name)] = (path / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue
        parents[int(path.name)] = int(stat[1])

    def is_below(child: int) -> bool:
        while child in parents:
            child = parents[child]
            if child == process:
                return True
        return False

    return ((child, lines[child]) for child in parents if is_below(child))
