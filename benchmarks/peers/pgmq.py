"""pgmq: functions in SQL, and its own Python client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import Work
from benchmarks.peers.peer import Peer, import_peer

_QUEUE = "benchmark"


@contextmanager
def open_pgmq(database: BenchmarkDatabase) -> Iterator[Peer]:
    """Install pgmq's functions, and make a queue."""
    pgmq, install, pool = import_peer("pgmq"), import_peer("pgmq.install"), import_peer("psycopg_pool")
    database.execute(install.get_embedded_install_sql())
    with pool.ConnectionPool(database.url, min_size=1) as connections:
        client = pgmq.PGMQueue(pool=connections, init_extension=False)
        client.create_queue(_QUEUE)

        @contextmanager
        def send(batch: int) -> Iterator[Work]:
            def work(count: int) -> None:
                for _ in range(count // batch):
                    if batch == 1:
                        client.send(_QUEUE, {"body": BODY})
                    else:
                        client.send_batch(_QUEUE, [{"body": BODY} for _ in range(batch)])

            yield work

        @contextmanager
        def receive(batch: int) -> Iterator[Work]:
            def work(count: int) -> None:
                for _ in range(count // batch):
                    if batch == 1:
                        if client.pop(_QUEUE) is None:
                            raise SystemExit("pgmq ran out of messages.")
                        continue
                    messages = client.read_batch(_QUEUE, vt=60, batch_size=batch)
                    if len(messages) < batch:
                        raise SystemExit("pgmq ran out of messages.")
                    client.delete_batch(_QUEUE, [message.msg_id for message in messages])

            yield work

        def fill(count: int) -> None:
            for start in range(0, count, 1000):
                client.send_batch(_QUEUE, [{"body": BODY}] * min(1000, count - start))

        yield Peer("pgmq", send, receive, fill)
