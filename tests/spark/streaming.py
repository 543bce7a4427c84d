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
    """Hand what is there now to a sink, in batches, and raise what fails."""
    query = (
        rows.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(directory / f"{name}.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    wait_for(lambda: not query.isActive, timeout=300)
    if (error := query.exception()) is not None:
        raise error


def run_now(rows: DataFrame, directory: Path, name: str = "query") -> None:
    """Archive what is there now to Parquet, in a directory for each batch."""
    archive(
        rows,
        lambda batch, number: batch.write.mode("overwrite").parquet(f"{directory}/{name}/batch={number}"),
        directory,
    )


def break_down(rows: DataFrame, checkpoint: Path) -> None:
    """Run a query whose sink breaks at its first batch."""

    def sink(batch: DataFrame, number: int) -> None:
        raise RuntimeError(f"the sink breaks at {number}")

    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).start()
    with pytest.raises(StreamingQueryException, match="the sink breaks at 0"):
        query.awaitTermination(300)


def archived(directory: Path, name: str = "query", column: str = "text_body") -> list[str]:
    """What another engine finds in the Parquet files."""
    files = f"{directory}/{name}/*/*.parquet"
    with duckdb.connect() as database:
        found = database.execute(f"select {column} from read_parquet('{files}', hive_partitioning = true) order by 1")
        return [value for (value,) in found.fetchall()]
