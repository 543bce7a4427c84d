"""A consumer that cannot release its messages as it closes is closed all the same, and they are released later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

from jmsql import AcknowledgeMode, ConnectionFactory, Session, Topic
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts

PRICES = Topic("prices")
TEXTS = [str(number) for number in range(40)]
CANCEL = "select pg_cancel_backend(pid) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"


def test_a_consumer_that_closes_behind_a_lock_leaves_nothing_behind(
    jmsql_factory: ConnectionFactory, jmsql_clean_url: str, others: Session, server: Server
) -> None:
    with (
        jmsql_factory.create_connection() as connection,
        psycopg.connect(jmsql_clean_url) as blocker,
        ThreadPoolExecutor(1) as threads,
    ):
        connection.client_id = "reader"
        connection.start()
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
        consumer = session.create_durable_subscriber(PRICES, "own")
        send_texts(others, PRICES, *TEXTS)
        received = receive_texts(consumer, 20)
        blocker.execute("lock table jmsql_internal.delivery in share mode")
        closing = threads.submit(consumer.close)
        while not closing.done():
            server.rows(CANCEL, blocker.info.backend_pid)
        closing.result()
        blocker.rollback()
        with session.create_durable_subscriber(PRICES, "own") as again:
            assert sorted(received + receive_texts(again, 20), key=int) == TEXTS
