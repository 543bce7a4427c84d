"""A driver with two streams, until it is killed: of the queue `orders` to Parquet, of the queue `parcels` to `copies`.

Its argument is the directory. It ends with an error as soon as one of the streams does.
"""

from __future__ import annotations

import os
import sys
import traceback
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.spark.streaming import run, stream

OPTIONS = {"maxMessagesPerTrigger": "200", "partitions": "2", "columns": "text_body"}


def main(directory: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.daemon.module", "tests.spark.preloaded_daemon")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(directory / "orders" / f"batch={number}"))

    archive = stream(spark, **OPTIONS).writeStream.foreachBatch(write)
    forward = stream(spark, queue="parcels", **OPTIONS).writeStream.format("jmsql").option("queue", "copies")
    with ThreadPoolExecutor() as threads:
        started = [
            threads.submit(run, query, directory, name) for name, query in (("orders", archive), ("parcels", forward))
        ]
        ended, _ = wait(started, return_when=FIRST_COMPLETED)
        for query in ended:
            traceback.print_exception(query.exception())
        os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
