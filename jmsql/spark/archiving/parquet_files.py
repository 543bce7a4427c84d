"""Rows of PostgreSQL become Parquet files, without a JVM: in this process, or in tasks of Spark."""

from __future__ import annotations

import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jmsql import JMSException
from jmsql.spark.archiving.manifest import NEW, ArchivedFile, Manifest, NewFile
from jmsql.spark.archiving.target import ArchiveLock, Target
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.expressions import COLUMNS, HISTORY_COLUMNS
from jmsql.spark.connection import CANCEL_AGAIN_AFTER, ArrowConnection, DatabaseReference, execute_arrow, read_ahead
from jmsql.spark.options import PropertyFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}
_STRING, _LONG = pa.string(), pa.int64()
_VALUE = {"type": _STRING, "boolean": pa.bool_(), "long": _LONG, "double": pa.float64(), "string": _STRING}
_MAP = pa.map_(_STRING, pa.struct([*_VALUE.items()]))
_KEY = ("destination", "subscription", "subscription_client_id", "transaction_id", "sequence")
KEY = pa.schema([(name, _TYPES[HISTORY_COLUMNS[name]]) for name in _KEY])
"""The columns that tell a row of history from all others."""

_OF_FEW_VALUES = (
    *("priority", "type", "delivery_mode", "reply_to", "jms_type", "properties", "property_types", "body_types"),
    *("delivery_count", "outcome", "subscription", "subscription_client_id", "connection_id", "client_id", "user_name"),
)
"""Columns in which values are repeated, so that a dictionary of them makes files smaller and is made quickly."""

_ROW_GROUP = 64 * 2**20
_MEMORY = 256 * 2**20

# As Spark writes it and reads it, and all others read it.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")


def history_schema(properties: PropertyFormat) -> pa.Schema:
    """Return the columns of the history, the destination included, which is in the names of directories."""
    return _schema(HISTORY_COLUMNS, properties)


def waiting_schema(properties: PropertyFormat) -> pa.Schema:
    """Return the columns of waiting messages, likewise."""
    return _schema({**COLUMNS, "subscription": "string", "subscription_client_id": "string"}, properties)


def _schema(columns: Mapping[str, str], properties: PropertyFormat) -> pa.Schema:
    types = {name: _TYPES[kind] for name, kind in columns.items()}
    if properties is PropertyFormat.map:
        types["properties"] = _MAP
        del types["property_types"]
    return pa.schema(types)


class _File:
    """A file that is being written."""

    def __init__(self, target: Target, directory: str, schema: pa.Schema) -> None:
        target.check_directory(directory)
        self.directory = directory
        self._target = target
        self._name = f"{NEW}/{uuid.uuid4().hex}.parquet"
        self._messages = 0
        dictionaries = [name for name in _OF_FEW_VALUES if name in schema.names and schema.field(name).type != _MAP]
        with ExitStack() as resources:
            self._stream = resources.enter_context(target.create(self._name))
            self._writer = resources.enter_context(
                pq.ParquetWriter(self._stream, schema, compression="zstd", use_dictionary=dictionaries)
            )
            self._resources = resources.pop_all()

    def write(self, rows: pa.Table) -> int:
        """Add a row group, and return how many bytes the file has now."""
        with self._target.errors(f"writing {self._name}"):
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._messages += rows.num_rows
            return int(self._stream.tell())

    def close(self) -> NewFile:
        """Complete the file."""
        self._resources.close()
        return NewFile(self._name, self.directory, self._messages)


