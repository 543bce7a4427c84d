"""Handlers of a worker: coroutine functions beside functions in threads."""

from __future__ import annotations

import threading
import time

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, at_least
from benchmarks.setting import Setting
from jmsql import ConnectionFactory, Message
from jmsql.worker import Application
from jmsql.worker.handlers.handler_groups import HandlerGroup, HandlersInEventLoop, HandlersInThreads
from jmsql.worker.settings import HandlerSettings

_AT_A_TIME = (1, 10)
_FIRST = 100
"""Of so many messages the time is not taken: connections are opened meanwhile."""


def worker_rate(setting: Setting) -> list[BenchmarkResult]:
    """Handle a backlog, one message a transaction, with coroutine functions and with functions in threads."""
    found = []
    for concurrency in _AT_A_TIME:
        rates: dict[str, list[float]] = {"async def": [], "def": []}
        for number in range(min(setting.effort.rounds, 10)):
            setting.tell(f"round {number}: {concurrency} at a time")
            for name in rates if number % 2 else reversed(rates):
                rates[name].append(_rate(setting.database, name, concurrency, setting.effort.messages))
        name = f"worker-rate, {concurrency} at a time"
        unit = "messages/s"
        found.append(BenchmarkResult(name, "async def", "def", unit, rates["async def"], rates["def"], at_least(1.0)))
    return found


def _rate(database: BenchmarkDatabase, queue: str, concurrency: int, count: int) -> float:
    ended = threading.Event()
    handled: list[float] = []

    def note(_: Message) -> None:
        handled.append(time.monotonic())
        if len(handled) == _FIRST + count:
            ended.set()

    async def note_in_event_loop(message: Message) -> None:
        note(message)

    app = Application(ConnectionFactory(database.url))
    app.listener(queue)(note if queue == "def" else note_in_event_loop)
    settings = HandlerSettings(concurrency=concurrency)
    group: HandlerGroup
    if queue == "def":
        group = HandlersInThreads.open(database.factory, app.listeners, settings)
    else:
        group = HandlersInEventLoop.open(database.asyncio_factory, app.listeners, settings)
    database.fill(queue, _FIRST + count)
    group.start()
    if not ended.wait(120.0):
        raise SystemExit(f"{queue} ran out of messages.")
    group.end(10.0).result()
    return count / (handled[-1] - handled[_FIRST - 1])
