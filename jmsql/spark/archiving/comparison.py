"""The history of a day beside the archive of the same day, message by message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from jmsql.spark.archiving.manifest import ArchivedFile
from jmsql.spark.archiving.parquet_files import KEY
from jmsql.spark.archiving.target import Target

__all__ = ["ArchiveComparison", "archived_keys", "compare"]

_CHUNK = 1_000_000
"""About so many messages are compared at once."""

_NAMES = KEY.names


class ArchiveComparison(NamedTuple):
    """How many messages there are, how many the archive lacks, and how many it has too often."""

    in_history: int = 0
    in_archive: int = 0
    missing: int = 0
    doubled: int = 0


def archived_keys(target: Target, files: Iterable[ArchivedFile]) -> ds.Dataset:
    """Return the columns `KEY` of files, as they are read when they are wanted."""
    parquet = ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(
            target / file.name, target.file_system, partition_expression=pc.field("destination") == file.destination
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, KEY, parquet, target.file_system)


def compare(history: Iterator[pa.RecordBatch], archive: ds.Dataset) -> ArchiveComparison:
    """Compare what tells the rows apart, all of it.

    The archive may have more than the history, from which some destinations' messages may have been removed.

    Args:
        history: What PostgreSQL has: the columns `KEY`, in the order of their transactions.
        archive: What the archive has.
    """
    total = ArchiveComparison()
    place = pc.field("transaction_id")
    bound = 0
    for rows, end in _chunks(history):
        wanted = place >= bound
        if end is not None:
            wanted &= place < end
        found = _compare(rows, archive.to_table(columns=_NAMES, filter=wanted))
        total = ArchiveComparison(*map(sum, zip(total, found, strict=True)))
        bound = end or 0
    return total


def _chunks(history: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.Table, int | None]]:
    """Return parts of the history, each with the first transaction that comes after it, if one does."""
    kept = KEY.empty_table()
    for batch in history:
        kept = pa.concat_tables([kept, pa.Table.from_batches([batch]).cast(KEY)])
        if kept.num_rows >= _CHUNK:
            transactions = kept.column("transaction_id")
            last = transactions[-1].as_py()
            # What is left of a transaction may come with the next batch.
            complete = pc.less(transactions, last)
            part = kept.filter(complete)
            if part.num_rows:
                yield part, last
                kept = kept.filter(pc.invert(complete))
    yield kept, None


def _compare(history: pa.Table, archive: pa.Table) -> ArchiveComparison:
    rows = pa.concat_tables([_counted(history, 1, 0), _counted(archive.cast(KEY), 0, 1)])
    counted = rows.group_by(_NAMES).aggregate([("in_history", "sum"), ("in_archive", "sum")])
    in_history, in_archive = counted["in_history_sum"], counted["in_archive_sum"]
    missing = pc.max_element_wise(pc.subtract(in_history, in_archive), 0)
    doubled = pc.max_element_wise(pc.subtract(in_archive, pc.max_element_wise(in_history, 1)), 0)
    return ArchiveComparison(
        history.num_rows, archive.num_rows, pc.sum(missing).as_py() or 0, pc.sum(doubled).as_py() or 0
    )


def _counted(rows: pa.Table, in_history: int, in_archive: int) -> pa.Table:
    for name, number in (("in_history", in_history), ("in_archive", in_archive)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
    return rows
