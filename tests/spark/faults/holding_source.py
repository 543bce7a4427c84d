"""The data source of the tests, which stops where a test wants to strike; all else is jmsql's own.

The environment variable `JMSQL_TEST_HOLD` names the step, and the directory in which the file `held` is made then. It
goes on when there is a file `released`. A batch write stops at no step, and leaves the file `written` there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from jmsql.spark.options import Options
from jmsql.spark.writing.writer import BatchWriter, StreamWriter, WrittenPartition
from jmsql.testing import wait_for
from pyspark_jmsql import DefaultSource

VARIABLE = "JMSQL_TEST_HOLD"


def hold(step: str) -> None:
    """Stop here, if this is the step."""
    wanted, directory = _wanted()
    if wanted == step:
        (directory / "held").touch()
        wait_for((directory / "released").exists, timeout=600)


def _wanted() -> tuple[str, Path]:
    step, _, directory = os.environ.get(VARIABLE, "").partition(":")
    return step, Path(directory)


class _HoldingStreamWriter(StreamWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        hold("written")
        super().commit(messages, batchId)
        hold("sent")


class _StragglingWriter(BatchWriter):
    """The first attempt of the first task commits its messages, and does not come to an end; then others go on.

    Args:
        options: The options of the write.
        written: The file that is made when the messages are committed.
    """

    def __init__(self, options: Options, written: Path) -> None:
        super().__init__(options)
        self._written = written

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenPartition:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0 and context.attemptNumber() > 0:
            wait_for(self._written.exists, timeout=100)
        written = super().write(iterator)
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            self._written.touch()
            time.sleep(600)
        return written


class HoldingSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "jmsql-holding"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        super().streamWriter(schema, overwrite)
        return _HoldingStreamWriter(self.settings)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        super().writer(schema, overwrite)
        return _StragglingWriter(self.settings, _wanted()[1] / "written")
