"""The metrics of a worker: its supervisor answers for all its processes, those that have died too."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.integration.worker.conftest import PATIENCE, StartWorker, Worker, WorkerDatabase
from tests.integration.worker.test_handlers import send

APPLICATION = """
@app.listener("orders")
def handle(message, database, context):
    store(database, message)
    if message.get_body(str) == "bad" and message.get_int_property("JMSXDeliveryCount") == 1:
        raise ValueError("bad")
    if message.get_body(str) == "later" and not message.jms_redelivered:
        raise jmsql.worker.RetryAfter(0)
    context.create_producer().send(jmsql.Queue("shipped"), "x")
"""


def scrape(worker: Worker) -> dict[tuple[str, ...], float]:
    port = worker.wait_for_log(r"http://127.0.0.1:(\d+)/health")[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_work_of_all_processes_is_added_up(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(APPLICATION, "--health-port", "0", "--processes", "2")
    send(jmsql_factory, "orders", "a", "later", "bad")
    handled = ("jmsql_worker_messages_total", "messaging.handle", "handled")
    acknowledged = ("jmsql_client_deliveries_total", "queue://orders", "acknowledged")
    for name in (handled, acknowledged):
        wait_for(lambda name=name: scrape(worker).get(name) == 3.0, PATIENCE)  # type: ignore[misc]
    wait_for(lambda: scrape(worker)["jmsql_worker_processes", "ready"] == 2.0, PATIENCE)
    found = scrape(worker)
    assert found["jmsql_worker_messages_total", "messaging.handle", "failed"] == 1.0
    assert found["jmsql_worker_messages_total", "messaging.handle", "postponed"] == 1.0
    assert found["jmsql_worker_messages_total", "messaging.handle", "interrupted"] == 0.0
    assert found["jmsql_worker_handler_seconds_count", "messaging.handle"] == 5.0
    assert found["jmsql_worker_handler_seconds_bucket", "+Inf", "messaging.handle"] == 5.0
    assert found["jmsql_worker_handler_seconds_sum", "messaging.handle"] > 0.0
    assert found["jmsql_client_messages_sent_total", "queue://shipped"] == 3.0
    assert found["jmsql_client_deliveries_total", "queue://orders", "rolled_back"] == 2.0
    assert found["jmsql_client_redeliveries_total", "queue://orders"] == 2.0
    counted = (
        "select acknowledged, rolled_back, calls, handled > 0 from jmsql_internal.destination_counters t "
        "join jmsql_internal.queue q on q.queue_id = t.destination_id where q.name = 'orders'"
    )
    wait_for(lambda: database.rows(counted) == [(3, 2, 5, True)], PATIENCE)
    health = urllib.request.urlopen(worker.wait_for_log(r"(http://127.0.0.1:\d+/health)")[0], timeout=PATIENCE)
    with health:
        assert json.load(health).items() >= {"handled": 3, "failed": 1, "postponed": 1, "interrupted": 0}.items()

    for _, process in database.rows("select distinct 0, process_id from jmsql.clients"):
        os.kill(process, signal.SIGKILL)
    wait_for(lambda: scrape(worker)["jmsql_worker_restarts_total",] == 2.0, PATIENCE)
    assert scrape(worker)[handled] == 3.0
    worker.stop()


def test_metrics_of_the_application_are_among_them(
    start_worker: StartWorker,
    jmsql_factory: ConnectionFactory,
    database: WorkerDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "metrics").mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "metrics"))
    worker = start_worker(
        """
from prometheus_client import Counter

goods = Counter("goods", "Goods that were shipped.")


@app.listener("orders")
def handle(message):
    goods.inc(7)
""",
        *("--health-port", "0"),
    )
    send(jmsql_factory, "orders", "a")
    wait_for(lambda: scrape(worker).get(("goods_total",)) == 7.0, PATIENCE)
    assert worker.stop() == 0
