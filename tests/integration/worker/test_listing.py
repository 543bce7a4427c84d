"""A worker says what it handles when it starts, and again when new code handles something else."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable

from tests.integration.worker.conftest import StartWorker

LISTENERS = """
@app.listener("orders", selector="weight > 1", concurrency=3)
def ship(message):
    pass


@app.listener(jmsql.Topic("news"), subscription="desk", transacted=False)
def note(message):
    pass
"""
DURABLE = "messaging.note handles topic://news, the durable subscription 'desk': 2 at a time in each process"


def test_the_listeners_are_listed_once(start_worker: StartWorker, write_application: Callable[[str], None]) -> None:
    worker = start_worker(LISTENERS, "--concurrency", "2", "--processes", "2")
    worker.wait_until_ready()
    handles = [line.partition("supervisor: ")[2] for line in worker.log.splitlines() if " handles " in line]
    assert handles == [
        "messaging.ship handles queue://orders, selector weight > 1: 3 at a time in each process, transacted.",
        f"{DURABLE}, not transacted.",
    ]
    write_application(LISTENERS.replace("weight > 1", "weight > 2"))
    worker.send_signal(signal.SIGHUP)
    worker.wait_for_log("messaging.ship handles queue://orders, selector weight > 2: 3 at a time")
    assert worker.stop() == 0
    assert len(re.findall(" handles ", worker.log)) == 4


def test_in_json_they_are_fields(start_worker: StartWorker) -> None:
    worker = start_worker(LISTENERS, "--log-format", "json")
    worker.wait_until_ready()
    records = [json.loads(line) for line in worker.log.splitlines()]
    [note] = [record for record in records if record.get("listener") == "messaging.note"]
    assert (note["destination"], note["subscription"], note["transacted"]) == ("topic://news", "desk", False)
    assert (note["concurrency"], note["durable"], note["selector"]) == (1, True, None)
    assert worker.stop() == 0
