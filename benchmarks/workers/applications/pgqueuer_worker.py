"""PgQueuer: an entry point; asyncpg for its jobs, and asyncpg's pool for its row.

Run as a program it does what `pgq run` does, which has no default for its log with current releases of Typer. Its
arguments: the most jobs at a time, and how many it takes at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from benchmarks.database import BODY
from benchmarks.peers.peer import import_peer
from benchmarks.workers.applications import Send
from benchmarks.workers.effects import ASYNCPG_INSERT, concurrency, database_url

_ENTRYPOINT = "record"
_CHUNK = 1000

pgqueuer = import_peer("pgqueuer")
AsyncpgDriver = import_peer("pgqueuer.db").AsyncpgDriver


@asynccontextmanager
async def worker() -> AsyncIterator[Any]:
    """Make the worker."""
    async with asyncpg.create_pool(database_url(), min_size=1, max_size=concurrency()) as pool:
        application = pgqueuer.PgQueuer(AsyncpgDriver(await asyncpg.connect(database_url())))

        @application.entrypoint(_ENTRYPOINT)  # type: ignore[untyped-decorator]
        async def record(job: Any) -> None:
            began = time.monotonic()
            await pool.execute(ASYNCPG_INSERT, json.loads(job.payload)["number"], began)

        yield application


@contextmanager
def sending() -> Iterator[Send]:
    """Send by its queries."""
    with asyncio.Runner() as runner:
        queries = import_peer("pgqueuer.queries").Queries(AsyncpgDriver(runner.run(asyncpg.connect(database_url()))))

        def send(first: int, count: int) -> None:
            payloads = [json.dumps({"number": number, "body": BODY}).encode() for number in range(first, first + count)]
            if count == 1:
                runner.run(queries.enqueue(_ENTRYPOINT, payloads[0]))
                return
            for start in range(0, count, _CHUNK):
                part = payloads[start : start + _CHUNK]
                runner.run(queries.enqueue([_ENTRYPOINT] * len(part), part, [0] * len(part)))

        yield send


if __name__ == "__main__":
    asyncio.run(pgqueuer.run(worker, max_concurrent_tasks=int(sys.argv[1]), batch_size=int(sys.argv[2])))
