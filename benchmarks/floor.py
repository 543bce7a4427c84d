"""The floor: the SQL that a good engineer would write by hand for the same rows, in a bare psycopg loop."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from psycopg.rows import dict_row

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import Work

_SEND_ONE = """
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, text_body)
    values (%s, 5, %s, %s, 2, 'TextMessage', %s)"""

_SEND_MANY = """
    insert into jmsql_internal.message
        (queue_id, inverse_priority, jms_message_id, jms_timestamp, jms_delivery_mode, message_type, text_body)
    select %s, 5, s.jms_message_id, s.jms_timestamp, 2, 'TextMessage', s.text_body
    from unnest(%s::uuid[], %s::bigint[], %s::text[]) as s (jms_message_id, jms_timestamp, text_body)"""

_CANDIDATES = """
    select x.* from unnest(array[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]::smallint[], %(lowest)s::bigint[])
        as bound (inverse_priority, lowest)
    cross join lateral (
        select m.ctid as address, m.* from jmsql_internal.message m
        left join lateral (
            select d.* from jmsql_internal.delivery d
            where (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            offset 0) d on true
        where m.queue_id = %(queue_id)s and m.inverse_priority = bound.inverse_priority and m.sequence >= bound.lowest
          and (m.jms_expiration is null or m.jms_expiration > extract(epoch from now()) * 1000)
          and d.claim_id is null and (d.next_attempt is null or d.next_attempt <= now())
        order by m.queue_id, m.inverse_priority, m.sequence limit %(limit)s for update of m skip locked) x
    limit %(limit)s"""

_TAKE = f"""
    with candidate as materialized ({_CANDIDATES})
    delete from jmsql_internal.message m using candidate c where m.ctid = c.address
    returning m.*"""

_TAKE_AND_KEEP = f"""
    with candidate as materialized ({_CANDIDATES}),
    taken as (
        delete from jmsql_internal.message m using candidate c where m.ctid = c.address
        returning m.*),
    kept as (
        insert into jmsql_internal.message_history
            (acknowledged_at, sequence, jms_timestamp, jms_message_id, queue_id, delivery_count, message_type, outcome,
             inverse_priority, jms_delivery_mode, is_topic, destination, properties, text_body)
        select now(), sequence, jms_timestamp, jms_message_id, queue_id, 1, message_type, 'acknowledged',
               inverse_priority, jms_delivery_mode, false, %(queue)s, properties, text_body
        from taken)
    select * from taken"""

_CLAIM = f"""
    with commit as materialized (
        select set_config('synchronous_commit', 'off', true), nextval('jmsql_internal.claim_sequence') as claim_id),
    candidate as materialized ({_CANDIDATES}),
    claimed as (
        insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at)
        select c.queue_id, c.inverse_priority, c.sequence, commit.claim_id, 0, now() from candidate c cross join commit
        on conflict do nothing
        returning queue_id, inverse_priority, sequence, claim_id)
    select m.*, claimed.claim_id from claimed join jmsql_internal.message m using (queue_id, inverse_priority,
        sequence)"""

_ACKNOWLEDGE = """
    with acknowledged as (
        delete from jmsql_internal.delivery d
        using unnest(%(priorities)s::smallint[], %(sequences)s::bigint[]) as k (inverse_priority, sequence)
        where d.queue_id = %(queue_id)s and d.inverse_priority = k.inverse_priority and d.sequence = k.sequence
          and d.claim_id = %(claim_id)s
        returning d.queue_id, d.inverse_priority, d.sequence)
    delete from jmsql_internal.message m using acknowledged a
    where (m.queue_id, m.inverse_priority, m.sequence) = (a.queue_id, a.inverse_priority, a.sequence)"""


def insert(queue_id: int, count: int) -> tuple[str, Sequence[object]]:
    """Return a statement that inserts text messages, and its parameters."""
    now = time.time_ns() // 1_000_000
    if count == 1:
        return _SEND_ONE, (queue_id, uuid.uuid4(), now, BODY)
    return _SEND_MANY, (queue_id, [uuid.uuid4() for _ in range(count)], [now] * count, [BODY] * count)


class Bounds:
    """How far a consumer has come: the lowest sequence worth looking at, for each priority."""

    def __init__(self, *, kept: bool = True) -> None:
        self.lowest = [0] * 10
        self._kept = kept

    def passed(self, rows: list[dict[str, Any]]) -> None:
        """Move past the rows."""
        if self._kept:
            for row in rows:
                priority = row["inverse_priority"]
                self.lowest[priority] = max(self.lowest[priority], row["sequence"] + 1)


def dequeue(queue_id: int, bounds: Bounds, limit: int, keep_as: str | None = None) -> tuple[str, dict[str, object]]:
    """Return a statement that dequeues messages, and its parameters.

    Args:
        queue_id: The queue's number.
        bounds: The place where the scan begins.
        limit: The most messages to dequeue.
        keep_as: The destination under which the same statement keeps them in the history; None: it keeps none.
    """
    parameters: dict[str, object] = {"queue_id": queue_id, "lowest": bounds.lowest, "limit": limit}
    if keep_as is None:
        return _TAKE, parameters
    return _TAKE_AND_KEEP, parameters | {"queue": keep_as}


@contextmanager
def send_in_transactions(database: BenchmarkDatabase, queue: str, batch: int) -> Iterator[Work]:
    """Send `batch` messages with each commit."""
    queue_id = database.queue_id(queue)
    with database.connect(autocommit=False) as connection:

        def work(count: int) -> None:
            for _ in range(count // batch):
                connection.execute(*insert(queue_id, batch), prepare=True)
                connection.commit()

        yield work


@contextmanager
def send(database: BenchmarkDatabase, queue: str, *, persistent: bool = True) -> Iterator[Work]:
    """Send each message by itself."""
    queue_id = database.queue_id(queue)
    with database.connect(autocommit=True) as connection:
        if not persistent:
            connection.execute("set synchronous_commit = off")

        def work(count: int) -> None:
            for _ in range(count):
                connection.execute(*insert(queue_id, 1), prepare=True)

        yield work


@contextmanager
def receive(
    database: BenchmarkDatabase,
    queue: str,
    batch: int,
    *,
    transacted: bool = False,
    bounded: bool = True,
    keeps: bool = False,
) -> Iterator[Work]:
    """Dequeue `batch` messages with each statement.

    Args:
        database: Where.
        queue: From where.
        batch: How many.
        transacted: Whether there is a transaction around the statement, in which an application could do its work; else
            the statement commits by itself.
        bounded: Whether each scan begins where the last one ended; else all begin at the front of the queue.
        keeps: True to keep the messages in the history.
    """
    keep_as = queue if keeps else None
    queue_id = database.queue_id(queue)
    with database.connect(autocommit=not transacted) as connection:
        bounds = Bounds(kept=bounded)
        cursor = connection.cursor(row_factory=dict_row)

        def work(count: int) -> None:
            received = 0
            while received < count:
                rows = cursor.execute(*dequeue(queue_id, bounds, batch, keep_as), prepare=True).fetchall()
                if transacted:
                    connection.commit()
                if not rows:
                    raise SystemExit(f"The queue {queue} ran out of messages.")
                received += len(rows)
                bounds.passed(rows)

        yield work


@contextmanager
def claim(database: BenchmarkDatabase, queue: str, batch: int) -> Iterator[Work]:
    """Claim `batch` messages, then acknowledge them: two statements, each of which commits by itself."""
    queue_id = database.queue_id(queue)
    with database.connect(autocommit=True) as connection:
        bounds = Bounds()
        cursor = connection.cursor(row_factory=dict_row)

        def work(count: int) -> None:
            received = 0
            while received < count:
                parameters = {"queue_id": queue_id, "lowest": bounds.lowest, "limit": batch}
                rows = cursor.execute(_CLAIM, parameters, prepare=True).fetchall()
                if not rows:
                    raise SystemExit(f"The queue {queue} ran out of messages.")
                keys = {
                    "queue_id": queue_id,
                    "priorities": [row["inverse_priority"] for row in rows],
                    "sequences": [row["sequence"] for row in rows],
                    "claim_id": rows[0]["claim_id"],
                }
                cursor.execute(_ACKNOWLEDGE, keys, prepare=True)
                received += len(rows)
                bounds.passed(rows)

        yield work
