"""Makes an archive of the classes that Spark loads, with which the JVMs of the tests start in a third of the time.

Its arguments are the directory to work in, and the archive.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from jmsql.spark.session import find_java, stop_with_java
from tests.spark.subprocesses import SETTINGS

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for a few seconds: little is compiled, and one thread collects garbage."""


def using(archive: Path) -> str:
    """Return the options of a JVM that takes its classes from the archive, where it can."""
    return f"{QUICK_START} -XX:SharedArchiveFile={archive}"


def archive_in(directory: Path) -> Path:
    """Return the archive for this Java and this Spark, which is made if it is not in the directory yet.

    It takes as much processor time as it saves in some ten JVMs; so it outlives the run that makes it.
    """
    java, jars = find_java().resolve(), Path(pyspark.__file__).parent / "jars"
    versions = [Path(__file__).read_text(), SETTINGS, *((path, path.stat().st_mtime_ns) for path in (java, jars))]
    archive = directory / f"{hashlib.sha256(str(versions).encode()).hexdigest()[:16]}.jsa"
    with (directory / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=directory) as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for former in directory.glob("*.jsa"):
                former.unlink()
            made = Path(work, archive.name)
            command = [sys.executable, "-m", __name__, work, str(made)]
            subprocess.run(command, cwd=Path(__file__).parents[2], check=True, capture_output=True, timeout=300)
            made.rename(archive)
    return archive


def main(directory: Path, archive: Path) -> None:
    """Let a session do a little of everything, and its JVM write its classes when it ends."""
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:ArchiveClassesAtExit={archive}"
    spark = SparkSession.builder.master("local[2]").config(map=SETTINGS).getOrCreate()
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
