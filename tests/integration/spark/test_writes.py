from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import jmsql
from jmsql import JMSException
from jmsql.spark.writing.commit import send_once
from jmsql.spark.writing.maintenance import request_maintenance
from jmsql.spark.writing.staging import Attempt, StagedDestination, begin_attempt, forget_attempts
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.testing import wait_for

ORDERS = StagedDestination("queue://orders", is_delayed=False)


def stage(connection: psycopg.Connection, messages: int, partition: int = 0) -> Attempt:
    attempt_id = PsycopgRunner(connection, "jmsql").run(begin_attempt())
    connection.execute(
        "insert into jmsql_internal.spark_staging (attempt_id, position, inverse_priority, jms_delivery_mode, "
        "destination, "
        "message_type, text_body) select %s, n, 5, 2, 'queue://orders', 'TextMessage', n::text from "
        "generate_series(1, %s) as n",
        (attempt_id, messages),
    )
    connection.commit()
    return Attempt(attempt_id, partition, {ORDERS: messages})


def count(connection: psycopg.Connection, table: str) -> int:
    row = connection.execute(f"select count(*) from jmsql_internal.{table}").fetchone()
    assert row is not None
    return int(row[0])


def test_what_was_staged_and_is_gone_fails_the_write(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        attempt = stage(connection, 10)
        connection.execute(
            "delete from jmsql_internal.spark_staging where position = 5"
        )  # as after a crash of the server
        with pytest.raises(JMSException, match=r"1 of 10 messages .* are gone"), connection.transaction():
            PsycopgRunner(connection, "jmsql").run(send_once([attempt], "w", 0, is_stream=False))
        assert (count(connection, "message"), count(connection, "spark_write")) == (0, 0)


def test_messages_have_the_order_of_the_tasks_and_of_the_rows(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        second, first = stage(connection, 1000, partition=1), stage(connection, 1000, partition=0)
        PsycopgRunner(connection, "jmsql").run(send_once([second, first], "w", 0, is_stream=False))
        sent = connection.execute("select text_body from jmsql_internal.message order by sequence").fetchall()
    assert [body for (body,) in sent] == 2 * [str(number) for number in range(1, 1001)]


def test_two_drivers_that_write_the_same_batch_send_it_once(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as first, psycopg.connect(jmsql_clean_url) as second:
        attempts = stage(first, 10), stage(second, 10)

        def write(connection: psycopg.Connection, attempt: Attempt) -> bool:
            return PsycopgRunner(connection, "jmsql").run(send_once([attempt], "query q", 3, is_stream=True))

        assert write(first, attempts[0])
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(write, second, attempts[1])
            first.commit()
            assert not waiting.result(10)
        second.commit()
        assert (count(first, "message"), count(first, "spark_staging"), count(first, "spark_attempt")) == (10, 0, 0)


def test_ledger_of_a_stream_keeps_its_last_batches(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as connection:
        driver = PsycopgRunner(connection, "jmsql")
        for batch in range(103):
            assert driver.run(send_once([stage(connection, 1)], "query q", batch, is_stream=True))
        assert count(connection, "spark_write") == 101
        assert not driver.run(send_once([stage(connection, 1)], "query q", 102, is_stream=True))


def test_what_dead_tasks_have_staged_is_removed_after_a_day_by_any_client(
    jmsql_factory: jmsql.ConnectionFactory,
) -> None:
    assert jmsql_factory.url is not None
    with psycopg.connect(jmsql_factory.url, autocommit=True) as connection:
        stage(connection, 10)
        connection.execute("update jmsql_internal.spark_attempt set started_at = now() - interval '25 hours'")
        fresh = stage(connection, 5)
        PsycopgRunner(connection, "jmsql").run(request_maintenance(two_phase_commit=False))
        with jmsql_factory.create_connection():
            wait_for(lambda: count(connection, "spark_attempt") == 1)
        assert count(connection, "spark_staging") == 5
        PsycopgRunner(connection, "jmsql").run(forget_attempts([fresh]))
        assert count(connection, "spark_staging") == 0


def test_what_is_sent_is_counted_by_destination(jmsql_factory: jmsql.ConnectionFactory) -> None:
    assert jmsql_factory.url is not None
    with jmsql_factory.create_context() as context:
        context.create_shared_durable_consumer(context.create_topic("prices"), "audit").close()
    with psycopg.connect(jmsql_factory.url, autocommit=True) as connection:
        first, second = stage(connection, 10), stage(connection, 5, 1)
        connection.execute(
            "update jmsql_internal.spark_staging set destination = 'topic://prices' where attempt_id = %s",
            (second.attempt_id,),
        )
        connection.execute("update jmsql_internal.spark_staging set jms_delivery_time = 1 where position = 1")
        first = first._replace(staged={ORDERS: 9, ORDERS._replace(is_delayed=True): 1})
        prices = StagedDestination("topic://prices", is_delayed=False)
        second = second._replace(staged={prices: 4, prices._replace(is_delayed=True): 1})
        for _ in range(2):  # the second time, the write is known
            with connection.transaction():
                PsycopgRunner(connection, "jmsql").run(send_once([first, second], "w", 0, is_stream=False))
        counted = connection.execute(
            "select kind, destination, sent from jmsql.counters where sent > 0 order by sent"
        ).fetchall()
        assert counted == [("topic", "prices", 5), ("queue", "orders", 10)]
