"""jmsql's worker, whose handler is a plain function on psycopg's own connection."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import psycopg

from benchmarks.workers.applications import Send, jmsql_worker
from benchmarks.workers.effects import PSYCOPG_INSERT
from jmsql.worker import Application

_QUEUE = "effects by psycopg"

app = Application()


@app.listener(_QUEUE)
def record(body: dict[str, object], connection: psycopg.Connection) -> None:
    """Handle a message."""
    began = time.monotonic()
    connection.execute(PSYCOPG_INSERT, (body["number"], began))


def sending() -> AbstractContextManager[Send]:
    """Send to the queue."""
    return jmsql_worker.sending(_QUEUE)
