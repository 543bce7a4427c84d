"""A worker that cannot begin says why, in a line."""

from __future__ import annotations

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
        ("raise SystemError('broken')", [], 2, "messaging cannot be imported: SystemError: broken"),
        ("import surely_missing", [], 2, "messaging cannot be imported: No module named 'surely_missing'"),
        ("del app", [], 2, "messaging has no 'app'; make it a jmsql.worker.Application."),
        ("app = 5", [], 2, "messaging has another 'app'; make it a jmsql.worker.Application."),
        ("", [], 2, "messaging:app has no listeners; register some with @app.listener('…')."),
        (
            "app.factory = jmsql.ConnectionFactory(client_id='me')" + LISTENER,
            [],
            2,
            "The factory of messaging:app has a client identifier",
        ),
        (
            "@app.listener('orders')\ndef handle(order): pass",
            [],
            2,
            "TypeError: The handler messaging.handle has the parameter order",
        ),
        (LISTENER, ["--schema", "nowhere"], 3, "nowhere"),
        (LISTENER, ["--health-port", "1", "--health-host", "256.0.0.1"], 2, "The health endpoint cannot listen"),
    ],
    ids=[
        "error in the module",
        "missing import",
        "no application",
        "another object",
        "no listeners",
        "client identifier",
        "bad signature",
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


def test_a_module_that_is_not_there_is_named(start_worker: StartWorker, tmp_path: object) -> None:
    worker = start_worker("import os; os.remove(__file__)")
    worker.exit_code()
    again = type(worker)(worker.directory, "postgresql://nowhere", ())
    assert again.exit_code() == 2
    assert "There is no module 'messaging' here" in again.log
