"""The brokers that some workers need beside the database, each a server of our own in a temporary directory."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.peers.peer import Unavailable, import_peer
from benchmarks.peers.rabbitmq import connect, free_ports, rabbitmq_server
from benchmarks.workers.running import processor_seconds

_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that runs.

    Args:
        url: Where it is.
        process_id: That of its process, which may have started others.
    """

    url: str
    process_id: int

    @property
    def processor_seconds(self) -> float:
        """The processor time that it has taken."""
        return processor_seconds(self.process_id)


@contextmanager
def open_rabbitmq() -> Iterator[Broker]:
    """Start RabbitMQ.

    Raises:
        Unavailable: It is not installed, or does not start.
    """
    pika = import_peer("pika")
    with rabbitmq_server() as (port, process_id):
        connect(pika, pika.ConnectionParameters("127.0.0.1", port)).close()
        yield Broker(f"amqp://guest:guest@127.0.0.1:{port}", process_id)


@contextmanager
def open_redis() -> Iterator[Broker]:
    """Start Redis, which writes what it is told to a file, and has the disk keep that once a second.

    Raises:
        Unavailable: It is not installed, or does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise Unavailable("no redis-server is installed (Debian: apt-get install redis-server)")
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="jmsql-redis-") as directory:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory]
        command += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            try:
                _wait_for_redis(port)
                yield Broker(f"redis://127.0.0.1:{port}/0", process.pid)
            finally:
                process.terminate()


def _wait_for_redis(port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    client = shutil.which("redis-cli")
    assert client is not None
    while subprocess.run([client, "-p", str(port), "ping"], capture_output=True, check=False).stdout != b"PONG\n":
        if time.monotonic() > deadline:
            raise Unavailable(f"redis-server did not start within {_START_SECONDS:.0f} s")
        time.sleep(0.1)
