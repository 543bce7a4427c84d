"""Streaming queries of the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

_PATIENCE = 200.0
"""Seconds for which a query is started again that could not start a Python process."""


def stream(spark: SparkSession, **options: str) -> DataFrame:
    """The stream of a queue."""
    return spark.readStream.format("jmsql").options(**{"queue": "orders", **options}).load()


def finish(writer: DataStreamWriter, directory: Path, name: str = "query") -> str:
    """Bring what is there now to the sink; return the query's progress as JSON, or raise what fails."""
    return run(writer.trigger(availableNow=True), directory, name)


def run(writer: DataStreamWriter, directory: Path, name: str = "query") -> str:
    """Run a query to its end; return its progress as JSON, or raise what fails.

    Spark gives each of its Python processes ten seconds to start, which is not always enough on a busy machine: the
    query is then started again, as its operator would do.
    """
    writer = writer.option("checkpointLocation", str(directory / f"{name}.checkpoint"))
    last = time.monotonic() + _PATIENCE
    while True:
        query = writer.start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error) or time.monotonic() > last:
                raise
        else:
            return "\n".join(progress.json for progress in query.recentProgress)


def archive(rows: DataFrame, write: Callable[[DataFrame, int], None], directory: Path, name: str = "query") -> str:
    """Hand what is there now to a function, in batches."""
    return finish(rows.writeStream.foreachBatch(write), directory, name)


def run_now(rows: DataFrame, directory: Path, name: str = "query") -> str:
    """Archive what is there now to Parquet, in a directory for each batch."""
    return archive(
        rows,
        lambda batch, number: batch.write.mode("overwrite").parquet(f"{directory}/{name}/batch={number}"),
        directory,
        name,
    )


def forward_now(rows: DataFrame, directory: Path, name: str = "query", **options: str) -> str:
    """Send what is there now to the queue `copies`."""
    return finish(rows.writeStream.format("jmsql").options(**{"queue": "copies", **options}), directory, name)


def break_down(rows: DataFrame, directory: Path) -> None:
    """Run a query whose sink breaks at its first batch."""

    def sink(batch: DataFrame, number: int) -> None:
        raise RuntimeError(f"the sink breaks at {number}")

    with pytest.raises(StreamingQueryException, match="the sink breaks at 0"):
        archive(rows, sink, directory)


def archived(directory: Path, name: str = "query", column: str = "text_body") -> list[str]:
    """What another engine finds in the Parquet files."""
    files = f"{directory}/{name}/*/*.parquet"
    with duckdb.connect() as database:
        found = database.execute(f"select {column} from read_parquet('{files}', hive_partitioning = true) order by 1")
        return [value for (value,) in found.fetchall()]
