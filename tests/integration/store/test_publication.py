"""A database whose tables are all published, for logical replication, does everything that another one does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

import jmsql
from jmsql import AcknowledgeMode, ConnectionFactory, Queue, Topic
from jmsql.admin import Administration
from jmsql.spark.writing.commit import WriteName, send_once
from jmsql.spark.writing.outgoing import OutgoingMessages
from jmsql.spark.writing.task import TaskMessages
from jmsql.store.history.partitions import HistoryPartitions
from jmsql.store.sending.pending_transactions import remove_abandoned
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for

ORDERS = Queue("orders")
RETIRED = date(2020, 2, 1)


@pytest.fixture
def database(jmsql_clean_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the test's own to the database, which publishes all of its tables."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        connection.execute("create publication everything for all tables")
        yield connection
        connection.execute("drop publication everything")


@pytest.fixture
def administration(jmsql_factory: ConnectionFactory) -> Iterator[Administration]:
    with Administration(jmsql_factory) as administration:
        yield administration


@pytest.fixture
def context(jmsql_factory: ConnectionFactory) -> Iterator[jmsql.JMSContext]:
    with jmsql_factory.create_context(session_mode=AcknowledgeMode.TRANSACTED) as context:
        yield context


def count(database: psycopg.Connection[Any], table: str) -> int:
    row = database.execute(
        sql.SQL("select count(*) from {}").format(sql.Identifier("jmsql_internal", table))
    ).fetchone()
    assert row is not None
    number: int = row[0]
    return number


def test_rows_of_every_table_can_be_updated_and_deleted(database: psycopg.Connection[Any]) -> None:
    database.execute("select jmsql_internal.make_history_partition(%s)", (RETIRED,))
    try:
        tables = database.execute(
            """select c.relname, (select a.attname from pg_attribute a
                                  where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                                    and a.attgenerated = '' and a.attidentity = '' order by a.attnum limit 1)
               from pg_class c where c.relnamespace = 'jmsql_internal'::regnamespace and c.relkind in ('r', 'p')"""
        ).fetchall()
        refused = []
        for name, column in tables:
            table, one = sql.Identifier("jmsql_internal", name), sql.Identifier(column)
            for statement in (
                sql.SQL("delete from {} where false").format(table),
                sql.SQL("update {} set {} = {} where false").format(table, one, one),
            ):
                try:
                    database.execute(statement)
                except psycopg.Error as error:
                    refused.append(str(error))
    finally:
        database.execute("drop table jmsql_internal.message_history_20200201")

    assert len(tables) > 20
    assert refused == []


def test_messages_are_sent_delayed_received_and_acknowledged(
    database: psycopg.Connection[Any], context: jmsql.JMSContext
) -> None:
    context.create_producer(delivery_delay=0.001).send(ORDERS, "late")
    context.create_producer().send(ORDERS, "now")
    context.commit()

    with context.create_consumer(ORDERS) as consumer:
        assert {consumer.receive_body(str, timeout=60), consumer.receive_body(str, timeout=60)} == {"late", "now"}
    context.commit()

    assert count(database, "message") == count(database, "delayed_message") == 0


def test_messages_expire_and_die(
    database: psycopg.Connection[Any], administration: Administration, context: jmsql.JMSContext
) -> None:
    administration.create_queue("expired")
    administration.create_queue("dead")
    administration.create_queue("orders", expiry_queue="expired", maximum_deliveries=1, dead_letter_queue="dead")
    context.create_producer().send(ORDERS, "poison")
    context.commit()

    with context.create_consumer(ORDERS) as consumer:
        assert consumer.receive_body(str, timeout=60) == "poison"
        context.rollback()
    context.create_producer(time_to_live=0.001).send(ORDERS, "stale")
    context.commit()

    with context.create_consumer(Queue("dead")) as dead, context.create_consumer(Queue("expired")) as expired:
        assert dead.receive_body(str, timeout=60) == "poison"
        assert expired.receive_body(str, timeout=60) == "stale"
    context.commit()
    administration.alter("orders", maximum_deliveries=None, dead_letter_queue=None)


def test_queues_with_groups_and_topics_are_deleted_with_their_messages(
    database: psycopg.Connection[Any], administration: Administration, context: jmsql.JMSContext
) -> None:
    context.create_shared_durable_consumer(Topic("prices"), "audit").close()
    message = context.create_text_message("grouped")
    message.set_string_property("JMSXGroupID", "a")
    producer = context.create_producer()
    producer.send(ORDERS, message)
    producer.send(Topic("prices"), "price")
    context.create_producer(delivery_delay=3600).send(ORDERS, "later")
    context.commit()
    assert count(database, "grouped_queue") == 1

    administration.delete("orders", force=True)
    administration.delete("topic://prices", force=True)

    wait_for(lambda: count(database, "message") + count(database, "delayed_message") + count(database, "queue") == 0)
    assert count(database, "grouped_queue") == 0


def test_queues_are_purged_and_access_is_taken_away(
    database: psycopg.Connection[Any], administration: Administration, context: jmsql.JMSContext
) -> None:
    context.create_producer().send(ORDERS, "one")
    context.create_producer(delivery_delay=3600).send(ORDERS, "two")
    context.commit()
    database.execute("create role jmsql_published nologin")
    try:
        administration.grant("orders", "jmsql_published", send=True)
        administration.revoke("orders", "jmsql_published", send=True)
    finally:
        database.execute("drop owned by jmsql_published")
        database.execute("drop role jmsql_published")

    assert administration.purge("orders") == 2
    assert count(database, "permission") == 0


def test_history_is_kept_and_removed(
    database: psycopg.Connection[Any], administration: Administration, context: jmsql.JMSContext
) -> None:
    administration.create_queue("orders", history=True)
    context.create_producer().send(ORDERS, "order")
    context.commit()
    with context.create_consumer(ORDERS) as consumer:
        assert consumer.receive_body(str, timeout=60) == "order"
    context.commit()
    assert count(database, "message_history") == 1

    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    removal = PsycopgRunner(database, "jmsql").iterate(HistoryPartitions(patience=10.0).remove(tomorrow, ORDERS))
    assert sum(step.messages for step in removal) == 1


def test_messages_written_by_spark_tasks_are_sent_or_deleted(
    database: psycopg.Connection[Any], administration: Administration
) -> None:
    administration.create_queue("orders")
    administration.create_topic("prices")
    driver = PsycopgRunner(database, "jmsql")
    later = [datetime(2999, 1, 1, tzinfo=UTC)]
    rows = pa.RecordBatch.from_pydict({"text_body": ["row"], "delivery_time": later})
    attempts = []
    for destination in ("queue://orders", "topic://prices", "queue://orders"):
        with database.transaction():
            task = TaskMessages.open(database, "jmsql", lambda _: None)
            task.send(OutgoingMessages(destination).convert(rows))
            attempts.append(task.end("w"))
    with database.transaction():
        driver.run(send_once(attempts[:2], WriteName("w", "w", "q"), 200, days=1))
    assert driver.run(remove_abandoned(10))

    assert count(database, "delayed_message") == 1
    assert count(database, "message") == 0
    assert count(database, "spark_staging") == 0
    assert count(database, "pending_transaction") == 0
