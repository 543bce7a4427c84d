"""What a worker tells of itself: its health, its log, and transactions that are open for long."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from typing import Any

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, Worker, WorkerDatabase
from tests.integration.worker.test_draining import WAITING, wait_until_begun
from tests.integration.worker.test_handlers import send


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
    assert worker.stop() == 0


def running(worker: Worker) -> list[int]:
    """The processes that are busy with a message."""
    return [child["process_id"] for child in ask(worker, "health")[1]["children"] if child["running"]]


def test_a_worker_that_drains_is_healthy_and_not_ready(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(WAITING, "--health-port", "0")
    send(jmsql_factory, "orders", "a")
    wait_until_begun(worker)
    worker.send_signal(signal.SIGTERM)
    worker.wait_for_log("no more messages")
    assert ask(worker, "health")[0] == 200
    status, state = ask(worker, "ready")
    assert (status, state["draining"]) == (503, True)
    worker.give_leave()
    assert worker.exit_code() == 0


def test_the_log_is_json_if_wanted_and_names_long_transactions(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(
        """
import logging


@app.listener("orders")
def handle(message, database):
    logging.getLogger("shop").info("handling", extra={"order": 5})
    wait_for_leave(message)
    if message.get_int_property("JMSXDeliveryCount") == 1:
        raise RuntimeError("failed")
""",
        "--log-format",
        "json",
        "--long-transaction-seconds",
        "0.1",
    )
    send(jmsql_factory, "orders", "a")
    worker.wait_for_log("has held a transaction open for")
    worker.give_leave()
    wait_for(lambda: database.queued() == 0, PATIENCE)
    assert worker.stop() == 0
    records = [json.loads(line) for line in worker.log.splitlines()]
    by_logger = {record["logger"]: record for record in records}
    assert by_logger["shop"]["order"] == 5
    assert by_logger["shop"]["process"] == "worker 1"
    (warning,) = [record for record in records if "has held" in record["message"]]
    assert warning["level"] == "WARNING"
    assert warning["listener"] == "messaging.handle"
    (failure,) = [record for record in records if "exception" in record]
    assert failure["delivery_count"] == 1
    assert failure["message_id"] == warning["message_id"]
    assert "RuntimeError: failed" in failure["exception"]
