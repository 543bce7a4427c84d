"""Rows of PostgreSQL become Parquet files, without a JVM: in this process, or in tasks of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from jmsql.spark.archiving.manifest import NewFile
from jmsql.spark.archiving.parquet_files import ParquetFiles
from jmsql.spark.archiving.target import Target
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.connection import CANCEL_AGAIN_AFTER, DatabaseReference, cancel, execute_arrow, read_ahead

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection
    from pyspark.sql import SparkSession

__all__ = ["Unloading"]

_DOING = "archiving"

_BATCHES_AHEAD = 5
"""Batches of 16 MiB that are read before they are needed: as many as one row group has, while that is written."""


@dataclass(frozen=True)
class Unloading:
    """Who reads, and where it goes.

    Args:
        database: Where it is read.
        target: Where the archive is.
        file_size: The bytes from which on a file takes no more rows.
        connections: How many threads of this process read at the same time, each over a connection of its own.
        spark: Whose tasks read instead of threads.
    """

    database: DatabaseReference
    target: str
    file_size: int
    connections: int = 1
    spark: SparkSession | None = None

    def run(self, statements: Sequence[str], schema: pa.Schema) -> list[NewFile]:
        """Write what statements return to files that are not part of the archive yet.

        Args:
            statements: The statements, complete with their values.
            schema: The columns that they return, as they are to be stored.

        Returns:
            The files, in the order of the statements.

        Raises:
            JMSException: It failed. What was written stays, under hidden names.
        """
        task = partial(_unload, self.database, self.target, self.file_size, schema)
        if self.spark is not None and statements:
            from jmsql.spark.session import spark_errors

            with spark_errors(_DOING):
                found = self.spark.sparkContext.parallelize(statements, len(statements)).map(task).collect()
        elif len(statements) == 1:
            found = [task(statements[0])]
        else:
            readers: list[Connection] = []
            with ThreadPoolExecutor(self.connections) as threads:
                running = [threads.submit(task, statement, readers) for statement in statements]
                try:
                    found = [future.result() for future in running]
                except BaseException:
                    _end(running, readers)
                    raise
        return [file for files in found for file in files]


def _end(running: Sequence[Future[list[NewFile]]], readers: Sequence[Connection]) -> None:
    """Cancel what threads read, also of those that have not connected yet, or not begun their statements."""
    waiting = {future for future in running if not future.cancel()}
    while waiting:
        for reader in tuple(readers):
            cancel(reader)
        waiting = wait(waiting, CANCEL_AGAIN_AFTER).not_done


def _unload(
    database: DatabaseReference,
    target: str,
    file_size: int,
    schema: pa.Schema,
    statement: str,
    readers: list[Connection] | None = None,
) -> list[NewFile]:
    with (
        ParquetFiles(Target(target), schema, file_size) as files,
        database.connect_arrow(_DOING) as connection,
        connection.cursor() as cursor,
    ):
        if readers is not None:
            readers.append(connection)
        execute_arrow(cursor, statement)
        rows = Shaper(schema).shape(cursor.fetch_record_batch())
        with closing(read_ahead(connection, rows, _DOING, _BATCHES_AHEAD)) as batches:
            for batch in batches:
                files.add(batch)
        return files.finish()
