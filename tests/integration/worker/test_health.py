"""What a worker tells of itself: its health, its log, and transactions that are open for long."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, Worker, WorkerDatabase
from tests.integration.worker.test_draining import WAITING, wait_until_begun
from tests.integration.worker.test_handlers import send
from tests.integration.worker.test_metrics import scrape


def ask(worker: Worker, question: str) -> tuple[int, Any]:
    """Ask the health endpoint; return the status and the document."""
    port = worker.wait_for_log(r"http://127.0.0.1:(\d+)/health")[0]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{question}", timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            is_document = error.headers.get_content_type() == "application/json"
            return error.code, json.load(error) if is_document else None


@pytest.mark.usefixtures("fresh_processes")
def test_the_health_endpoint_tells_of_the_processes(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING, "--health-port", "0", "--processes", "2")
    wait_for(lambda: ask(worker, "ready")[0] == 200, PATIENCE)
    _, state = ask(worker, "ready")
    assert [child["state"] for child in state["children"]] == ["ready", "ready"]
    assert state["handled"] == 0

    send(jmsql_factory, "orders", "a")
    child = wait_until_begun(worker)
    wait_for(lambda: running(worker) == [child], PATIENCE)
    worker.give_leave()
    wait_for(lambda: ask(worker, "health")[1]["handled"] == 1, PATIENCE)
    status, state = ask(worker, "health")
    assert status == 200
    assert all(child["last_heartbeat"] for child in state["children"])
    assert ask(worker, "other")[0] == 404

    worker.take_leave()
    send(jmsql_factory, "orders", "b")
    wait_until_begun(worker, "b")
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_log("no more messages")
    assert ask(worker, "health")[0] == 200
    status, state = ask(worker, "ready")
    assert (status, state["draining"]) == (503, True), "what drains is healthy, and not ready"
    worker.give_leave()
    assert worker.exit_code() == 0


def test_a_worker_is_not_ready_while_the_database_refuses(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase, jmsql_clean_url: str
) -> None:
    worker = start_worker(WAITING, "--health-port", "0")
    wait_for(lambda: ask(worker, "ready")[0] == 200, PATIENCE)
    url = sqlalchemy.make_url(jmsql_clean_url)
    assert isinstance(url.database, str)
    name = sql.Identifier(url.database)
    address = url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(sql.SQL("alter database {} allow_connections false").format(name))
        try:
            server.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jmsql worker 1'"
            )
            wait_for(lambda: ask(worker, "ready")[0] == 503, PATIENCE)
            status, state = ask(worker, "health")
            assert (status, state["ready"], state["children"][0]["state"]) == (200, False, "waiting")
            assert scrape(worker)["jmsql_worker_processes", "waiting"] == 1
        finally:
            server.execute(sql.SQL("alter database {} allow_connections true").format(name))
    wait_for(lambda: ask(worker, "ready")[0] == 200, PATIENCE)
    worker.give_leave()
    send(jmsql_factory, "orders", "a")
    database.wait_until_handled(1)
    assert worker.stop() == 0


def running(worker: Worker) -> list[int]:
    """The processes that are busy with a message."""
    return [child["process_id"] for child in ask(worker, "health")[1]["children"] if child["running"]]


def test_the_log_is_json_if_wanted_with_all_listeners_messages_and_long_transactions(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(
        """
import logging

from sqlalchemy import text


@app.listener("orders")
def handle(message, database):
    logging.getLogger("shop").info("handling", extra={"order": 5})
    database.execute(text("select 1"))
    wait_for_leave(message)
    if message.get_int_property("JMSXDeliveryCount") == 1:
        raise RuntimeError("failed")


@app.listener(jmsql.Topic("news"), subscription="desk", transacted=False)
def note(message):
    pass
""",
        *("--log-format", "json", "--log-level", "debug", "--warn-transaction-after", "0.1", "--health-port", "0"),
    )
    send(jmsql_factory, "orders", "bad")
    worker.wait_for_log("has held a transaction open for")
    check_metrics_of_a_long_transaction(worker)
    worker.give_leave()
    wait_for(lambda: database.queued() == 0, PATIENCE)
    wait_for(lambda: scrape(worker)["jmsql_worker_longest_transaction_seconds",] == 0.0, PATIENCE)
    worker.wait_for_log("has handled the message")
    worker.wait_until_ready()
    assert worker.stop() == 0
    records = [json.loads(line) for line in worker.log.splitlines()]
    by_logger = {record["logger"]: record for record in records}
    assert by_logger["shop"]["order"] == 5
    assert by_logger["shop"]["process"] == "worker 1"
    (warning, *_) = [record for record in records if "has held" in record["message"]]
    assert warning["level"] == "WARNING"
    assert warning["listener"] == "messaging.handle"
    (failure,) = [record for record in records if "exception" in record]
    assert failure["message_id"] == warning["message_id"]
    assert "RuntimeError: failed" in failure["exception"]
    (handled,) = [record for record in records if "has handled the message" in record["message"]]
    for record, count in ((failure, 1), (handled, 2)):
        assert record["listener"] == "messaging.handle"
        assert record["destination"] == "queue://orders"
        assert record["message_id"].startswith("ID:")
        assert record["delivery_count"] == count
        assert record["seconds"] > 0
    assert "bad" not in handled["message"]
    assert "sqlalchemy" not in worker.log
    (note,) = [record for record in records if record.get("listener") == "messaging.note"]
    assert (note["destination"], note["subscription"], note["transacted"]) == ("topic://news", "desk", False)
    assert (note["concurrency"], note["durable"], note["selector"]) == (1, True, None)


def check_metrics_of_a_long_transaction(worker: Worker) -> None:
    long_transactions = ("jmsql_worker_long_transactions_total", "messaging.handle")
    wait_for(lambda: scrape(worker).get(long_transactions) == 1.0, PATIENCE)
    wait_for(lambda: scrape(worker)["jmsql_worker_longest_transaction_seconds",] > 0.1, PATIENCE)
    assert scrape(worker)["jmsql_worker_running_handlers",] == 1.0
