"""Starts Spark's Python processes: a process that has loaded what they need forks each of them.

Spark starts a Python process for each thing that a query does: to find the data source, to make it, to plan, to write,
to commit, and for each stream. Each would take a second or two of processor time to load PySpark and jmsql, and so
would each driver that a test starts.

The argument is the path of the socket to listen on. `python_client` is what is started instead of Python; it tells
this process what it was started with, and lives and dies with the process that was forked for it, which is in the same
process group.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CLIENT = Path(__file__).with_name("python_client.py")
_MODULES = (
    "numpy",
    "pandas",
    "psycopg",
    "pyarrow",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "pyspark_jmsql",
    "tests.spark.faults.holding_source",
    "tests.spark.streaming",
)
_PACKAGES = ("jmsql.spark.reading", "jmsql.spark.streaming", "jmsql.spark.writing")
_PROGRAM = """#!/bin/sh
test "$1" = -m || exec "{python}" "$@"
exec "{python}" -IS "{client}" "{address}" "$@"
"""
_STREAMS = 3


@contextmanager
def python_server(directory: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Run the server, and return the program that stands for Python.

    Args:
        directory: Where to make the program and the socket.
        environment: What the server is started with.
    """
    address = directory / "python.socket"
    program = directory / "python"
    program.write_text(_PROGRAM.format(python=sys.executable, client=_CLIENT, address=address))
    program.chmod(0o755)
    command = [sys.executable, "-m", __name__, str(address)]
    with subprocess.Popen(
        command, cwd=_CLIENT.parents[2], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.read(1), "the server of Python processes does not start"
        yield program  # the server ends when its standard input does, as it does with this process


def _load() -> None:
    """Load what Spark's processes need. No thread may be started: none would be there in a forked process."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _MODULES:
        importlib.import_module(name)
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


class _Server:
    """Forks the processes, and tells their clients how they ended.

    Args:
        address: Where it listens.
    """

    def __init__(self, address: str) -> None:
        self._events = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._events.register(self._listener, selectors.EVENT_READ)
        self._clients: dict[socket.socket, int] = {}
        self._processes: dict[int, tuple[socket.socket, int]] = {}

    def run(self) -> None:
        """Serve until the standard input ends."""
        self._events.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in self._events.select():
                if key.fd == 0:
                    return
                if key.fileobj is self._listener:
                    self._start(self._listener.accept()[0])
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)
                else:
                    self._ended(key.fd)

    def _start(self, client: socket.socket) -> None:
        size = int.from_bytes(client.recv(4, socket.MSG_WAITALL))
        request, streams, _, _ = socket.recv_fds(client, 1, _STREAMS)
        request += client.recv(size - len(request), socket.MSG_WAITALL)
        starter = _process_of(client)
        process = os.fork()
        if process == 0:
            with contextlib.suppress(OSError):  # it has been killed, as this process will be
                os.setpgid(0, os.getpgid(starter))
            self._events.close()
            self._listener.close()
            for other in (client, *self._clients):
                other.close()
            for handle in self._processes:
                os.close(handle)
            _run(request, streams)
        for stream in streams:
            os.close(stream)
        handle = os.pidfd_open(process)
        self._clients[client] = process
        self._processes[handle] = (client, process)
        self._events.register(client, selectors.EVENT_READ)
        self._events.register(handle, selectors.EVENT_READ)

    def _hear(self, client: socket.socket) -> None:
        """Hand a signal on. A client that is gone was killed: so is its process, with those that it has forked."""
        process = self._clients.get(client)
        if process is None:
            return  # its process has ended in the same moment
        try:
            number = client.recv(1)
        except OSError:
            number = b""
        with contextlib.suppress(ProcessLookupError):
            if number:
                os.kill(process, number[0])
            elif os.getpgid(process) == process:
                os.killpg(process, signal.SIGKILL)
            else:
                os.kill(process, signal.SIGKILL)
        if not number:
            self._events.unregister(client)

    def _ended(self, handle: int) -> None:
        client, process = self._processes.pop(handle)
        self._events.unregister(handle)
        os.close(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        del self._clients[client]
        with contextlib.suppress(KeyError):
            self._events.unregister(client)
        with client, contextlib.suppress(OSError):
            client.sendall(bytes([code if code >= 0 else 128 - code]))


def _process_of(client: socket.socket) -> int:
    """Return the process at the other end of a connection."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process: int = struct.unpack("3i", credentials)[0]
    return process


def _run(request: bytes, streams: list[int]) -> None:
    """Be the process: run the module with its arguments, environment and streams, and end."""
    directory, arguments, environment = (part.split(b"\0") for part in request.split(b"\0\0"))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory[0])
    os.environ.clear()
    os.environb.update(dict(variable.split(b"=", 1) for variable in environment))
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    _, module, *others = map(os.fsdecode, arguments)  # after -m
    sys.argv = [module, *others]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself shows it
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
    _load()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(sys.argv[1])
    os.write(1, b"\n")
    server.run()
