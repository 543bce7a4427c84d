"""Streaming queries of the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from jmsql.testing import wait_for

__all__ = ["archive", "archived", "break_down", "run_now", "stream"]


def stream(spark: SparkSession, **options: str) -> DataFrame:
    """The stream of a queue."""
    return spark.readStream.format("jmsql").options(**{"queue": "orders", **options}).load()


def archive(rows: DataFrame, write: Callable[[DataFrame, int], None], directory: Path, name: str = "query") -> None:
    """Hand what is there now to a sink, in batches, and raise what fails.

    Spark gives each of its Python processes ten seconds to start, which is not always enough on a busy machine: the
    query is then started again, as whoever runs it would do.
    """
    for _ in range(5):
        query = (
            rows.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(directory / f"{name}.checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        wait_for(lambda query=query: not query.isActive, timeout=300)  # type: ignore[misc]
        error = query.exception()
        if error is None:
            return
        if "failed to connect back" not in str(error):
            raise error
    raise AssertionError("Spark could not start a Python process in five attempts.")


def run_now(rows: DataFrame, directory: Path, name: str = "query") -> None:
    """Archive what is there now to Parquet, in a directory for each batch."""
    archive(
        rows,
        lambda batch, number: batch.write.mode("overwrite").parquet(f"{directory}/{name}/batch={number}"),
        directory,
    )


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
