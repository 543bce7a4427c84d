"""What befalls a task in the middle of its rows, once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

BATCH = "5"
"""How many rows a task gets at once, so that there is a middle."""

Strike = Callable[[], None]


def break_off() -> None:
    """The task fails."""
    raise RuntimeError("the task breaks")


def kill_worker() -> None:
    """The Python process of the task is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """The executor is killed, which has started the daemon that has forked this process."""
    os.kill(int(os.environ["JMSQL_TEST_STARTED_BY"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def strike_once(strike: Strike, marker: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Pass rows on, and strike after some of those of the second partition, if that has not happened before."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 1 and context.partitionId() == 1 and not marker.exists():
                marker.touch()
                strike()
            yield batch

    return pass_on
