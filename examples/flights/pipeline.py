"""The demo's last step: the flights go to an archive of Parquet files, and Spark computes of it when they are late."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy
from sqlalchemy import Engine

import jmsql
from examples.flights.database import DemoDatabase, flight
from examples.flights.delays import Delay, compute_delays
from examples.flights.reconciliation import Discrepancy
from examples.flights.routing import FLIGHTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PACKAGES = ("pyspark", "pyarrow", "matplotlib")
"""What the pipeline needs of Python."""

_MANIFEST = "_archive.json"
_STORED = sqlalchemy.text(f"select flight_id from {flight}")


class Piped(NamedTuple):
    """The result of the pipeline.

    Args:
        archive: The archive's directory.
        archived: How many messages are in it.
        discrepancies: What is in it too little or too much.
        delays: By airport and hour.
        plots: The files of the plot.
    """

    archive: Path
    archived: int
    discrepancies: tuple[Discrepancy, ...]
    delays: tuple[Delay, ...]
    plots: tuple[Path, ...]

    @property
    def is_reconciled(self) -> bool:
        """True if the archive has each flight once."""
        return not self.discrepancies


def pipe(
    engine: Engine,
    database: DemoDatabase,
    output: Path,
    step: Callable[[str], AbstractContextManager[object]],
) -> Piped:
    """Archive the flights, compare the archive with what was stored, and compute and plot the delays.

    Raises:
        ResourceAllocationException: In the place of the archive is something else, or Spark does not start.
        JMSException: The archive has failed.
    """
    from examples.flights.delays import plot_delays
    from jmsql.spark import archive

    target = output / "archive"
    _clear(target)
    with step("Starting Spark ..."), _spark(database.url) as spark:
        with step("Archiving the flights to Parquet ..."):
            archive(str(target), destinations=[FLIGHTS], schema=database.schema)
        with step("Computing the delays ..."):
            delays = compute_delays(spark, target)
    with step("Plotting them ..."):
        plots = plot_delays(delays, output)
    flight_ids = list(_archived_flights(target))
    return Piped(target, len(flight_ids), _compare(engine, flight_ids), delays, plots)


def missing_java() -> str | None:
    """Return a sentence if there is no Java for Spark."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is not None:
        return None
    return "No Java was found. Spark needs Java 17 or newer (Debian: apt-get install default-jre-headless)."


@contextmanager
def _spark(url: str) -> Iterator[SparkSession]:
    """Start Spark on this machine for the time of the block, or use the session that runs.

    The data source finds the database by the environment, where no log shows a password.
    """
    from pyspark.sql import SparkSession

    from jmsql.spark import register

    before = os.environ.get("JMSQL_URL")
    os.environ["JMSQL_URL"] = url
    running = SparkSession.getActiveSession()
    spark = running or (
        SparkSession.builder.appName("jmsql demo")
        .master("local[*]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        register(spark)
        yield spark
    finally:
        if running is None:
            spark.stop()
        if before is None:
            del os.environ["JMSQL_URL"]
        else:
            os.environ["JMSQL_URL"] = before


def _clear(target: Path) -> None:
    """Remove the archive of the last demo: it is of flights that the database does not have any more."""
    if target.exists() and any(target.iterdir()) and not (target / _MANIFEST).exists():
        raise jmsql.ResourceAllocationException(
            f"{target} holds something that the demo did not make. Name another directory with --output."
        )
    shutil.rmtree(target, ignore_errors=True)


def _archived_flights(target: Path) -> Iterator[int]:
    """Read the archive without Spark."""
    import pyarrow.dataset

    for batch in pyarrow.dataset.dataset(target, format="parquet", partitioning="hive").to_batches(["json_body"]):
        for body in batch.column(0).to_pylist():
            yield json.loads(body)["flight_id"]


def _compare(engine: Engine, flight_ids: list[int]) -> tuple[Discrepancy, ...]:
    archived = Counter(flight_ids)
    with engine.connect() as connection:
        stored = set(connection.scalars(_STORED))
    found = (
        Discrepancy("missing in the archive", sorted(stored - archived.keys())),
        Discrepancy("in the archive, but never stored", sorted(archived.keys() - stored)),
        Discrepancy("in the archive more than once", sorted(each for each, times in archived.items() if times > 1)),
    )
    return tuple(each for each in found if each.flight_ids)
