"""A snapshot that outlives the planning of a read, so that all tasks of the read see the same moment.

Spark plans a read in a process that ends as soon as it has planned, and nothing tells when the read is over. A process
of its own therefore holds the snapshot: while the driver lives, and for some seconds after the last task that used it.
"""

from __future__ import annotations

import os
import sys
import time

from jmsql.spark.connection import DatabaseReference
from jmsql.spark.keeper import is_running, start_keeper
from jmsql.spark.reading.history import hold_history
from jmsql.store._sync.runner import PsycopgRunner
from jmsql.store.statement import SqlFile, first_value, nothing, value

__all__ = ["BEGIN_SNAPSHOT", "keep_snapshot", "reader_name"]

_sql = SqlFile("browse", "jmsql.spark")
_begin = _sql.statement("begin_snapshot", "taking a snapshot", nothing)
BEGIN_SNAPSHOT = _begin.text
"""The statement that begins a transaction which exports a snapshot, or uses one."""
_export = _sql.statement("export_snapshot", "taking a snapshot", first_value)
_clear_statistics = _sql.statement("clear_statistics", "looking for readers", nothing)
_is_used = _sql.statement("is_used", "looking for readers", value(bool))

_INTERVAL = 0.25


def reader_name(snapshot: str | None) -> str:
    """Return the name, for its connection, of a task that uses a snapshot."""
    return "reading" if snapshot is None else f"reading-{snapshot}"


def keep_snapshot(database: DatabaseReference, timeout: float, history_of: str | None = None) -> str:
    """Take a snapshot that stays until no task has used it for `timeout` seconds, or this process's parent ends.

    Args:
        database: Where to take it.
        timeout: For how long it stays when it is not used, in seconds.
        history_of: The PostgreSQL schema of whose history no day may be dropped meanwhile, if any.

    Raises:
        JMSException: It could not be taken.
    """
    arguments = (value or "" for value in (database.connection, database.url, history_of))
    return start_keeper(
        "jmsql.spark.reading.snapshot",
        *(str(os.getppid()), str(timeout), *arguments),
        doing="No snapshot could be taken for the tasks of the read",
    )


def _keep(database: DatabaseReference, history_of: str | None, driver_process: int, timeout: float) -> None:
    with database.connect("keeping a snapshot") as connection:
        keeper = PsycopgRunner(connection, history_of or "jmsql")
        keeper.run(_begin.bind())
        if history_of is not None:
            keeper.run(hold_history())
        snapshot = keeper.run(_export.bind())
        print("ok", snapshot, flush=True)  # noqa: T201 - the answer to the process that has started this one
        readers = _is_used.bind(name=f"%{reader_name(snapshot)}")
        last_use = time.monotonic()
        while is_running(driver_process):
            time.sleep(_INTERVAL)
            keeper.run(_clear_statistics.bind())
            if keeper.run(readers):
                last_use = time.monotonic()
            elif time.monotonic() >= last_use + timeout:
                break


if __name__ == "__main__":
    _keep(
        DatabaseReference(sys.argv[3] or None, sys.argv[4] or None),
        sys.argv[5] or None,
        int(sys.argv[1]),
        float(sys.argv[2]),
    )
