"""The demo's last step: the flights go to an archive of Parquet files, and Spark computes of it when they are late."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import sqlalchemy
from sqlalchemy import Engine

from jmsql.cli.demo.flights import missing_packages
from jmsql.cli.demo.reconciliation import Discrepancy
from jmsql.cli.demo.routing import FLIGHTS
from jmsql.cli.demo.tables import flight
from jmsql.cli.options import Database
from jmsql.cli.output import console, progress
from jmsql.exceptions import ResourceAllocationException

__all__ = ["Delay", "Piped", "pipe"]

_PACKAGES = ("pyspark", "pyarrow", "matplotlib")
_MANIFEST = "_archive.json"
_STORED = sqlalchemy.text(f"select flight_id from {flight}")


class Delay(NamedTuple):
    """How late flights leave an airport that are to leave in an hour of the day, New York's."""

    origin: str
    hour: int
    flights: int
    cancelled: int
    mean_delay: float | None
    """In minutes."""


class Piped(NamedTuple):
    """What the pipeline has come to.

    Args:
        left_out: Why there was none; None: there was one.
        archive: The archive's directory.
        archived: How many messages are in it.
        discrepancies: What is in it too little or too much.
        delays: By airport and hour.
        plots: The files of the plot.
    """

    left_out: str | None = None
    archive: Path | None = None
    archived: int = 0
    discrepancies: tuple[Discrepancy, ...] = ()
    delays: tuple[Delay, ...] = ()
    plots: tuple[Path, ...] = ()

    @property
    def is_reconciled(self) -> bool:
        """Whether the archive, if there is one, has each flight once."""
        return not self.discrepancies


def pipe(engine: Engine, database: Database, output: Path) -> Piped:
    """Archive the flights, compare the archive with what was stored, and compute and plot the delays.

    Args:
        engine: Where the flights are stored.
        database: Where the history of the queue is.
        output: Where the archive and the plots go, in place of those of the last demo.

    Raises:
        ResourceAllocationException: There is something in the place of the archive that is none.
        JMSException: Spark or the archive has failed.
    """
    missing = missing_packages(_PACKAGES)
    if missing:
        return Piped(f"Python has no {', '.join(missing)}: pip install 'jmsql[demo]'.")
    from jmsql.spark.java import find_java

    try:
        find_java()
    except ResourceAllocationException as error:
        return Piped(str(error))
    from jmsql.cli.demo.delays import compute_delays, plot_delays
    from jmsql.spark import archive
    from jmsql.spark.session import spark_errors, spark_session

    target = output / "archive"
    _clear(target)
    with _step("Starting Spark ..."), spark_session("jmsql demo", database.url) as spark:
        with _step("Archiving the flights to Parquet ..."):
            archive(spark, str(target), destinations=[FLIGHTS], schema=database.schema)
        with _step("Computing the delays ..."), spark_errors("computing the delays"):
            delays = compute_delays(spark, target)
    with _step("Plotting them ..."):
        plots = plot_delays(delays, output)
    flight_ids = list(_archived_flights(target))
    return Piped(None, target, len(flight_ids), _compare(engine, flight_ids), delays, plots)


@contextmanager
def _step(doing: str) -> Iterator[None]:
    """Show what is being done, and that it goes on."""
    console(error=True).print(doing)
    with progress() as display:
        display.add_task(doing, total=None)
        yield


def _clear(target: Path) -> None:
    """Remove the archive of the last demo: it is of flights that the database does not have any more."""
    if target.exists() and any(target.iterdir()) and not (target / _MANIFEST).exists():
        raise ResourceAllocationException(
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
