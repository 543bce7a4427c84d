"""What makes queues in a database slow: long queues, old snapshots, what a selector passes over, and time."""

from __future__ import annotations

import time
from functools import partial

import psycopg

from benchmarks import floor, provider
from benchmarks.database import BenchmarkDatabase, database_on
from benchmarks.measurement import BenchmarkResult, Contender, at_least, compare
from benchmarks.setting import Setting
from jmsql.admin import Administration

__all__ = ["backlog", "long_run", "pinned_snapshot", "selector"]

_BATCH = 100
_SHORT = 1000
_TENTHS = 10
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
    """1,000,000 messages through one queue, with history and without: the last tenth beside the first."""
    results = []
    for history in (False, True):
        name = "long-run with history" if history else "long-run"
        # A database each: what is vacuumed in one would otherwise count for both.
        with database_on(setting.database.url) as database:
            with Administration(database.url) as administration:
                administration.create_queue(name, history=history)
            rates, pages = _pass_through(setting, database, name)
        results += [
            BenchmarkResult(name, "last tenth", "first tenth", "messages/s", rates[-1:], rates[:1], at_least(0.9))
        ]
        for relation, sizes in pages.items():
            line = f"{name}, {relation}"
            results.append(BenchmarkResult(line, "last tenth", "second tenth", "MiB", sizes[-1:], sizes[1:2]))
            setting.tell(f"{line}: {' '.join(f'{size:.1f}' for size in sizes)} MiB")
    return results


def _pass_through(
    setting: Setting, database: BenchmarkDatabase, queue: str
) -> tuple[list[float], dict[str, list[float]]]:
    """Send and receive by turns; return the rate of each tenth, and how large what it uses is at its end, in MiB."""
    rates: list[float] = []
    sizes: dict[str, list[float]] = {"table": [], "indexes": []}
    turns = setting.effort.backlog // (_TENTHS * _SHORT)
    with (
        provider.send_in_transactions(database, queue, _BATCH) as send,
        provider.receive_in_transactions(database, queue, _BATCH) as receive,
    ):
        for tenth in range(_TENTHS):
            started = time.perf_counter()
            for _ in range(turns):
                send(_SHORT)
                receive(_SHORT)
            rates.append(turns * _SHORT / (time.perf_counter() - started))
            table, indexes = database.size("jmsql_internal.message")
            sizes["table"].append(table / _MEBIBYTE)
            sizes["indexes"].append(indexes / _MEBIBYTE)
            setting.tell(f"{queue}: tenth {tenth + 1} of {_TENTHS}, {rates[-1]:,.0f} messages/s")
    return rates, sizes


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
