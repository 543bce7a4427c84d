"""How long the pages of the console take where there are many queues and messages."""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import MutableMapping
from typing import Any

from benchmarks.measurement import BenchmarkResult, at_most
from benchmarks.setting import Setting
from jmsql.console import Console, Level, Visitor

_QUEUES = 10_000
_MESSAGES_OF_A_BACKLOG = 5
"""The deepest queue has so many messages for each of a backlog: 5,000,000, or fewer in a quick run."""
_REQUESTS = 20
_MOST_MILLISECONDS = 100.0

_FILL = f"""
    insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, {_QUEUES}) n;
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body, properties)
        select q.queue_id, 5, 2, 'TextMessage', 1700000000000 + q.queue_id, repeat('x', 200),
               '{{"color": "red", "weight": 7}}'
        from jmsql_internal.queue q, generate_series(1, 50) n;
    insert into jmsql_internal.queue (name) values ('deep'), ('letters');
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body, properties)
        select q.queue_id, 5, 2, 'TextMessage', 1700000000000 + n, repeat('x', 200),
               jsonb_build_object('color', 'red', 'weight', n % 1000)
        from generate_series(1, {{deep}}) n, jmsql_internal.queue q where q.name = 'deep';
    update jmsql_internal.queue set dead_letter_queue_id = (
        select queue_id from jmsql_internal.queue where name = 'letters') where name = 'deep';
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body, properties)
        select q.queue_id, 5, 2, 'TextMessage', n, 'x',
               jsonb_build_object('JMS_jmsql_DeadLetterReason', 'maximum deliveries', 'JMS_jmsql_LastError',
                                  repeat('File', 200) || E'\\nError ' || n % 7, 'JMS_jmsql_OriginalDestination',
                                  'queue://queue ' || n % 5, 'JMS_jmsql_DeadLetterTime', 1700000000000 + n)
        from generate_series(1, 20000) n, jmsql_internal.queue q where q.name = 'letters';
    analyze;
    """


def fill(setting: Setting) -> None:
    """Make 10,000 queues, one of which is deep, and dead letters."""
    deep = setting.effort.backlog * _MESSAGES_OF_A_BACKLOG
    setting.tell(f"filling {_QUEUES:,} queues and {deep + _QUEUES * 50:,} messages")
    setting.database.execute(_FILL.replace("{deep}", str(deep)))


def console_pages(setting: Setting) -> list[BenchmarkResult]:
    """Pages of the console with 10,000 queues and 5,000,000 messages: p95 at the server, beside 100 ms."""
    fill(setting)
    console = Console(setting.database.factory, access=lambda _: Visitor("benchmark", Level.OPERATE))
    try:
        times, loads = _measure(setting, console)
        return [
            _beside_target(f"console-pages {name}{what}", subject, figures[name])
            for what, subject, figures in (("", "p95", times), (" load", "processor time", loads))
            for name in figures
        ]
    finally:
        console.close()


def _beside_target(benchmark: str, subject: str, figures: list[float]) -> BenchmarkResult:
    most = [_MOST_MILLISECONDS] * len(figures)
    return BenchmarkResult(benchmark, subject, "100 ms", "ms", figures, most, at_most(1.0))


def _measure(setting: Setting, console: Console) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return for each page the p95 of its time, and the processor time that it takes here and at the server."""
    number = setting.database.queue_id("deep")
    listing = _get(console, f"/destinations/{number}")
    found = re.search(r'href="(/destinations/\d+/messages/[^"]*)"', listing)
    assert found is not None
    pages = {
        "first screen": "/",
        "first screen, live": "/?live=1",
        "search": "/search?q=queue+77",
        "queue": f"/destinations/{number}",
        "queue, live": f"/destinations/{number}?live=1",
        "queue, selector": f"/destinations/{number}?selector=weight+%3D+77",
        "queue, selector of none": f"/destinations/{number}?selector=color+%3D+%27blue%27",
        "message": found[1],
        "dead letters": "/dead-letters",
        "clients": "/clients",
        "question before deleting": f"/destinations/{number}/purge",
    }
    times: dict[str, list[float]] = {name: [] for name in pages}
    loads: dict[str, list[float]] = {name: [] for name in pages}
    for turn in range(max(3, setting.effort.rounds // 4)):
        for name, path in pages.items():
            taken = []
            seconds = time.process_time() + setting.database.server_seconds()
            for _ in range(_REQUESTS):
                started = time.perf_counter()
                _get(console, path)
                taken.append(1000 * (time.perf_counter() - started))
            seconds = time.process_time() + setting.database.server_seconds() - seconds
            times[name].append(statistics.quantiles(taken, n=20, method="inclusive")[-1])
            loads[name].append(1000 * seconds / _REQUESTS)
        setting.tell(f"round {turn}")
    return times, loads


def _get(console: Console, path: str) -> str:
    """Return a page, without a network in between."""
    target, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": target,
        "raw_path": target.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(console(scope, receive, send))
    assert sent[0]["status"] == 200, (path, sent)
    return b"".join(message.get("body", b"") for message in sent[1:]).decode()
