"""Tables and views of Spark SQL over queues, topics and the history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import jmsql
from tests.integration.client.server import Server
from tests.spark.streaming import archived, run_now

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def orders(spark: SparkSession, context: jmsql.JMSContext, server: Server) -> Iterator[None]:
    """A table over the queue `orders`, in which there is one message."""
    context.create_producer().send(context.create_queue("orders"), '{"n": 1}')
    context.commit()
    spark.sql(
        r"""create table orders using jmsql options (
            queue 'orders', selector "color <> 'it''s \\ red' or color is null", partitions 2)"""
    )
    yield
    spark.sql("drop table orders")
    server.terminate("jmsql-spark-keeping-a-snapshot")


def test_table_is_read_written_and_streamed_with_the_options_that_it_was_made_with(
    spark: SparkSession, orders: None, server: Server, tmp_path: Path
) -> None:
    found = spark.sql("select text_body, destination from orders").collect()
    assert [tuple(row) for row in found] == [('{"n": 1}', "queue://orders")]
    spark.sql("""insert into orders (text_body, priority) values ('{"n": 2}', 9), ('{"n": 3}', null)""")
    found = spark.sql("select text_body, priority from orders where text_body <> '{\"n\": 1}' order by 1").collect()
    assert [tuple(row) for row in found] == [('{"n": 2}', 9), ('{"n": 3}', 4)]
    assert spark.sql("select * from orders with (partitions = 1)").rdd.getNumPartitions() == 1

    run_now(spark.readStream.table("orders").select("text_body"), tmp_path)
    assert archived(tmp_path) == ['{"n": 1}', '{"n": 2}', '{"n": 3}']
    assert server.rows("select count(*) from jmsql_internal.message") == [(0,)]


def test_rows_of_a_table_go_where_a_write_says(spark: SparkSession, orders: None, server: Server) -> None:
    spark.table("orders").drop("destination").write.format("jmsql").option("queue", "copies").mode("append").save()
    assert server.rows("select queue from jmsql.messages order by 1") == [("copies",), ("orders",)]
    with pytest.raises(AnalysisException, match=r"use mode\('append'\)"):
        spark.sql("insert overwrite orders (text_body) values ('all')")


def test_temporary_view_has_options_of_its_own(spark: SparkSession, orders: None) -> None:
    spark.sql("create or replace temporary view texts using jmsql options (queue 'orders')")
    assert [row.text_body for row in spark.sql("select * from texts").collect()] == ['{"n": 1}']
    spark.sql("insert into texts (text_body) values ('two')")
    assert spark.table("texts").count() == 2
    spark.catalog.dropTempView("texts")


def test_options_that_a_table_cannot_have_are_refused(spark: SparkSession, jmsql_clean_url: str) -> None:
    with pytest.raises(AnalysisException, match="Option 'url' holds a password"):
        spark.sql("create table shop using jmsql options (queue 'orders', url 'postgresql://a:hidden@db/shop')")
    with pytest.raises(AnalysisException, match="did you mean 'queue'"):
        spark.sql("create table shop using jmsql options (queu 'orders')")
    spark.sql("create table shop using jmsql options (history true)")
    with pytest.raises(AnalysisException, match="Option 'history' is for reads"):
        spark.sql("insert into shop (text_body) values ('one')")
    spark.sql("drop table shop")
    spark.sql("create table shop (text_body string) using jmsql options (queue 'orders')")
    with pytest.raises(AnalysisException, match="Spark forgets the options"):
        spark.sql("select * from shop").collect()
    with pytest.raises(AnalysisException, match="Spark forgets the options"):
        spark.sql("insert into shop values ('one')")
    spark.sql("drop table shop")
    with pytest.raises(AnalysisException, match=r"with AS SELECT.* Spark forgets the options.*INSERT INTO"):
        spark.sql("create table shop using jmsql options (queue 'orders') as select 'one' as text_body")
