"""Messages that are delivered later, and sends that are not waited for."""

from __future__ import annotations

from functools import partial

from benchmarks import provider
from benchmarks.database import BODY, database_on
from benchmarks.measurement import BenchmarkResult, Contender, at_least, compare
from benchmarks.setting import Setting

_BATCH = 100
_SHORT = 1000


def delayed_backlog(setting: Setting) -> list[BenchmarkResult]:
    """Receive from a queue with 1,000,000 delayed messages as well, beside a database without any."""
    with database_on(setting.database.url) as crowded:
        setting.tell(f"sending {setting.effort.backlog:,} messages with a delay")
        crowded.execute(
            f"""
            insert into jmsql_internal.delayed_message (queue_id, inverse_priority, jms_message_id, jms_timestamp,
                                               jms_delivery_time, jms_delivery_mode, message_type, text_body)
            select {crowded.queue_id("jmsql")}, 5, gen_random_uuid(), 1,
                jmsql_internal.current_milliseconds() + 86400000 + n,
                   2, 'TextMessage', '{BODY}'
            from generate_series(1, {setting.effort.backlog}) as n"""
        )
        crowded.execute("vacuum (analyze) jmsql_internal.delayed_message")
        contenders = [
            Contender(
                name,
                partial(provider.receive_in_transactions, database, "jmsql", _BATCH),
                partial(database.fill, "jmsql"),
            )
            for name, database in {"with delayed messages": crowded, "without": setting.database}.items()
        ]
        samples = setting.measure(contenders, _SHORT, seconds=setting.effort.rounds)
    return compare("delayed-backlog", samples, "with delayed messages", {"without": at_least(0.9)})


def asynchronous_send(setting: Setting) -> list[BenchmarkResult]:
    """Send without waiting for each commit, beside waiting for it, and beside transactions of 100 messages."""
    database = setting.database
    contenders = [
        Contender("jmsql, asynchronous", partial(provider.send_asynchronously, database, "asynchronous")),
        Contender("jmsql, one a commit", partial(provider.send, database, "single"), messages=setting.effort.singles),
        Contender("jmsql, 100 a commit", partial(provider.send_in_transactions, database, "batches", _BATCH)),
    ]
    samples = setting.measure(contenders, setting.effort.messages)
    targets = {"jmsql, one a commit": at_least(5), "jmsql, 100 a commit": None}
    return compare("asynchronous-send", samples, "jmsql, asynchronous", targets)
