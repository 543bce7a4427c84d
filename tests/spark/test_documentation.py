"""The programs of the page about Spark run."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

import jmsql
from jmsql.testing import wait_for
from tests.documentation import programs, run
from tests.integration.client.server import Server

pytestmark = pytest.mark.timeout(400)


def test_the_programs_of_the_page_run_one_after_the_other(
    spark: SparkSession, jmsql_factory: jmsql.ConnectionFactory, server: Server, tmp_path: Path
) -> None:
    with jmsql.admin.Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
        administration.create_topic("departures", history=True)
    with jmsql_factory.create_context() as context:
        properties = {"color": "blue", "weight": jmsql.types.Long(2600)}
        context.create_producer(properties=properties).send(
            jmsql.Queue("orders"), '{"order": 101, "goods": "two kites"}'
        )
    [program] = programs("docs/spark.md")
    try:
        names = run(program, {"s3a://lake": str(tmp_path)})
    finally:
        spark.sql("drop table if exists shop_orders")  # for the tests that share the session
    query = names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    wait_for(lambda: server.connections("jmsql-spark-streaming") == 0)
    archived = duckdb.execute(f"select text_body from '{tmp_path}/orders/*.parquet' order by 1").fetchall()
    assert archived == [("three kites",), ("two kites",), ('{"order": 101, "goods": "two kites"}',)]
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]
