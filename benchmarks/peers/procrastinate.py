"""Procrastinate: a task that does nothing, deferred, and its worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import Work
from benchmarks.peers.peer import Peer, import_peer

_CONCURRENCY = 10


@contextmanager
def open_procrastinate(database: BenchmarkDatabase) -> Iterator[Peer]:
    """Install Procrastinate's tables."""
    procrastinate = import_peer("procrastinate")
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=database.url))

    @app.task(name="benchmark", queue="benchmark")  # type: ignore[untyped-decorator]
    async def task(body: str) -> None:
        """Handle a message."""

    with app.open():
        app.schema_manager.apply_schema()

        @contextmanager
        def send(batch: int) -> Iterator[Work]:
            def work(count: int) -> None:
                for _ in range(count // batch):
                    if batch == 1:
                        task.defer(body=BODY)
                    else:
                        task.batch_defer(*({"body": BODY} for _ in range(batch)))

            yield work

        @contextmanager
        def receive(batch: int) -> Iterator[Work]:
            """Its worker takes one job at a time, whatever the batch."""
            concurrency = min(batch, _CONCURRENCY)

            def work(count: int) -> None:  # noqa: ARG001 - it stops when all is done
                with app.replace_connector(procrastinate.PsycopgConnector(conninfo=database.url)) as working:
                    working.run_worker(
                        wait=False,
                        concurrency=concurrency,
                        delete_jobs="always",
                        listen_notify=False,
                        install_signal_handlers=False,
                    )

            yield work

        def fill(count: int) -> None:
            task.batch_defer(*({"body": BODY} for _ in range(count)))

        yield Peer("Procrastinate", send, receive, fill, share=0.05)
