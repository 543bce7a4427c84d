"""What a user of Spark Connect does: writes to the queue `orders`, reads it, streams it, and writes down what came."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import jmsql.spark
from tests.spark.streaming import finish
from tests.spark.subprocesses import SETTINGS


def main(directory: str) -> None:
    spark = SparkSession.builder.remote("local[2]").config(map=SETTINGS).getOrCreate()
    jmsql.spark.register(spark)
    rows = spark.createDataFrame([("one",), ("two",)], "text_body string")
    rows.write.format("jmsql").option("queue", "orders").mode("append").save()
    read = spark.read.format("jmsql").options(queue="orders", columns="text_body").load().collect()
    stream = spark.readStream.format("jmsql").options(queue="orders", columns="text_body").load()
    finish(stream.writeStream.format("parquet").option("path", f"{directory}/lake"), Path(directory))
    lake = spark.read.parquet(f"{directory}/lake").collect()
    spark.stop()
    answer = {"read": sorted(row.text_body for row in read), "lake": sorted(row.text_body for row in lake)}
    Path(directory, "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
