"""The statistics as Parquet: a directory for each, overwritten as a whole."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow.parquet

from jmsql.spark.statistics.results import Results

__all__ = ["write_statistics"]


def write_statistics(results: Results, directory: Path) -> None:
    """Write the statistics to ``by_hour/NAME`` and ``overall/NAME`` in a directory, in place of what is there.

    They are written beside it first: readers see those of one run, even if this one breaks off.

    Args:
        results: The statistics.
        directory: Where to.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        for grain, tables in (("by_hour", results.by_hour), ("overall", results.overall)):
            for name, table in tables.items():
                place = new / grain / name
                place.mkdir(parents=True)
                pyarrow.parquet.write_table(table, place / "part-0.parquet")
        new.chmod(0o755)
        if directory.exists():
            former = new.with_name(f"{new.name}-former")
            directory.rename(former)
            new.rename(directory)
            shutil.rmtree(former)
        else:
            new.rename(directory)
    finally:
        shutil.rmtree(new, ignore_errors=True)
