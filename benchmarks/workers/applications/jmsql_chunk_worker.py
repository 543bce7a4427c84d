"""jmsql's worker, whose handler is a plain function that is called with chunks, on psycopg's own connection."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import psycopg

from benchmarks.workers.applications import Send, jmsql_worker
from benchmarks.workers.effects import PSYCOPG_INSERT
from jmsql.worker import Application

_QUEUE = "effects by chunks"

app = Application()


@app.listener(_QUEUE, chunk=100)
def record(bodies: list[dict[str, object]], connection: psycopg.Connection) -> None:
    """Handle a chunk of messages."""
    began = time.monotonic()
    with connection.cursor() as cursor:
        cursor.executemany(PSYCOPG_INSERT, [(body["number"], began) for body in bodies])


def sending() -> AbstractContextManager[Send]:
    """Send to the queue."""
    return jmsql_worker.sending(_QUEUE)
