"""A web application that handles messages in its own event loop."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import random
import socket
import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.measurement import BenchmarkResult, at_most
from benchmarks.setting import Setting

_PAUSE = 0.02
_BLOCKS = 3
_ALLOWED = 10.0
"""Milliseconds."""


class _Application(NamedTuple):
    """The example that runs in a process of its own."""

    port: int
    latencies: Connection
    """Tells of each order how many seconds lie between its commit and the beginning of its handler."""


def fastapi_latency(setting: Setting) -> list[BenchmarkResult]:
    """Time from the commit of an order to its handler, in examples/fastapi_orders under uvicorn."""
    found: list[float] = []
    with _running(setting.database.url) as application:
        for number in range(setting.effort.latencies):
            time.sleep(_PAUSE * random.uniform(0.5, 1.5))
            _place_order(application.port)
            found.append(1000 * application.latencies.recv())
            if number % 50 == 0:
                setting.tell(f"{number} orders of {setting.effort.latencies}")
    length = len(found) // _BLOCKS
    blocks = [found[start : start + length] for start in range(0, _BLOCKS * length, length)]
    medians = [statistics.median(block) for block in blocks]
    allowed = [_ALLOWED] * len(medians)
    return [BenchmarkResult("fastapi-latency p50", "jmsql", "allowed", "ms", medians, allowed, at_most(1))]


def _place_order(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    order = json.dumps({"reference": uuid.uuid4().hex, "goods": "a kite"})
    connection.request("POST", "/orders", order, {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != http.client.CREATED:
        raise SystemExit(f"The example has answered {response.status}.")
    connection.close()


@contextmanager
def _running(url: str) -> Iterator[_Application]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(url, there), daemon=True)
    process.start()
    there.close()
    application = _Application(here.recv(), here)
    _place_order(application.port)  # what is prepared once
    here.recv()
    time.sleep(1.0)  # what it starts in the background settles
    try:
        yield application
    finally:
        process.terminate()
        process.join()


def _serve(url: str, tell: Connection) -> None:
    import uvicorn
    from sqlalchemy import event, orm

    from examples.fastapi_orders import backend, messaging

    os.environ["JMSQL_URL"] = url
    last_commit = 0.0

    def note(_: orm.Session) -> None:
        nonlocal last_commit
        last_commit = time.monotonic()

    async def timed(**arguments: Any) -> None:
        tell.send(time.monotonic() - last_commit)
        await messaging.ship(**arguments)

    event.listen(orm.Session, "after_commit", note)

    def with_time(listener: Any) -> Any:
        return replace(listener, handler=timed) if listener.handler is messaging.ship else listener

    messaging.app.listeners[:] = map(with_time, messaging.app.listeners)
    listening = socket.create_server(("127.0.0.1", 0))
    tell.send(listening.getsockname()[1])
    uvicorn.Server(uvicorn.Config(backend.app, log_level="warning")).run(sockets=[listening])
