"""Programs of this environment that start at once: forked from a process that has imported their libraries.

Importing jmsql, SQLAlchemy and a web framework costs a second of processor time, and a worker with two processes does
so three times. `PreloadedPrograms` makes a directory for ``PATH`` with stand-ins for ``python``, ``jmsql``, ``uvicorn``
and the like. A stand-in hands its arguments, environment, directory and open files to the server, which forks. The
child has them all, and runs the program as the interpreter would; the stand-in passes signals on and ends as the child
does.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WORKER_MODULES = (
    *("jmsql.worker.child", "jmsql.testing", "jmsql.client._sync.connection.factory", "sqlalchemy.orm"),
    *("jmsql.client._async.connection.factory", "sqlalchemy.ext.asyncio", "sqlalchemy.dialects.postgresql.psycopg"),
    *("psycopg", "pydantic"),
)
"""The imports of a worker's process."""

MODULES = (
    *WORKER_MODULES,
    *("jmsql.worker.supervisor", "jmsql.cli.application", "jmsql.cli.worker", "jmsql.asyncio"),
    *("jmsql.store.schema.migration", "jmsql.cli.messages.sending", "alembic.command"),
    *("fastapi", "fastapi.testclient", "uvicorn.main", "flask", "django", "django.core.management", "asyncpg"),
)
"""Modules to import; one that is missing is left out."""

_NAMES = ("python", "python3", "jmsql", "uvicorn", "flask", "django-admin", "pytest")

_STAND_IN = """#!{interpreter} -IS
import array, json, os, signal, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
files = []
for name in os.listdir("/proc/self/fd"):
    try:
        if int(name) < 3 or os.get_inheritable(int(name)):
            files.append(int(name))
    except OSError:
        pass
request = json.dumps(
    dict(name={name!r}, arguments=sys.argv[1:], directory=os.getcwd(), environment=dict(os.environ), files=files)
).encode()
server.sendmsg([b"%12d" % len(request)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: server.send(bytes([number])))
server.sendall(request)
answer = server.recv(4)
code = int.from_bytes(answer, "big", signed=True) if answer else 70
if code < 0:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class PreloadedPrograms:
    """The server, and the directory of stand-ins.

    Args:
        directory: An empty directory; its name must be short enough for a socket.
        modules: The modules to import.
    """

    def __init__(self, directory: Path, modules: Sequence[str]) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        address = str(directory / "socket")
        for name in _NAMES:
            stand_in = self.directory / name
            stand_in.write_text(_STAND_IN.format(interpreter=sys.executable, address=address, name=name))
            stand_in.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.preloaded", address, str(self.directory / "python"), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).parents[1],
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        """End the server, and what still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def preloaded_programs(modules: Sequence[str] = MODULES) -> Iterator[PreloadedPrograms]:
    """Start the server for a block."""
    name = tempfile.mkdtemp(prefix="jmsql-")
    programs = PreloadedPrograms(Path(name), modules)
    try:
        yield programs
    finally:
        programs.close()
        shutil.rmtree(name, ignore_errors=True)


def _serve(address: str, interpreter: str, *modules: str) -> None:
    sys.path.pop(0)  # the directory that it was started in
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen(128)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while sys.stdin.buffer not in select.select([server, sys.stdin.buffer], [], [])[0]:
            client, _ = server.accept()
            with contextlib.suppress(ChildProcessError):  # their processor time counts once the server has waited
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if os.fork() == 0:
                server.close()
                _attend(client, interpreter)
            client.close()
    os.killpg(0, signal.SIGKILL)  # the tests have ended, however


def _attend(client: socket.socket, interpreter: str) -> None:
    """Run the program of a stand-in in a child, and pass its signals on."""
    request, files = _receive(client)
    child = os.fork()
    if child == 0:
        client.close()
        _take_over(request, files, interpreter)
    for file in files:
        os.close(file)

    def pass_on() -> None:
        while number := client.recv(1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number[0])
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # the stand-in was killed

    threading.Thread(target=pass_on, daemon=True).start()
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        client.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    files = array.array("i")
    head, ancillary, _, _ = client.recvmsg(12, socket.CMSG_LEN(256 * files.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    rest = int(head)
    parts = []
    while rest:
        parts.append(client.recv(rest))
        rest -= len(parts[-1])
    return json.loads(b"".join(parts)), list(files)


def _take_over(request: dict[str, Any], files: Sequence[int], interpreter: str) -> None:
    """Become the program: its files, its directory, its environment; does not return."""
    highest = max([*request["files"], *files]) + 1
    aside = [os.dup2(file, highest + number, inheritable=False) for number, file in enumerate(files)]
    for wanted, file in zip(request["files"], aside, strict=True):
        os.dup2(file, wanted, inheritable=True)
    for file in {*files, *aside} - set(request["files"]):
        os.close(file)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.executable = interpreter
    # Else a module that a test rewrites at once, to the same length, is taken from its bytecode.
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    unbuffered = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=unbuffered, line_buffering=unbuffered or os.isatty(1))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = paths
    sys.modules["__main__"].__dict__.pop("__spec__", None)
    code = 1
    try:
        _run(request["name"], request["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if end.code is not None and not isinstance(end.code, int):
            sys.stderr.write(f"{end.code}\n")
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - the interpreter shows all
        sys.excepthook(*sys.exc_info())
    finally:
        _end(code)


def _end(code: int) -> None:
    """End as an interpreter does: with its threads, the functions of `atexit`, and all output written."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        import atexit

        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _run(name: str, arguments: list[str]) -> None:
    while name.startswith("python") and arguments and arguments[0] in {"-u", "-E", "-s", "-B"}:
        arguments.pop(0)
    match name.startswith("python"), arguments:
        case True, ["-m", module, *rest]:
            sys.argv[:] = [module, *rest]
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case True, ["-c", text, *rest]:
            sys.argv[:] = ["-c", *rest]
            sys.path.insert(0, "")
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
        case True, [file, *rest]:
            sys.argv[:] = [file, *rest]
            sys.path.insert(0, str(Path(file).resolve().parent))
            runpy.run_path(file, run_name="__main__")
        case _, rest:
            [script] = importlib.metadata.entry_points(group="console_scripts", name=name)
            sys.argv[:] = [name, *rest]
            sys.exit(script.load()())


if __name__ == "__main__":
    _serve(*sys.argv[1:])
