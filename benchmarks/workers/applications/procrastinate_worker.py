"""Procrastinate: a task that is a coroutine function; psycopg's pool for its row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from psycopg_pool import AsyncConnectionPool

from benchmarks.database import BODY
from benchmarks.peers.peer import import_peer
from benchmarks.workers.applications import Send
from benchmarks.workers.effects import PSYCOPG_INSERT, concurrency, database_url

procrastinate = import_peer("procrastinate")
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=database_url()))


@cache
def _pool() -> AsyncConnectionPool[Any]:
    return AsyncConnectionPool(database_url(), min_size=1, max_size=concurrency(), open=False)


@app.task(name="record", queue="effects")  # type: ignore[untyped-decorator]
async def record(number: int, body: str) -> None:  # noqa: ARG001 - as long as the others'
    """Handle a message."""
    began = time.monotonic()
    pool = _pool()
    await pool.open()  # does nothing once it is open
    async with pool.connection() as connection:
        await connection.execute(PSYCOPG_INSERT, (number, began))


# Jobs of a worker that was killed stay "doing". Its documentation has a periodic task that takes them up again, each
# ten minutes; here each minute.
@app.periodic(cron="* * * * *")  # type: ignore[untyped-decorator]
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)  # type: ignore[untyped-decorator]
async def retry_stalled_jobs(context: Any, timestamp: int) -> None:  # noqa: ARG001 - what a periodic task is given
    """Take up the jobs of workers that have been silent for 30 s."""
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


@contextmanager
def sending() -> Iterator[Send]:
    """Send by the task's own methods."""
    with (
        app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=database_url())) as deferring,
        deferring.open(),
    ):
        task = deferring.tasks["record"]

        def send(first: int, count: int) -> None:
            if count == 1:
                task.defer(number=first, body=BODY)
            else:
                task.batch_defer(*({"number": number, "body": BODY} for number in range(first, first + count)))

        yield send
