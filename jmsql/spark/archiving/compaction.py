"""Small files of an archive become large ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date

import pyarrow.parquet as pq

from jmsql.exceptions import JMSException
from jmsql.spark.archiving.lock import ArchiveLock
from jmsql.spark.archiving.manifest import ArchivedFile, Manifest
from jmsql.spark.archiving.parquet_files import ParquetFiles
from jmsql.spark.archiving.target import Target

__all__ = ["compact"]


def compact(
    target: Target,
    manifest: Manifest,
    lock: ArchiveLock,
    *,
    before: date,
    file_size: int,
    progress: Callable[[str], None],
) -> int:
    """Merge the files of each destination and day that are smaller than half of the wanted size.

    Args:
        target: Where the archive is.
        manifest: What says of which files it is.
        lock: What keeps others from writing there.
        before: The first day that is left alone: more comes to it.
        file_size: The wanted size of a file, in bytes.
        progress: Called with each directory.

    Returns:
        How many files were merged.
    """
    small: defaultdict[str, list[ArchivedFile]] = defaultdict(list)
    for file in manifest.files():
        if file.size < file_size / 2 and file.day < before:
            small[file.directory].append(file)
    merged = 0
    for directory, files in small.items():
        if len(files) > 1:
            progress(directory)
            _merge(target, manifest, lock, files, file_size)
            merged += len(files)
    return merged


def _merge(target: Target, manifest: Manifest, lock: ArchiveLock, files: list[ArchivedFile], file_size: int) -> None:
    there = 0
    with ExitStack() as resources:
        merged: ParquetFiles | None = None
        for file in files:
            with target.open(file.name) as source, target.errors(f"merging {file.name}"):
                content = pq.ParquetFile(source)
                there += content.metadata.num_rows
                if merged is None:
                    merged = resources.enter_context(ParquetFiles(target, content.schema_arrow, file_size))
                for batch in content.iter_batches():
                    merged.add_to(file.directory, batch)
        assert merged is not None
        written = merged.finish()
    if sum(file.messages for file in written) != there:
        raise JMSException(f"The files in {files[0].directory} have changed while they were merged.")
    lock.check()
    manifest.commit(written, [file.place for file in files])
