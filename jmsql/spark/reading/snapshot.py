"""The moment that all tasks of a query read.

A process beside the driver keeps it, `jmsql.spark.reading.snapshot_keeper`: Spark plans a read in a process that ends
as soon as it has planned. Planning reaches the keeper over a socket of this machine; the tasks, which may be anywhere,
over locks of the database.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adbc_driver_manager import Error
from pyspark import TaskContext

from jmsql import JMSException, Timings
from jmsql.extension.connections import reader_settings, without_secrets
from jmsql.extension.statements import SqlFile, nothing, optional_value, value
from jmsql.spark.connection import ArrowConnection, DatabaseReference

_KEEPER = "jmsql.spark.reading.snapshot_keeper"
_DOING = "finding the moment of the read"
_ANSWER_TIMEOUT = 60.0
"""Seconds to wait for an answer of the keeper."""

_SOCKET_PATH_LIMIT = 103  # bytes; macOS allows 103, Linux 107
_NAME_LENGTH = 16
_INTERVAL = 0.01
_MOST_QUERIES = 2**30
"""The numbers from here on are of stages, of queries that have no number."""

_sql = SqlFile("snapshot", "jmsql.spark")
_begin = _sql.statement("begin", _DOING, nothing)
_ask = _sql.statement("ask", _DOING, value(bool))
_answered = _sql.statement("answered", _DOING, optional_value(str))


def keep_snapshot(
    database: DatabaseReference, timeout: float, history_of: str | None = None, *, shared: bool = True
) -> int:
    """Have snapshots taken for a read, each kept until no task has used it for a while, or this process's parent ends.

    Args:
        database: Where to take it.
        timeout: For how long it stays when it is not used, in seconds.
        history_of: The PostgreSQL schema of whose history no day may be dropped meanwhile, if any.
        shared: Whether to take one now, which all queries see while it is kept. If not, each query sees one of its own.

    Returns:
        The number of the read, by which its tasks see the snapshot of their query.

    Raises:
        JMSException: It could not be taken.
    """
    driver = os.getppid()
    address = without_secrets(database.resolve())
    directory = _directory()
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.is_symlink() or directory.stat().st_uid != os.getuid() or directory.stat().st_mode & 0o077:
        raise JMSException(f"The directory {directory} is not this account's own; remove it, or set TMPDIR.")
    name = hashlib.sha256(f"{driver} {database.connection} {database.url} {address}".encode()).hexdigest()[
        :_NAME_LENGTH
    ]
    read = 2 * (1 + secrets.randbelow(2**30 - 1))  # whose numbers no application can have seeded
    request = json.dumps({"read": read, "timeout": timeout, "history_of": history_of, "shared": shared})
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = directory / name
        try:
            answer = _request(path, request)
        except (FileNotFoundError, ConnectionRefusedError):
            arguments = (str(driver), str(path), database.connection or "", database.url or "")
            if not shared:  # its tasks wait for the keeper, which starts while Spark starts them
                _start_keeper_beside(lock.fileno(), *arguments, request)
                return read
            _start_keeper(*arguments)
            answer = _request(path, request)
    if answer != "ok\n":
        raise _not_taken(answer)
    return read


def _directory() -> Path:
    """Return the directory of the keepers' sockets: in /tmp where the path of one in TMPDIR would be too long."""
    name = f"jmsql-spark-{os.getuid()}"
    directory = Path(tempfile.gettempdir(), name)
    longest = len(os.fsencode(directory)) + 1 + _NAME_LENGTH
    return directory if longest <= _SOCKET_PATH_LIMIT else Path("/tmp", name)  # noqa: S108 - its owner is checked


def _request(path: Path, request: str) -> str:
    with socket.socket(socket.AF_UNIX) as keeper:
        keeper.settimeout(_ANSWER_TIMEOUT)
        keeper.connect(str(path))
        with keeper.makefile("rw") as stream:
            print(request, file=stream, flush=True)
            return stream.readline()


def _start_keeper(*arguments: str) -> None:
    started = subprocess.run(
        [sys.executable, "-m", _KEEPER, *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=_environment(),
    )
    if started.returncode:
        raise _not_taken(started.stderr)


def _start_keeper_beside(lock: int, *arguments: str) -> None:
    """Start it without waiting until it has loaded its modules; until it answers, it holds the lock, too."""
    alone = f"import os, runpy; os.fork() and os._exit(0); runpy.run_module({_KEEPER!r}, run_name='__main__')"
    subprocess.run(
        [sys.executable, "-c", alone, *arguments, str(lock)],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[lock],
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _not_taken(reason: str) -> JMSException:
    return JMSException(f"No snapshot could be taken for the tasks of the read: {reason.strip()}")


def see_snapshot(connection: ArrowConnection, read: int, timeout: float) -> None:
    """Let a new transaction of a task see the moment that its query sees: the same in each task, however often it runs.

    The connection's transaction, in which nothing was done, is replaced by another.

    Raises:
        JMSException: The moment is gone, or cannot be found out.
    """
    keys = {"read": read, "query": _query()}
    ask = _ask.text % keys
    deadline = time.monotonic() + _ANSWER_TIMEOUT
    connection.execute(ask).read_all()
    while not (answer := _virtual_transaction(connection, _answered.text % keys)):
        if time.monotonic() >= deadline:
            raise JMSException(
                "The tasks of this read cannot find their snapshot: the process that keeps it beside the "
                "driver has ended, or is connected to another server. Call load() again."
            )
        time.sleep(_INTERVAL)
    connection.commit()
    for statement in (*reader_settings(Timings()), _begin.text):
        connection.execute(statement)
    process, transaction = map(int, answer.split("/"))
    try:
        connection.execute(f"set transaction snapshot '{process:08X}-{transaction:08X}-1'")
    except Error as error:
        raise JMSException(
            "The moment of this read is gone, which all tasks of its query were to see: it was kept for "
            f"{timeout:g} s after the last one. Run the query again to read a new moment; or raise option "
            "'snapshotTimeout', or set it to 0, so that each task sees a moment of its own."
        ) from error
    connection.execute(ask).read_all()


def _virtual_transaction(connection: ArrowConnection, statement: str) -> str | None:
    found = connection.execute(statement).read_all()
    return str(found.column(0)[0].as_py()) if found.num_rows else None


def _query() -> int:
    """Return the number of the query that this task belongs to. Its stages are repeated under it, too."""
    context = TaskContext.get()
    if context is None:
        return 0
    execution = context.getLocalProperty("spark.sql.execution.id")
    # An operation on a DataFrame's RDD is not a query; its stages are repeated under their own numbers.
    return int(execution) % _MOST_QUERIES if execution else _MOST_QUERIES + context.stageId() % _MOST_QUERIES
