"""jmsql's worker, whose handler is a coroutine function."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.workers.applications import Send, jmsql_worker
from benchmarks.workers.effects import SQLALCHEMY_INSERT
from jmsql.worker import Application

_QUEUE = "effects of coroutines"
_insert = sqlalchemy.text(SQLALCHEMY_INSERT)

app = Application()


@app.listener(_QUEUE)
async def record(body: dict[str, object], database: AsyncConnection) -> None:
    """Handle a message."""
    began = time.monotonic()
    await database.execute(_insert, {"number": body["number"], "began": began})


def sending() -> AbstractContextManager[Send]:
    """Send to the queue."""
    return jmsql_worker.sending(_QUEUE)
