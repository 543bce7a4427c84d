"""What it would cost to divide the table of messages by queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, compare
from benchmarks.setting import Setting

_BATCH = 100
_PARTITIONS = 8
_COLUMNS = "queue_id integer, sequence bigint generated always as identity, body text, primary key (queue_id, sequence)"
_INSERT = "insert into {table} (queue_id, body) select %s, body from unnest(%s::text[]) as body"
_DELETE = """
    with candidate as materialized (
        select m.queue_id, m.sequence from {table} m where m.queue_id = %(queue_id)s and m.sequence > %(passed)s
        order by m.sequence limit %(limit)s for update skip locked)
    delete from {table} m using candidate c where m.queue_id = %(queue_id)s and m.sequence = c.sequence
    returning m.sequence, m.body"""


def partitions(setting: Setting) -> list[BenchmarkResult]:
    """Send and receive bare rows, 100 a commit, in a table of 8 partitions by queue beside one that is whole."""
    execute = setting.database.execute
    execute(f"create table whole ({_COLUMNS})")
    execute(f"create table divided ({_COLUMNS}) partition by hash (queue_id)")
    for number in range(_PARTITIONS):
        execute(
            f"create table divided_{number} partition of divided "
            f"for values with (modulus {_PARTITIONS}, remainder {number})"
        )
    contenders = [
        Contender(name, partial(_exchange, setting.database, table))
        for name, table in {"8 partitions": "divided", "one table": "whole"}.items()
    ]
    return compare(
        "partitions", setting.measure(contenders, setting.effort.messages), "8 partitions", {"one table": None}
    )


@contextmanager
def _exchange(database: BenchmarkDatabase, table: str) -> Iterator[Work]:
    insert, delete = _INSERT.format(table=table).encode(), _DELETE.format(table=table).encode()
    with database.connect(autocommit=True) as connection:
        passed = [0] * _PARTITIONS

        def work(count: int) -> None:
            for number in range(count // _BATCH):
                queue_id = number % _PARTITIONS
                connection.execute(insert, (queue_id, [BODY] * _BATCH), prepare=True)
                parameters = {"queue_id": queue_id, "passed": passed[queue_id], "limit": _BATCH}
                rows = connection.execute(delete, parameters, prepare=True).fetchall()
                passed[queue_id] = max(sequence for sequence, _ in rows)

        yield work
