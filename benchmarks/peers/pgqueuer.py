"""PgQueuer: its queries, as its own worker calls them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import Work
from benchmarks.peers.peer import Peer, import_peer

_ENTRYPOINT = "benchmark"
_PAYLOAD = BODY.encode()


@contextmanager
def open_pgqueuer(database: BenchmarkDatabase) -> Iterator[Peer]:
    """Install PgQueuer's tables."""
    queries_module = import_peer("pgqueuer.queries")
    worker = uuid.uuid4()
    with asyncio.Runner() as runner:
        connection = runner.run(psycopg.AsyncConnection.connect(database.url, autocommit=True))
        queries = queries_module.Queries.from_psycopg_connection(connection)
        runner.run(queries.install())
        entrypoints = {_ENTRYPOINT: queries_module.EntrypointExecutionParameter(0)}

        async def enqueue(count: int, batch: int) -> None:
            for _ in range(count // batch):
                if batch == 1:
                    await queries.enqueue(_ENTRYPOINT, _PAYLOAD)
                else:
                    await queries.enqueue([_ENTRYPOINT] * batch, [_PAYLOAD] * batch, [0] * batch)

        async def dequeue(count: int, batch: int) -> None:
            for _ in range(count // batch):
                jobs = await queries.dequeue(batch, entrypoints, worker, None, timedelta(seconds=60))
                if len(jobs) < batch:
                    raise SystemExit("PgQueuer ran out of messages.")
                await queries.log_jobs([(job, "successful", None) for job in jobs])

        @contextmanager
        def send(batch: int) -> Iterator[Work]:
            yield lambda count: runner.run(enqueue(count, batch))

        @contextmanager
        def receive(batch: int) -> Iterator[Work]:
            yield lambda count: runner.run(dequeue(count, batch))

        def fill(count: int) -> None:
            runner.run(enqueue(count, min(count, 100)))

        try:
            yield Peer("PgQueuer", send, receive, fill, share=0.2)
        finally:
            runner.run(connection.close())
