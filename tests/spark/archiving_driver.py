"""A driver to be killed: archives the queue `orders` to Parquet, a directory for each batch, until it is killed.

Its arguments are the directory, and `hold` if it shall stop, and say so, when the sink is durable.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.streaming import stream


def main(directory: Path, *, hold: bool) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    spark = (
        builder.config("spark.driver.host", "127.0.0.1")
        .config("spark.python.daemon.module", "tests.spark.preloaded_daemon")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(directory / "query" / f"batch={number}"))
        if hold:
            sys.stdout.write("durable\n")
            sys.stdout.flush()
            time.sleep(3600)

    rows = stream(spark, maxMessagesPerTrigger="20", partitions="2", columns="text_body")
    query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "query.checkpoint"))
    query.start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), hold="hold" in sys.argv)
