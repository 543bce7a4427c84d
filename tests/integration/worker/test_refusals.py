"""A worker that cannot begin says why, in a line; `tests/unit/worker/test_loading.py` has the other reasons."""

from __future__ import annotations

import json

import pytest

from tests.integration.worker.conftest import StartWorker

LISTENER = """
@app.listener("orders")
def handle(message):
    pass
"""


@pytest.mark.parametrize(
    ("source", "options", "exit_code", "reason"),
    [
        ("", [], 2, "messaging:app has no listeners; register some with @app.listener('…')."),
        (LISTENER, ["--schema", "nowhere"], 3, "nowhere"),
        (LISTENER, ["--health-port", "1", "--health-host", "256.0.0.1"], 2, "The health endpoint cannot listen"),
    ],
    ids=[
        "no listeners",
        "no schema",
        "no port",
    ],
)
def test_a_worker_that_cannot_begin_says_why(
    start_worker: StartWorker, source: str, options: list[str], exit_code: int, reason: str
) -> None:
    worker = start_worker(source, *options)
    assert worker.exit_code() == exit_code
    assert reason in worker.log
    assert "Traceback" not in worker.log
    assert len(worker.log.splitlines()) == 1


BROKEN = "def shape():\n    raise SystemError('broken')\n\nshape()"


def test_an_application_that_fails_shows_its_own_lines(start_worker: StartWorker) -> None:
    """Once, though two processes have met it."""
    worker = start_worker(BROKEN, "--processes", "2")
    assert worker.exit_code() == 2
    assert "messaging cannot be imported: SystemError: broken" in worker.log.splitlines()[0]
    assert worker.log.count("Traceback (most recent call last)") == 1
    assert "in shape\n    raise SystemError('broken')" in worker.log
    assert "importlib" not in worker.log


def test_in_json_the_traceback_is_a_field(start_worker: StartWorker) -> None:
    worker = start_worker(BROKEN, "--log-format", "json")
    assert worker.exit_code() == 2
    record = json.loads(worker.log.splitlines()[0])
    assert record["message"] == "messaging cannot be imported: SystemError: broken"
    assert record["exception"].startswith("Traceback (most recent call last):\n  File ")
    assert record["exception"].endswith("SystemError: broken")
