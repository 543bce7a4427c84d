"""RabbitMQ: a durable queue, persistent messages, publisher confirms; pika."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import Work
from benchmarks.peers.peer import Peer, Unavailable, import_peer

_QUEUE = "received"
_SENT = "sent"
_OUTSTANDING = 200
_PREFETCH = 500
_START_SECONDS = 60.0
_PAYLOAD = BODY.encode()


@contextmanager
def open_rabbitmq(database: BenchmarkDatabase) -> Iterator[Peer]:  # noqa: ARG001 - RabbitMQ has a store of its own
    """Start a RabbitMQ server in a temporary directory, and make queues."""
    pika = import_peer("pika")
    with rabbitmq_server() as (port, _):
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        connection = connect(pika, parameters)
        channel = connection.channel()
        for queue in (_QUEUE, _SENT):
            channel.queue_declare(queue, durable=True)
        fill = _Publisher(pika, parameters, _QUEUE, _OUTSTANDING)

        @contextmanager
        def send(batch: int) -> Iterator[Work]:
            publisher = _Publisher(pika, parameters, _SENT, 1 if batch == 1 else _OUTSTANDING)
            yield publisher.publish
            publisher.close()

        @contextmanager
        def receive(batch: int) -> Iterator[Work]:
            consuming = connection.channel()
            consuming.basic_qos(prefetch_count=1 if batch == 1 else _PREFETCH)
            messages = consuming.consume(_QUEUE, inactivity_timeout=10.0)

            def work(count: int) -> None:
                for number in range(1, count + 1):
                    method, _, _ = next(messages)
                    if method is None:
                        raise SystemExit("RabbitMQ ran out of messages.")
                    if number % batch == 0:
                        consuming.basic_ack(method.delivery_tag, multiple=True)
                connection.process_data_events()

            yield work
            consuming.cancel()

        try:
            yield Peer("RabbitMQ", send, receive, fill.publish)
        finally:
            fill.close()
            connection.close()


class _Publisher:
    """Publishes messages with up to so many confirms outstanding.

    pika's blocking connection waits for each confirm; only the one with callbacks can have several under way.
    """

    def __init__(self, pika: Any, parameters: Any, queue: str, outstanding: int) -> None:
        self._nack = pika.spec.Basic.Nack
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._queue = queue
        self._outstanding = outstanding
        self._to_publish = 0
        self._next_tag = 1
        self._unconfirmed: deque[int] = deque()
        self._channel: Any = None
        self._failure: str | None = None
        self._connection = pika.SelectConnection(parameters, on_open_callback=self._opened)
        self._loop = self._connection.ioloop
        self._loop.start()

    def publish(self, count: int) -> None:
        """Publish messages, and wait for the last confirm."""
        self._to_publish = count
        self._fill_up()
        self._loop.start()
        if self._failure is not None:
            raise SystemExit(self._failure)

    def close(self) -> None:
        """End the connection."""
        self._connection.add_on_close_callback(lambda *_: self._loop.stop())
        self._connection.close()
        self._loop.start()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._channel_opened)

    def _channel_opened(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._loop.stop())

    def _fill_up(self) -> None:
        while self._to_publish and len(self._unconfirmed) < self._outstanding:
            self._channel.basic_publish("", self._queue, _PAYLOAD, self._properties)
            self._unconfirmed.append(self._next_tag)
            self._next_tag += 1
            self._to_publish -= 1

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        if isinstance(method, self._nack):
            self._failure = "RabbitMQ refused a message."
        if method.multiple:
            while self._unconfirmed and self._unconfirmed[0] <= method.delivery_tag:
                self._unconfirmed.popleft()
        else:
            self._unconfirmed.remove(method.delivery_tag)
        if self._to_publish:
            self._fill_up()
        elif not self._unconfirmed:
            self._loop.stop()


@contextmanager
def rabbitmq_server() -> Iterator[tuple[int, int]]:
    """Run a server of our own; yield its port, and the number of its process, which starts others.

    It takes seconds until it answers.

    Raises:
        Unavailable: It is not installed.
    """
    program = _program()
    with tempfile.TemporaryDirectory(prefix="jmsql-rabbitmq-") as directory:
        home = Path(directory)
        port, epmd_port, distribution_port = free_ports(3)
        configuration = home / "rabbitmq.conf"
        configuration.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n", encoding="ascii")
        environment = os.environ | {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "benchmark@localhost",
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }
        with subprocess.Popen(
            [program],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield port, process.pid
            finally:
                process.terminate()
                process.wait()
                subprocess.run(["epmd", "-kill"], env=environment, capture_output=True, check=False)


def _program() -> str:
    # The package's own script comes first: the one on PATH changes the account, to one that cannot write here.
    for candidate in (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), shutil.which("rabbitmq-server")):
        if candidate is not None and Path(candidate).exists():
            return str(candidate)
    raise Unavailable("no rabbitmq-server is installed (Debian: apt-get install rabbitmq-server)")


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def connect(pika: Any, parameters: Any) -> Any:
    """Connect to a server that is starting.

    Raises:
        Unavailable: It does not answer.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return pika.BlockingConnection(parameters)
        except pika.exceptions.AMQPError as error:
            if time.monotonic() > deadline:
                raise Unavailable(f"rabbitmq-server did not start within {_START_SECONDS:.0f} s") from error
            time.sleep(0.2)
