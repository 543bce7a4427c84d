"""What makes queues in a database slow: long queues, old snapshots, what a selector passes over, and time."""

from __future__ import annotations

import time
from functools import partial

import psycopg

from benchmarks import floor, provider
from benchmarks.database import database_on
from benchmarks.measurement import BenchmarkResult, Contender, Target, at_least, at_most, compare
from benchmarks.setting import Setting
from jmsql.admin import Administration

_BATCH = 100
_SHORT = 1000
_TENTHS = 10
_MICROSECONDS = 1_000_000
_RATE, _TABLE, _INDEXES = "rate", "table", "indexes"
_SERVER, _CLIENT = "processor time of the server", "processor time of the client"
_MEBIBYTE = 1024 * 1024


def backlog(setting: Setting) -> list[BenchmarkResult]:
    """Receive from a queue with 1,000,000 messages, beside one with 1,000."""
    database = setting.database
    for queue, count in {"long": setting.effort.backlog, "short": _SHORT}.items():
        setting.tell(f"sending {count:,} messages")
        database.fill(queue, count)
    database.execute("vacuum (analyze) jmsql_internal.message")
    contenders = [
        Contender(
            queue, partial(provider.receive_in_transactions, database, queue, _BATCH), partial(database.fill, queue)
        )
        for queue in ("long", "short")
    ]
    samples = setting.measure(contenders, _SHORT)
    return compare("backlog", samples, "long", {"short": at_least(0.8)})


def long_run(setting: Setting) -> list[BenchmarkResult]:
    """1,000,000 messages through one queue (an hour: 10,000,000): the last tenth beside the first."""
    return _pass_through(setting, "long-run", history=False)


def long_run_with_history(setting: Setting) -> list[BenchmarkResult]:
    """The same through a queue that keeps history."""
    return _pass_through(setting, "long-run-history", history=True)


def _pass_through(setting: Setting, queue: str, *, history: bool) -> list[BenchmarkResult]:
    """Send and receive by turns, spread over the time that the run is to last."""
    database = setting.database
    with Administration(database.url) as administration:
        administration.create_queue(queue, history=history)
    figures: dict[str, list[float]] = {name: [] for name in (_RATE, _SERVER, _CLIENT, _TABLE, _INDEXES)}
    messages = setting.effort.long_run_messages // _TENTHS
    began = time.monotonic()
    with (
        provider.send_in_transactions(database, queue, _BATCH) as send,
        provider.receive_in_transactions(database, queue, _BATCH) as receive,
    ):
        for tenth in range(_TENTHS):
            busy, client, server = 0.0, time.process_time(), database.server_seconds()
            for turn in range(messages // _SHORT):
                due = began + setting.effort.long_run_seconds * (tenth * messages + turn * _SHORT) / (
                    _TENTHS * messages
                )
                time.sleep(max(0.0, due - time.monotonic()))
                started = time.monotonic()
                send(_SHORT)
                receive(_SHORT)
                busy += time.monotonic() - started
            table, indexes = database.size("jmsql_internal.message")
            figures[_RATE].append(messages / busy)
            figures[_SERVER].append((database.server_seconds() - server) / messages * _MICROSECONDS)
            figures[_CLIENT].append((time.process_time() - client) / messages * _MICROSECONDS)
            figures[_TABLE].append(table / _MEBIBYTE)
            figures[_INDEXES].append(indexes / _MEBIBYTE)
            setting.tell(f"tenth {tenth + 1} of {_TENTHS}, {figures[_RATE][-1]:,.0f} messages/s")

    def compared(what: str, unit: str, target: Target, *, reference: int = 0) -> BenchmarkResult:
        name = ("first tenth", "second tenth")[reference]
        samples = figures[what]
        line = f"{queue}, {what} ({' '.join(f'{sample:,.0f}' for sample in samples)})"
        return BenchmarkResult(line, "last tenth", name, unit, samples[-1:], samples[reference : reference + 1], target)

    return [
        compared(_RATE, "messages/s", at_least(0.9)),
        compared(_SERVER, "µs a message", at_most(1.1)),
        compared(_CLIENT, "µs a message", at_most(1.1)),
        # The first tenth begins with empty tables.
        compared(_TABLE, "MiB", at_most(1.1), reference=1),
        compared(_INDEXES, "MiB", at_most(1.1), reference=1),
    ]


def pinned_snapshot(setting: Setting) -> list[BenchmarkResult]:
    """Send and receive while a snapshot is held open for 60 s, beside a database without one."""
    # A snapshot holds back the vacuuming of its own database alone.
    with database_on(setting.database.url) as pinned, psycopg.connect(pinned.url) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from jmsql_internal.message")
        contenders = [
            Contender(
                name,
                partial(provider.receive_in_transactions, database, "jmsql", _BATCH),
                partial(database.fill, "jmsql"),
            )
            for name, database in {"jmsql, pinned": pinned, "jmsql, unpinned": setting.database}.items()
        ]
        contenders.append(
            Contender(
                "floor without bounds, pinned",
                partial(floor.receive, pinned, "floor", _BATCH, transacted=True, bounded=False),
                partial(pinned.fill, "floor"),
            )
        )
        samples = setting.measure(contenders, _SHORT, seconds=setting.effort.pinned_seconds)
    last = {name: figures[-max(len(figures) // 3, 1) :] for name, figures in samples.items()}
    return compare(
        "pinned-snapshot",
        last,
        "jmsql, pinned",
        {"jmsql, unpinned": at_least(0.85), "floor without bounds, pinned": None},
    )


def selector(setting: Setting) -> list[BenchmarkResult]:
    """Receive by a selector behind 1,000,000 messages that do not match, beside a queue without them."""
    database = setting.database
    setting.tell(f"sending {setting.effort.backlog:,} messages")
    database.fill("crowded", setting.effort.backlog, '{"color": "red"}')
    database.execute("vacuum (analyze) jmsql_internal.message")

    def matching(queue: str, count: int) -> None:
        database.fill(queue, count, '{"color": "blue"}')

    contenders = [
        Contender(
            queue,
            partial(provider.receive_in_transactions, database, queue, _BATCH, "color = 'blue'"),
            partial(matching, queue),
        )
        for queue in ("crowded", "empty")
    ]
    samples = setting.measure(contenders, _SHORT, seconds=setting.effort.pinned_seconds / 2)
    return compare("selector", samples, "crowded", {"empty": at_least(0.5)})
