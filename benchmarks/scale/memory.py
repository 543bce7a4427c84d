"""How much memory a consumer takes that drains a long queue."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, at_most
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode

_ALLOWED_MEBIBYTES = 100.0
_BATCH = 100


def consumer_memory(setting: Setting) -> list[BenchmarkResult]:
    """Growth of a process while it receives 1,000,000 messages."""
    if not sys.platform.startswith("linux"):
        setting.skip("consumer-memory", "it is read from /proc, which only Linux has")
        return []
    comparisons = []
    for mode in (AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT):
        setting.tell(f"{mode.name}: sending {setting.effort.backlog:,} messages")
        setting.database.fill(mode.name, setting.effort.backlog)
        setting.tell(f"{mode.name}: receiving {setting.effort.backlog:,} messages")
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_drain, args=(setting.database.url, mode, setting.effort.backlog, there))
        process.start()
        there.close()
        growth = here.recv()
        process.join()
        subject, allowed = f"growth, {mode.name}", [_ALLOWED_MEBIBYTES]
        comparisons.append(
            BenchmarkResult("consumer-memory", subject, "allowed", "MiB", [growth], allowed, at_most(1.0))
        )
    return comparisons


def _drain(url: str, mode: AcknowledgeMode, count: int, result: Connection) -> None:
    with (
        BenchmarkDatabase(url).factory.create_connection() as connection,
        connection.create_session(transacted=mode is AcknowledgeMode.TRANSACTED, acknowledge_mode=mode) as session,
    ):
        consumer = session.create_consumer(session.create_queue(mode.name))
        connection.start()
        start = 0.0
        for number in range(1, count + 1):
            message = consumer.receive(timeout=10.0)
            if message is None:
                raise SystemExit(f"The queue {mode.name} ran out of messages.")
            if not start:
                start = mebibytes("VmRSS")
            if number % _BATCH == 0:
                if mode is AcknowledgeMode.TRANSACTED:
                    session.commit()
                else:
                    message.acknowledge()
    result.send(mebibytes("VmHWM") - start)


def mebibytes(name: str) -> float:
    """Return a figure of the process: VmRSS, what it has in memory, or VmHWM, the most that it ever had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(name)