class ParquetFiles:
    """Writes rows to files, each with the rows of one directory, in the order in which they come.

    From `file_size` bytes on, a file takes no more rows.
    """

    def __init__(self, target: Target, schema: pa.Schema, file_size: int) -> None:
        self._target = target
        self._schema = pa.schema([field for field in schema if field.name != "destination"])
        self._file_size = file_size
        self._waiting: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._sizes: dict[str, int] = {}
        self._open: dict[str, _File] = {}
        self._closed: list[NewFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, whose columns say to which directories they belong."""
        for directory, part in _by_directory(rows):
            self.add_to(directory, part)

    def add_to(self, directory: str, rows: pa.RecordBatch) -> None:
        """Add rows of one directory, without the columns that its name says."""
        self._waiting[directory].append(rows)
        self._sizes[directory] = self._sizes.get(directory, 0) + rows.nbytes
        if self._sizes[directory] >= _ROW_GROUP:
            self._write(directory)
        elif sum(self._sizes.values()) >= _MEMORY:
            self._write(max(self._sizes, key=self._sizes.__getitem__))

    def finish(self) -> list[NewFile]:
        """Write the remaining rows, and return all files, in the order of their directories and rows."""
        for directory in sorted({*self._waiting, *self._open}):
            if directory in self._waiting:
                self._write(directory)
            self._close(directory)
        return sorted(self._closed, key=lambda file: file.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def _write(self, directory: str) -> None:
        rows = pa.Table.from_batches(self._waiting.pop(directory), self._schema)
        del self._sizes[directory]
        if directory not in self._open:
            self._open[directory] = _File(self._target, directory, self._schema)
        if self._open[directory].write(rows) >= self._file_size:
            self._close(directory)

    def _close(self, directory: str) -> None:
        if directory in self._open:
            self._closed.append(self._open.pop(directory).close())


def _by_directory(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    keys = {"destination": rows.column("destination")}
    if "acknowledged_at" in rows.schema.names:
        keys["day"] = rows.column("acknowledged_at").cast(pa.date32())
    rest = rows.drop_columns(["destination"])
    found = pa.table(keys).group_by([*keys]).aggregate([]).to_pylist()
    for values in found:
        directory = "/".join(f"{name}={_ESCAPED.sub(_escape, str(value))}" for name, value in values.items())
        if len(found) == 1:
            yield directory, rest
            return
        wanted = [pc.equal(keys[name], pa.scalar(value, keys[name].type)) for name, value in values.items()]
        yield directory, rest.filter(wanted[0] if len(wanted) == 1 else pc.and_(*wanted))


def _escape(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


def compact(
    target: Target,
    manifest: Manifest,
    lock: ArchiveLock,
    *,
    before: date,
    file_size: int,
    progress: Callable[[str], None],
) -> int:
    """Merge the files of each destination and day before another that are smaller than half of the wanted size.

    `progress` is called with each directory.
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


_DOING = "archiving"

_BATCHES_AHEAD = 5
"""Batches of 16 MiB that are read before they are needed: as many as one row group has, while that is written."""


@dataclass(frozen=True)
class Unloading:
    """The way to write files: by threads or Spark tasks, each over its own connection."""

    database: DatabaseReference
    target: str
    file_size: int
    connections: int = 1
    spark: SparkSession | None = None

    def run(self, statements: Sequence[str], schema: pa.Schema) -> list[NewFile]:
        """Write the rows of complete statements to files that are not part of the archive yet.

        Returns:
            The files, in the order of the statements.

        Raises:
            JMSException: It failed. Written files stay, under hidden names.
        """
        task = partial(_unload, self.database, self.target, self.file_size, schema)
        if self.spark is not None and statements:
            from jmsql.spark.session import spark_errors

            with spark_errors(_DOING):
                found = self.spark.sparkContext.parallelize(statements, len(statements)).map(task).collect()
        elif len(statements) == 1:
            found = [task(statements[0])]
        else:
            readers = _Readers()
            threads = ThreadPoolExecutor(self.connections)
            try:
                found = list(threads.map(partial(task, readers=readers), statements))
            except BaseException:  # Ctrl-C as well, which may come before all have been started
                threads.shutdown(wait=False, cancel_futures=True)
                readers.end()
                raise
            finally:
                threads.shutdown()
        return [file for files in found for file in files]


class _Readers:
    """The connections over which threads read, until all have ended."""

    def __init__(self) -> None:
        self._reading: set[ArrowConnection] = set()
        self._has_ended = False
        self._changed = threading.Condition()

    @contextmanager
    def reading(self, connection: ArrowConnection) -> Iterator[None]:
        """Read over a connection.

        Raises:
            JMSException: All are to end.
        """
        with self._changed:
            if self._has_ended:
                raise JMSException("The archive ends before this part is read.")
            self._reading.add(connection)
        try:
            yield
        finally:
            with self._changed:
                self._reading.discard(connection)
                self._changed.notify_all()

    def end(self) -> None:
        """Cancel statements until none runs: a cancellation misses a statement that has not begun."""
        with self._changed:
            self._has_ended = True
            while self._reading:
                for connection in self._reading:
                    connection.cancel()
                self._changed.wait(CANCEL_AGAIN_AFTER)


def _unload(
    database: DatabaseReference,
    target: str,
    file_size: int,
    schema: pa.Schema,
    statement: str,
    readers: _Readers | None = None,
) -> list[NewFile]:
    with (
        ParquetFiles(Target(target), schema, file_size) as files,
        database.connect_arrow(_DOING) as connection,
        nullcontext() if readers is None else readers.reading(connection),
    ):
        rows = Shaper(schema, strict_json=True).shape(execute_arrow(connection, statement))
        with closing(read_ahead(connection, rows, _DOING, _BATCHES_AHEAD)) as batches:
            for batch in batches:
                files.add(batch)
        return files.finish()
