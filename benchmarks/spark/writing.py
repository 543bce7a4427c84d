"""Sending the rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Target, Work, at_least, compare
from benchmarks.setting import Setting
from benchmarks.spark.session import jdbc_options, jmsql_options, spark_session

_QUEUE = "written by Spark"

# What a team writes to that has no provider: the same contents, one index.
_TABLE = """
    create table plain_message (
        sequence bigint generated always as identity primary key,
        sent_at timestamptz not null default now(),
        destination text not null,
        properties jsonb,
        text_body text
    )"""

_TEXT_TO_JSON = "stringtype=unspecified"
"""Lets the server make jsonb of text; without it, JDBC cannot write to the table."""

_REWRITTEN = "JDBC, reWriteBatchedInserts"
_JDBC = {"JDBC": _TEXT_TO_JSON, _REWRITTEN: f"{_TEXT_TO_JSON}&reWriteBatchedInserts=true"}


def write(setting: Setting) -> list[BenchmarkResult]:
    """Send the rows of a DataFrame to a queue, and insert them into a table."""
    database = setting.database
    database.execute(_TABLE)
    with spark_session(setting) as spark:
        options = jmsql_options(setting)
        contenders = [Contender("jmsql", partial(_jmsql, spark, database, options), lambda _: _empty(database))]
        reach = jdbc_options(setting)
        if reach is not None:
            for name, parameters in _JDBC.items():
                work = partial(_jdbc, spark, database, {**reach, "url": f"{reach['url']}?{parameters}"})
                contenders.append(Contender(name, work, lambda _: _empty(database)))
        samples = setting.measure(contenders, setting.effort.backlog, rounds=setting.effort.jobs)
        targets: dict[str, Target | None] = {"JDBC": at_least(1.4), _REWRITTEN: at_least(0.9)}
        return compare("spark-write", samples, "jmsql", targets)


def _empty(database: BenchmarkDatabase) -> None:
    database.execute("truncate plain_message, jmsql_internal.message, jmsql_internal.delivery")
    database.execute("checkpoint")


def _rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, numPartitions=2).selectExpr(
        f"'queue://{_QUEUE}' as destination",
        f"'{BODY}' as text_body",
        "map('color', 'blue', 'order', cast(id as string)) as properties",
    )


@contextmanager
def _jmsql(spark: SparkSession, database: BenchmarkDatabase, reach: dict[str, str]) -> Iterator[Work]:
    def work(count: int) -> None:
        _rows(spark, count).write.format("jmsql").options(**reach).mode("append").save()
        _check(database, "jmsql_internal.message", count)

    yield work


@contextmanager
def _jdbc(spark: SparkSession, database: BenchmarkDatabase, reach: dict[str, str]) -> Iterator[Work]:
    options = {**reach, "dbtable": "plain_message", "batchsize": "10000"}

    def work(count: int) -> None:
        rows = _rows(spark, count).selectExpr("destination", "to_json(properties) as properties", "text_body")
        rows.write.format("jdbc").options(**options).mode("append").save()
        _check(database, "plain_message", count)

    yield work


def _check(database: BenchmarkDatabase, table: str, count: int) -> None:
    found = database.count(table)
    if found != count:
        raise SystemExit(f"{table} has {found:,} of {count:,} rows.")
