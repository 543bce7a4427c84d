"""jmsql's worker, whose handler is a coroutine function on psycopg's own connection."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import psycopg

from benchmarks.workers.applications import Send, jmsql_worker
from benchmarks.workers.effects import PSYCOPG_INSERT
from jmsql.worker import Application

_QUEUE = "effects of coroutines by psycopg"

app = Application()


@app.listener(_QUEUE)
async def record(body: dict[str, object], connection: psycopg.AsyncConnection) -> None:
    """Handle a message."""
    began = time.monotonic()
    await connection.execute(PSYCOPG_INSERT, (body["number"], began))


def sending() -> AbstractContextManager[Send]:
    """Send to the queue."""
    return jmsql_worker.sending(_QUEUE)
