"""Batch reads from a hot standby."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql.types import StringType, StructField, StructType

import jmsql
from jmsql.embedded import start_server
from jmsql.spark.options import Options
from jmsql.spark.reading.batch_reader import BatchReader, HistoryReader
from jmsql.spark.streaming.queue_stream_reader import StreamReader
from jmsql.testing import wait_for
from jmsql.testing.servers import directory_of_servers
from tests.integration.client.server import Server
from tests.prepared_data import prepare_data

SCHEMA = StructType([StructField("text_body", StringType())])
KEEPER = "jmsql-spark-keeping-a-snapshot"


class Replicated(NamedTuple):
    """The URLs of a server and of its standby."""

    primary: str
    standby: str

    def wait(self) -> None:
        """Return when the standby has what the primary has."""
        with psycopg.connect(self.primary) as primary, psycopg.connect(self.standby, autocommit=True) as standby:
            # A commit of something logged also writes what was committed without waiting for that.
            primary.execute("select pg_logical_emit_message(true, 'replicated', '')")
            primary.commit()
            position = primary.execute("select pg_current_wal_flush_lsn()").fetchone()
            passed = "select pg_last_wal_replay_lsn() >= %s"
            wait_for(lambda: standby.execute(passed, position).fetchone() == (True,), timeout=60)


@pytest.fixture(scope="module")
def replicated() -> Iterator[Replicated]:
    with directory_of_servers("jmsql-replicated-") as directory:
        # Two copies of the same data are a server and its base backup.
        for each in ("primary", "standby"):
            prepare_data(directory / each)
        with (directory / "primary/cluster/pg_hba.conf").open("a") as access:
            access.write("local replication all trust\n")
        with start_server(directory / "primary", durable=False) as primary:
            source = make_conninfo(primary.url, dbname=None)
            with (directory / "standby/cluster/postgresql.auto.conf").open("a") as settings:
                settings.write(f"primary_conninfo = '{source}'\n")
            signal = directory / "standby/cluster/standby.signal"
            signal.touch()
            signal.chmod(0o666)
            with start_server(directory / "standby", durable=False) as standby:
                yield Replicated(primary.url, standby.url)


def test_queue_and_history_are_read_in_several_tasks_that_see_one_moment(replicated: Replicated) -> None:
    with jmsql.admin.Administration(replicated.primary) as administration:
        administration.create_queue("orders", history=True)
    with jmsql.ConnectionFactory(replicated.primary).create_context() as context:
        orders = jmsql.Queue("orders")
        with context.create_consumer(orders) as consumer:
            for number in range(20):
                context.create_producer().send(orders, f"old {number}")
                assert consumer.receive_body(str, 60) == f"old {number}"
        for number in range(20):
            context.create_producer().send(orders, f"new {number}")
    replicated.wait()

    options = {"url": replicated.standby, "partitions": "3"}
    queue = BatchReader(Options.read({**options, "queue": "orders"}), SCHEMA)
    history = HistoryReader(Options.read({**options, "history": "true", "queue": "orders"}), SCHEMA)
    planned = [(reader, reader.partitions()) for reader in (queue, history)]
    with psycopg.connect(replicated.primary, autocommit=True) as connection:
        connection.execute("delete from jmsql_internal.message")
    replicated.wait()
    for (reader, partitions), name in zip(planned, ("new", "old"), strict=True):
        batches = chain.from_iterable(map(reader.read, partitions))
        bodies = chain.from_iterable(batch.column("text_body").to_pylist() for batch in batches)
        assert sorted(bodies) == sorted(f"{name} {number}" for number in range(20))
    assert len(planned[0][1]) == 3
    with psycopg.connect(replicated.standby, autocommit=True) as connection:
        assert Server(connection).terminate(KEEPER) == 2


def test_stream_of_a_standby_is_refused(replicated: Replicated) -> None:
    with jmsql.ConnectionFactory(replicated.primary).create_context() as context:
        context.create_producer().send(jmsql.Queue("streamed"), "a")
    replicated.wait()
    reader = StreamReader(Options.read({"url": replicated.standby, "queue": "streamed"}), SCHEMA)
    with pytest.raises(jmsql.JMSException, match="hot standby"):
        reader.initialOffset()
