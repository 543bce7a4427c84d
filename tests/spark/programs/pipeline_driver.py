"""A driver with two streams, until it is killed: of the queue `orders` to Parquet, of the queue `parcels` to `copies`.

Its argument is the directory. It ends with an error as soon as one of the streams does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import jmsql.spark
from tests.spark.streaming import stream
from tests.spark.subprocesses import SETTINGS

OPTIONS = {"maxMessagesPerTrigger": "1000", "partitions": "2", "columns": "text_body"}


def main(directory: Path) -> None:
    spark = SparkSession.builder.master("local[2,3]").config(map=SETTINGS).getOrCreate()
    jmsql.spark.register(spark)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(directory / "orders" / f"batch={number}"))

    archive = stream(spark, **OPTIONS).writeStream.foreachBatch(write)
    forward = stream(spark, queue="parcels", **OPTIONS).writeStream.format("jmsql").option("queue", "copies")
    writers = [
        archive.option("checkpointLocation", str(directory / "orders.checkpoint")),
        forward.option("checkpointLocation", str(directory / "parcels.checkpoint")),
    ]
    queries = [writer.start() for writer in writers]
    while True:
        try:
            spark.streams.awaitAnyTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        # Spark has not started a Python process in the ten seconds that it gives it.
        spark.streams.resetTerminated()
        queries = [query if query.isActive else writer.start() for query, writer in zip(queries, writers, strict=True)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
