"""Reading a queue: into Parquet, and into nothing, which takes the time of reading alone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow.parquet
from adbc_driver_postgresql.dbapi import connect
from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession, functions

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Target, Work, at_least, compare
from benchmarks.setting import Setting
from benchmarks.spark.session import jdbc_options, jmsql_options, spark_session
from jmsql.spark.options import Options
from jmsql.spark.schema import COLUMNS, read_schema

__all__ = ["read"]

_QUEUE = "read by Spark"
_PROPERTIES = '{"color": "blue", "weight": 2500}'

# What the data source returns, as somebody writes it by hand who wants just that.
_SELECT = """
    select 'queue://' || q.name as destination, m.sequence, 9 - m.inverse_priority as priority,
           m.message_type::text as type, 'ID:' || m.jms_message_id as message_id,
           to_timestamp(m.jms_timestamp / 1000.0) as sent_at, to_timestamp(m.jms_expiration / 1000.0) as expires_at,
           m.jms_delivery_mode as delivery_mode, m.jms_correlation_id as correlation_id, m.jms_reply_to as reply_to,
           m.jms_type, {properties} m.text_body, m.json_body::text as json_body, m.bytes_body
    from jmsql_internal.message m join jmsql_internal.queue q using (queue_id)
    where q.name = 'read by Spark'"""

_COLUMNS = (
    "destination,sequence,priority,type,message_id,sent_at,expires_at,delivery_mode,correlation_id,reply_to,jms_type,"
    "text_body,json_body,bytes_body"
)


def read(setting: Setting) -> list[BenchmarkResult]:
    """Read a queue, with the properties of its messages and without."""
    found: list[BenchmarkResult] = []
    setting.tell(f"filling a queue with {setting.effort.backlog:,} messages")
    setting.database.fill(_QUEUE, setting.effort.backlog, _PROPERTIES)
    setting.database.execute("vacuum (analyze) jmsql_internal.message")
    with spark_session(setting) as spark, tempfile.TemporaryDirectory(prefix="jmsql-benchmarks-") as directory:
        path = Path(directory, "messages.parquet")
        columns = read_schema(Options.read({**jmsql_options(setting), "queue": _QUEUE, "columns": _COLUMNS}))
        with_json = "m.properties::text as properties,"
        for what, schema, properties, into in (
            ("properties as maps", f"{columns}, properties {COLUMNS['properties']}", with_json, path),
            ("properties as JSON", f"{columns}, properties string", with_json, path),
            ("without properties", columns, "", path),
            ("without properties, into nothing", columns, "", None),
        ):
            found += _compare(setting, spark, into, what, schema, properties)
    return found


def _compare(
    setting: Setting, spark: SparkSession, path: Path | None, what: str, schema: str, properties: str
) -> list[BenchmarkResult]:
    query = _SELECT.format(properties=properties)
    source = {**jmsql_options(setting), "queue": _QUEUE}
    jmsql, two, adbc, jdbc = f"jmsql, {what}", f"jmsql, {what}, 2 partitions", "ADBC, 1 connection", "JDBC"
    contenders = [
        Contender(jmsql, partial(_spark, path, _load(spark.read.schema(schema), "jmsql", source))),
        Contender(two, partial(_spark, path, _load(spark.read.schema(schema), "jmsql", {**source, "partitions": "2"}))),
        Contender(adbc, partial(_adbc, path, setting.database, query)),
    ]
    reach = jdbc_options(setting)
    if reach is not None:
        source = {**reach, "query": query, "fetchsize": "10000"}
        contenders.append(Contender(jdbc, partial(_spark, path, _load(spark.read, "jdbc", source))))
    samples = setting.measure(contenders, setting.effort.backlog, rounds=setting.effort.jobs)
    targets: dict[str, Target | None] = {adbc: at_least(0.9), jdbc: at_least(2)}
    return compare("spark-read", samples, jmsql, targets) + compare("spark-read", samples, two, dict.fromkeys(targets))


def _load(reader: DataFrameReader, source: str, options: dict[str, str]) -> DataFrame:
    return reader.format(source).options(**options).load()


@contextmanager
def _spark(path: Path | None, rows: DataFrame) -> Iterator[Work]:
    def work(count: int) -> None:
        if path is None:
            seen = Observation()
            rows.observe(seen, functions.count("*").alias("rows")).write.format("noop").mode("overwrite").save()
            _check(seen.get["rows"], count)
        else:
            rows.write.mode("overwrite").parquet(str(path))
            _check(_rows_in(path), count)

    yield work


@contextmanager
def _adbc(path: Path | None, database: BenchmarkDatabase, query: str) -> Iterator[Work]:
    def work(count: int) -> None:
        with connect(database.url) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            batches = cursor.fetch_record_batch()
            if path is None:
                _check(sum(batch.num_rows for batch in batches), count)
            else:
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                with pyarrow.parquet.ParquetWriter(path / "part.parquet", batches.schema) as writer:
                    for batch in batches:
                        writer.write_batch(batch)
                _check(_rows_in(path), count)

    yield work


def _rows_in(path: Path) -> int:
    return sum(pyarrow.parquet.read_metadata(file).num_rows for file in path.glob("*.parquet"))


def _check(found: int, count: int) -> None:
    if found != count:
        raise SystemExit(f"{found:,} of {count:,} messages were read.")
