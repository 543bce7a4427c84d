"""Batches whose messages end in workers that are killed, in chunks and with results."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import jmsql
from jmsql import Connection, ConnectionFactory
from jmsql.admin import Administration
from jmsql.testing import wait_for
from jmsql.worker import Application, HandlerCall, Reject
from tests.integration.batches.test_batches import callbacks, counts, progress
from tests.integration.worker.conftest import (
    KILLED_BEFORE_STEP,
    PATIENCE,
    StartWorker,
    WorkerDatabase,
    database,
    start_worker,
    write_application,
)

__all__ = ["database", "start_worker", "write_application"]

KILLED_NEAR_THE_END = (
    KILLED_BEFORE_STEP
    + """

@app.listener("parts", concurrency=2)
def handle(body: str, call: HandlerCall):
    has_killed = Path(f"killed {body}")
    if body.startswith("kill") and not has_killed.exists():
        call.batch.send("parts", f"more of {body}")
        has_killed.touch()
        steps.left = int(body.split()[1])
"""
)


def test_a_worker_killed_at_any_step_of_the_last_messages_has_one_callback_sent(
    start_worker: StartWorker, connection: Connection, database: WorkerDatabase
) -> None:
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send_many("parts", ["one", *(f"kill {step}" for step in range(2))])
    worker = start_worker(
        "from jmsql.worker import HandlerCall\n" + KILLED_NEAR_THE_END,
        *("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01"),
    )
    wait_for(lambda: progress(connection, batch).is_ended, 2 * PATIENCE)
    assert len(worker.wait_for_log("was killed by SIGKILL")) >= 1
    worker.stop()  # whatever it says: the last process that is killed may be, while it stops
    found = progress(connection, batch)
    # Those that were killed before their commit have not sent more in their next delivery.
    assert (found.waiting, found.failed) == (0, 0)
    assert found.total == found.done
    assert callbacks(connection) == [counts(total=found.total, done=found.total)]
    # A transaction that could not tell has left it to the maintenance.
    wait_for(lambda: database.rows("select count(*) from jmsql_internal.batch_check") == [(0,)], PATIENCE)
    assert callbacks(connection) == []


async def test_messages_that_are_handled_in_chunks_and_keep_results_end_in_their_batch(
    connection: Connection, jmsql_factory: ConnectionFactory
) -> None:
    app, has_ended, ends = Application(factory=jmsql_factory), threading.Event(), list[Any]()

    @app.listener("parts", chunk=10)
    def handle(bodies: list[str], call: HandlerCall) -> None:
        if "bad" in bodies:
            raise Reject("bad", index=bodies.index("bad"))
        if "root" in bodies and call.batch is not None:
            call.batch.send("results", "leaf")

    @app.listener("results", keep_result=timedelta(hours=1))
    def keep(body: str) -> str:
        if body == "bad":
            raise Reject("bad")
        return body.upper()

    @app.listener("ends")
    def end(body: dict[str, Any]) -> None:
        ends.append(body)
        has_ended.set()

    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send_many("parts", ["root", "bad", *map(str, range(20))])
        kept = batch.send("results", "b")
        batch.send("results", "bad")
    async with app.running():
        assert await asyncio.to_thread(has_ended.wait, PATIENCE)
        assert jmsql.result(connection, kept).get(PATIENCE) == "B"
    assert ends == [counts(total=25, done=23, failed=2)]


def test_maintenance_removes_members_that_are_done_then_the_batch(
    connection: Connection, jmsql_factory: ConnectionFactory, sql: Any
) -> None:
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("others", "done")
        batch.send_many("parts", ["one", "two"])
    assert callbacks(connection, "others") == ["done"]
    with Administration(jmsql_factory) as administration:
        assert administration.purge("parts") == 2
    kept = jmsql.batch(connection, "kept")
    with kept:
        kept.send("others", "waits")
    wait_for(lambda: progress(connection, batch).is_ended, PATIENCE)  # the control thread may have to tell that it has
    sql.execute("select jmsql_internal.remove_batches(1000)")  # unless the control thread has done so
    assert sql.execute("select count(*) from jmsql_internal.batch_member").fetchone() == (2 + 1,)
    assert progress(connection, batch) == jmsql.BatchProgress(3, 1, 0, 0, 2, 0, False, True)
    with sql.transaction():  # which keeps the control thread from removing the batch
        sql.execute(
            "update jmsql_internal.batch set ended_at = ended_at - interval '8 days' where ended_at is not null"
        )
        for most, removed in ((2, 2), (1000, 1), (1000, 0)):
            assert sql.execute("select jmsql_internal.remove_batches(%s)", (most,)).fetchone() == (removed,)
    assert sql.execute("select batch_id from jmsql_internal.batch").fetchall() == [(kept.id,)]
    assert progress(connection, kept).waiting == 1
