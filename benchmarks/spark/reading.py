"""Reading a queue and the history: into Parquet, and into nothing, which takes the time of reading alone."""

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

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Target, Work, at_least, compare
from benchmarks.setting import Setting
from benchmarks.spark.session import jdbc_options, jmsql_options, spark_session
from jmsql.spark import archive
from jmsql.spark.columns.expressions import HISTORY_COLUMNS
from jmsql.spark.columns.schema import TYPED_PROPERTIES, read_schema
from jmsql.spark.options import Options

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

_FILL_HISTORY = """
    insert into jmsql_internal.message_history (
        acknowledged_at, sequence, jms_timestamp, connection_id, jms_message_id, queue_id, delivery_count, message_type,
        outcome, inverse_priority, jms_delivery_mode, is_topic, destination, properties, text_body)
    select clock_timestamp(), n, 1, 1, gen_random_uuid(), 1, 1, 'TextMessage', 'acknowledged', 5, 2, false,
           'read by Spark', '{properties}', '{body}'
    from generate_series(1, {count}) n"""

# What the archive has, as somebody writes it by hand who wants just that.
_SELECT_HISTORY = """
    select 'queue://' || m.destination as destination, m.sequence, 9 - m.inverse_priority as priority,
           m.message_type::text as type, 'ID:' || m.jms_message_id as message_id,
           to_timestamp(m.jms_timestamp / 1000.0) as sent_at, to_timestamp(m.jms_expiration / 1000.0) as expires_at,
           to_timestamp(m.jms_delivery_time / 1000.0) as delivery_time, m.jms_delivery_mode as delivery_mode,
           m.jms_correlation_id as correlation_id, m.jms_reply_to as reply_to, m.jms_type,
           m.properties::text as properties, m.property_types::text as property_types, m.text_body,
           m.json_body::text as json_body, m.body_types::text as body_types, m.bytes_body, m.delivery_count,
           m.acknowledged_at, m.outcome::text as outcome, m.subscription, m.subscription_client_id, m.connection_id,
           m.client_id, m.user_name, m.transaction_id::text::bigint as transaction_id
    from jmsql_internal.message_history m"""

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
            ("properties as maps", f"{columns}, properties {TYPED_PROPERTIES}", with_json, path),
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
    # What Spark's own writer makes of the rows has none: the archive writes Parquet itself.
    targets: dict[str, Target | None] = {adbc: at_least(0.95) if path is None else None, jdbc: None}
    return compare("spark-read", samples, jmsql, targets) + compare("spark-read", samples, two, dict.fromkeys(targets))


def read_history(setting: Setting) -> list[BenchmarkResult]:
    """Archive the history, and read it with Spark."""
    count = setting.effort.backlog
    setting.tell(f"filling the history with {count:,} messages")
    setting.database.execute("select jmsql_internal.make_history_partition(current_date)")
    setting.database.execute(_FILL_HISTORY.format(properties=_PROPERTIES, body=BODY, count=count))
    setting.database.execute("vacuum (analyze) jmsql_internal.message_history")
    found: list[BenchmarkResult] = []
    with spark_session(setting) as spark, tempfile.TemporaryDirectory(prefix="jmsql-benchmarks-") as directory:
        path = Path(directory, "history.parquet")
        options = {**jmsql_options(setting), "history": "true"}
        reader = spark.read.schema(", ".join(f"{name} {kind}" for name, kind in HISTORY_COLUMNS.items()))
        reach = jdbc_options(setting)
        for into, what in ((path, "into Parquet"), (None, "into nothing")):
            adbc, jdbc = f"ADBC, 1 connection, {what}", f"JDBC, {what}"
            subject = f"jmsql, history {what}"
            contenders = [
                Contender(subject, partial(_spark, into, _load(reader, "jmsql", options))),
                Contender(adbc, partial(_adbc, into, setting.database, _SELECT_HISTORY)),
            ]
            reading: dict[str, Target | None] = {adbc: at_least(0.9) if into is None else None, jdbc: None}
            subjects = {subject: reading}
            if into is not None:
                for number in (1, 2):
                    name = f"jmsql archive, {number} connection{'s' * (number > 1)}"
                    contenders.append(Contender(name, partial(_archive, into, options["url"], number)))
                    subjects[name] = {adbc: at_least(0.9), jdbc: at_least(2)}
            if reach is not None:
                source = {**reach, "query": _SELECT_HISTORY, "fetchsize": "10000"}
                contenders.append(Contender(jdbc, partial(_spark, into, _load(spark.read, "jdbc", source))))
            samples = setting.measure(contenders, count, rounds=setting.effort.jobs)
            for name, targets in subjects.items():
                found += compare("spark-history", samples, name, targets)
    return found


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
def _archive(path: Path, url: str, partitions: int) -> Iterator[Work]:
    def work(count: int) -> None:
        shutil.rmtree(path, ignore_errors=True)
        _check(archive(str(path), url=url, partitions=partitions).messages, count)

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
