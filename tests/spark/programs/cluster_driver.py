"""A driver on a cluster: an executor is killed while it reads and writes, and executors race each other.

Its arguments are the URL of the master and the directory. It forwards the queue `orders` to `copies`, and sends to the
queue `numbers`, where its first task stages its messages and never ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import jmsql.spark
from tests.spark.faults.holding_source import HoldingSource
from tests.spark.faults.striking import BATCH, kill_executor, strike_once
from tests.spark.streaming import forward_now, stream
from tests.spark.subprocesses import SETTINGS

OPTIONS = {"maxMessagesPerTrigger": "30", "partitions": "2", "columns": "text_body"}


def main(master: str, directory: Path) -> None:
    settings: dict[str, bool | float | int | str | None] = {
        **SETTINGS,
        "spark.executor.memory": "600m",
        "spark.executor.extraJavaOptions": os.environ.get("SPARK_DAEMON_JAVA_OPTS", ""),
        "spark.sql.execution.arrow.maxRecordsPerBatch": BATCH,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "2s",
    }
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    jmsql.spark.register(spark)
    spark.dataSource.register(HoldingSource)

    orders = stream(spark, **OPTIONS)
    forward_now(orders.mapInArrow(strike_once(kill_executor, directory / "struck"), orders.schema), directory)
    numbers = spark.range(0, 60, 1, 4).selectExpr("lpad(id, 4, '0') as text_body")
    numbers.write.format("jmsql-holding").option("queue", "numbers").mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
