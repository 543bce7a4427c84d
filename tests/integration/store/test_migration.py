"""The name of the schema: any that PostgreSQL takes, but for a few characters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql

import jmsql
from jmsql.store.migration import newest_version


@pytest.fixture(params=["Shop queues", 'the "best"', r"a:b\c", "é" * 31])
def schema(request: pytest.FixtureRequest, jmsql_url: str) -> Iterator[str]:
    """A schema that is not there, and is not left there."""
    name: str = request.param
    yield name
    with psycopg.connect(jmsql_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


def test_schema_may_have_any_name(schema: str, jmsql_url: str) -> None:
    jmsql.migrate(jmsql_url, schema)
    with jmsql.ConnectionFactory(jmsql_url, schema=schema).create_context() as context:
        queue, topic = context.create_queue("orders"), context.create_topic("prices")
        consumer, subscriber = context.create_consumer(queue), context.create_shared_durable_consumer(topic, "audit")
        context.create_producer().send(queue, "order")
        context.create_producer(delivery_delay=0.001).send(topic, "price")
        assert consumer.receive_body(str, timeout=10) == "order"
        assert subscriber.receive_body(str, timeout=10) == "price"


@pytest.mark.parametrize("schema", ["o'neil", "$$", "100%", "{a}", "", "x" * 64, "é" * 32])
def test_name_that_cannot_be_is_refused_in_a_sentence(schema: str, jmsql_url: str) -> None:
    with pytest.raises(jmsql.JMSException, match=r"The schema cannot be named '?.*: choose a name of 1 to 63 bytes"):
        jmsql.migrate(jmsql_url, schema)


def test_several_runs_at_once_make_one_schema(jmsql_url: str) -> None:
    command = [sys.executable, "-c", "import jmsql, sys; print(jmsql.migrate(*sys.argv[1:]))", jmsql_url, "several"]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    with ThreadPoolExecutor(2) as threads:
        former = [str(version) for version in threads.map(lambda _: jmsql.migrate(jmsql_url, "several"), range(2))]
    former += [run.communicate()[0].strip() for run in runs]
    with psycopg.connect(jmsql_url, autocommit=True) as connection:
        connection.execute("drop schema several cascade")
    assert sorted(former) == [newest_version()] * 4 + ["None"]


def test_no_lock_that_a_stranger_may_take_holds_it_off(jmsql_url: str) -> None:
    with psycopg.connect(jmsql_url, autocommit=True) as stranger:
        stranger.execute("select pg_advisory_lock(x'6A6D73716C'::bigint)")
        assert jmsql.migrate(jmsql_url, "undisturbed") is None
        stranger.execute("drop schema undisturbed cascade")
