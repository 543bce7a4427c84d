"""Archives that are killed at each of their steps, one after the other. Its argument is the directory of the targets.

Each target is of the whole history. What is in it is looked at as the killed process has left it, by those who know the
manifest and by those who do not; then the next run ends it. The output is one line for each step.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi  # noqa: F401 - once, for all copies of this process
import pyarrow.parquet as pq

from jmsql.spark import archive, archived_files
from jmsql.spark.archiving.manifest import MANIFEST
from jmsql.spark.archiving.target import Target
from jmsql.spark.streaming.history_stream import HistoryStream

BATCH = 20
_STEPS = ((Target, ("write", "move", "delete")), (HistoryStream, ("divide", "pass_to")))


def _in_a_process(run: Callable[..., object], *arguments: object) -> int:
    """Run something in a copy of this process, and return how that has ended."""
    child = os.fork()
    if child == 0:
        try:
            run(*arguments)
        except BaseException:  # noqa: BLE001 - nothing of it goes on here
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _archive(target: Path) -> None:
    archive(str(target), max_messages_per_batch=BATCH, merge=True)


def _archive_and_die(target: Path, at: int) -> None:
    steps = itertools.count(1)

    def before(method: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            if next(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments)

        return step

    for kind, names in _STEPS:
        for name in names:
            setattr(kind, name, before(getattr(kind, name)))
    _archive(target)


def _bodies(files: list[Path]) -> list[str]:
    return sorted(body for file in files for body in pq.read_table(file, columns=["text_body"])[0].to_pylist())


def _look(target: Path) -> None:
    begun = (target / MANIFEST).exists()
    archived = _bodies([target / file.name for file in archived_files(str(target))] if begun else [])
    assert len(archived) % BATCH == 0
    assert archived == [f"{number:04}" for number in range(len(archived))]
    visible = _bodies([*target.glob("destination=*/day=*/batch=*/*.parquet")])
    assert len(set(visible)) == len(visible)
    assert set(visible) <= set(archived)


def main(directory: Path) -> None:
    """Kill an archive at its first step, then at its second, until it ends before."""
    for at in itertools.count(1):
        target = directory / str(at)
        ended = _in_a_process(_archive_and_die, target, at)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        assert _in_a_process(_look, target) == 0
        assert _in_a_process(_archive, target) == 0
        sys.stdout.write(f"{at}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
