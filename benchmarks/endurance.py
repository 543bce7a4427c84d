"""What makes queues in a database slow: long queues, old snapshots, messages that a selector passes over."""

from __future__ import annotations

from functools import partial

import psycopg

from benchmarks import floor, provider
from benchmarks.database import database_on
from benchmarks.measurement import BenchmarkResult, Contender, at_least, compare
from benchmarks.setting import Setting

__all__ = ["backlog", "pinned_snapshot", "selector"]

_BATCH = 100
_SHORT = 1000


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
