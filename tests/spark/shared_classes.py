"""Makes an archive of the classes that Spark loads, with which the JVMs of the tests start in a third of the time.

Its arguments are the directory to work in, and the archive.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from jmsql.spark.jvm import stop_with_java
from tests.spark.subprocesses import SETTINGS

__all__ = ["QUICK_START", "using"]

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for a few seconds: little is compiled, and one thread collects garbage."""


def using(archive: Path) -> str:
    """Return the options of a JVM that takes its classes from the archive, where it can."""
    return f"{QUICK_START} -XX:SharedArchiveFile={archive}"


def main(directory: Path, archive: Path) -> None:
    """Let a session do a little of everything, and its JVM write its classes when it ends."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:ArchiveClassesAtExit={archive}"
    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=SETTINGS)
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = spark.range(100).selectExpr("id", "cast(id as string) as text")
    rows.write.parquet(str(directory / "rows"))
    query = (
        spark.readStream.schema("id bigint, text string")
        .parquet(str(directory / "rows"))
        .writeStream.foreachBatch(lambda batch, _: batch.groupBy("text").count().write.parquet(str(directory / "out")))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stop_with_java(spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
