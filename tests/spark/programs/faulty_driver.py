"""A driver to be killed: streams the queue `orders` to Parquet, or to the queue `copies`.

Its arguments are the directory and the sink: `parquet` or `jmsql`.
`JMSQL_TEST_HOLD` says where it stops.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import jmsql.spark
from tests.spark.faults.holding_source import HoldingSource, hold
from tests.spark.streaming import run, stream
from tests.spark.subprocesses import SETTINGS


def main(directory: Path, sink: str) -> None:
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
    jmsql.spark.register(spark)
    spark.dataSource.register(HoldingSource)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(directory / "query" / f"batch={number}"))
        hold("durable")

    query = stream(spark, maxMessagesPerTrigger="20", partitions="2", columns="text_body").writeStream
    to_queue = query.format("jmsql-holding").options(queue="copies")
    run(query.foreachBatch(write) if sink == "parquet" else to_queue, directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
