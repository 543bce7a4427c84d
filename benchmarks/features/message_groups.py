"""Messages of groups: what they cost beside messages without, and whether a group that is held costs the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks import floor, provider
from benchmarks.database import BODY, BenchmarkDatabase, database_on
from benchmarks.measurement import BenchmarkResult, Contender, at_least, compare
from benchmarks.setting import Setting

_BATCH = 100
_GROUPS = 1000
_SHORT = 1000


def groups(setting: Setting) -> list[BenchmarkResult]:
    """Receive messages of 1000 groups, beside messages without; and beside a long group that another client holds."""
    database = setting.database
    plain = Contender(
        "without groups",
        partial(provider.receive_in_transactions, database, "plain", _BATCH),
        partial(database.fill, "plain"),
    )
    contenders = [
        Contender(
            "groups",
            partial(provider.receive_in_transactions, database, "grouped", _BATCH),
            partial(_fill, database, "grouped"),
        ),
        plain,
        Contender(
            "floor", partial(floor.receive, database, "floor", _BATCH, transacted=True), partial(database.fill, "floor")
        ),
    ]
    samples = setting.measure(contenders, setting.effort.messages)
    found = compare("groups", samples, "groups", {"without groups": at_least(0.7), "floor": at_least(0.4)})
    with database_on(database.url) as crowded, _held_group(setting, crowded):
        contenders = [
            Contender(
                name,
                partial(provider.receive_in_transactions, each, "long", _BATCH),
                partial(_fill, each, "long"),
            )
            for name, each in {"beside a long group": crowded, "alone": database}.items()
        ]
        samples = setting.measure(contenders, _SHORT, seconds=setting.effort.rounds)
    return found + compare("groups", samples, "beside a long group", {"alone": at_least(0.8)})


@contextmanager
def _held_group(setting: Setting, database: BenchmarkDatabase) -> Iterator[None]:
    """Have a client hold a group with a long backlog, in front of all others."""
    setting.tell(f"sending {setting.effort.backlog:,} messages of one group")
    database.fill("long", setting.effort.backlog, '{"JMSXGroupID": "held"}')
    database.execute("vacuum (analyze) jmsql_internal.message")
    with database.factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        connection.start()
        assert session.create_consumer(session.create_queue("long")).receive(timeout=60) is not None
        yield


def _fill(database: BenchmarkDatabase, queue: str, count: int) -> None:
    """Put messages of many groups into a queue, which take turns."""
    database.execute(
        f"""
        insert into jmsql_internal.message (queue_id, inverse_priority, jms_message_id, jms_timestamp,
            jms_delivery_mode,
                                   message_type, properties, text_body)
        select {database.queue_id(queue)}, 5, gen_random_uuid(), 1, 2, 'TextMessage',
               jsonb_build_object('JMSXGroupID', 'group ' || n % {_GROUPS}), '{BODY}'
        from generate_series(1, {count}) as n"""
    )
