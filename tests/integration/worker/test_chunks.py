"""Handlers that are called with a chunk of messages: what is settled together, and alone when a call fails."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from prometheus_client import CollectorRegistry
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection

import jmsql
from jmsql import ConnectionFactory, Message, Queue, RedeliveryPolicy, Topic
from jmsql import asyncio as jms
from jmsql.admin import Administration
from jmsql.client._sync.shared.redelivery import Redelivery
from jmsql.store.receiving.redelivery import Release
from jmsql.worker import Application, HandlerCall, Reject, RetryAfter, WorkerTimings
from tests.integration.worker.conftest import PATIENCE, StartWorker, WorkerDatabase
from tests.integration.worker.test_handlers import send
from tests.integration.worker.test_running import until

AGAIN = RedeliveryPolicy(maximum_deliveries=3, delay=0.01)
INSERTION = sqlalchemy.text("insert into handled (text) values (:text)")


def store(database: sqlalchemy.Connection, texts: Sequence[str]) -> None:
    database.execute(INSERTION, [{"text": text} for text in texts])


async def handled(database: WorkerDatabase, count: int) -> list[str]:
    await until(lambda: len(database.handled()) >= count and database.queued() == 0)
    return [text for text, _ in database.handled()]


def dead(factory: ConnectionFactory) -> list[str]:
    with factory.create_context() as context, context.create_browser(Queue("DLQ")) as browser:
        return [message.get_body(str) or "" for message in browser]


def numbered(count: int) -> list[str]:
    return [f"{number:03}" for number in range(count)]


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_a_chunk_is_one_call_in_one_transaction(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str
) -> None:
    app = Application(jmsql_factory)
    calls: list[tuple[int, int]] = []

    if kind == "threads":

        @app.listener("events", chunk=100)
        def store_all(texts: list[str], messages: list[Message], rows: sqlalchemy.Connection) -> None:
            assert [message.get_body(str) for message in messages] == texts
            calls.append((len(texts), rows.scalar(sqlalchemy.text("select txid_current()"))))
            store(rows, texts)

    else:

        @app.listener("events", chunk=100)
        async def await_all(texts: list[str], rows: AsyncConnection) -> None:
            calls.append((len(texts), await rows.scalar(sqlalchemy.text("select txid_current()"))))
            await rows.execute(INSERTION, [{"text": text} for text in texts])

    send(jmsql_factory, "events", *numbered(250))
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads that could take a part of a chunk do
    try:
        async with app.running():
            assert await handled(database, 250) == numbered(250)
    finally:
        sys.setswitchinterval(usual)
    assert [count for count, _ in calls] == [100, 100, 50]
    assert len({transaction for _, transaction in calls}) == 3


async def test_a_chunk_of_large_messages_takes_no_more_than_fit_into_its_bytes(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    chunks: list[list[str]] = []

    @app.listener("events", chunk=20, concurrency=1)
    def note(texts: list[str]) -> None:
        chunks.append([text[:3] for text in texts])

    send(jmsql_factory, "events", *(text + " " * 3 * 1024 * 1024 for text in numbered(12)))
    async with app.running():
        await until(lambda: database.queued() == 0)
    assert [text for chunk in chunks for text in chunk] == numbered(12)
    assert max(map(len, chunks)) == 5


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_messages_that_fail_count_and_their_neighbours_do_not(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str
) -> None:
    app = Application(jmsql_factory)
    deliveries: list[tuple[str, int]] = []

    def note(messages: list[Message]) -> list[str]:
        texts = [message.get_body(str) or "" for message in messages]
        if bad := {"017", "081"}.intersection(texts):
            if len(texts) == 1:
                deliveries.append((texts[0], messages[0].delivery_count or 0))
            raise RuntimeError(f"cannot handle {bad}")
        deliveries.extend((text, message.delivery_count or 0) for text, message in zip(texts, messages, strict=True))
        return texts

    if kind == "threads":

        @app.listener("events", chunk=100, redelivery=AGAIN)
        def store_all(messages: list[Message], rows: sqlalchemy.Connection) -> None:
            store(rows, [message.get_body(str) or "" for message in messages])
            note(messages)

    else:

        @app.listener("events", chunk=100, redelivery=AGAIN)
        async def await_all(messages: list[Message], rows: AsyncConnection) -> None:
            await rows.execute(INSERTION, [{"text": message.get_body(str)} for message in messages])
            note(messages)

    send(jmsql_factory, "events", *numbered(100))
    async with app.running():
        await until(lambda: sorted(dead(jmsql_factory)) == ["017", "081"])
    good = [text for text in numbered(100) if text not in {"017", "081"}]
    assert [text for text, _ in database.handled()] == good
    assert Counter(deliveries) == Counter(
        [(text, 1) for text in good] + [(text, number) for text in ("017", "081") for number in (1, 2, 3)]
    )


async def test_a_message_that_has_failed_is_a_chunk_of_its_own(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    again: list[int] = []

    @app.listener("events", chunk=10, redelivery=AGAIN)
    def store_all(messages: list[Message], rows: sqlalchemy.Connection) -> None:
        if any(message.jms_redelivered for message in messages):
            again.append(len(messages))
        elif len(messages) < 10 or messages[0].delivery_count == 1:
            raise RuntimeError("each first delivery fails")
        store(rows, [message.get_body(str) or "" for message in messages])

    send(jmsql_factory, "events", *numbered(10))
    async with app.running():
        assert await handled(database, 10) == numbered(10)
    assert again == [1] * 10


async def test_claims_are_released_if_the_look_for_failed_deliveries_fails(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Application(jmsql_factory)
    failures: list[str] = []
    have_failed = Redelivery.have_failed

    @app.listener("events", chunk=10, redelivery=AGAIN)
    def fail_once(texts: list[str], rows: sqlalchemy.Connection) -> None:
        if not failures:
            failures.append("call")
            raise ValueError(texts)
        store(rows, texts)

    def fail_to_look_once(redelivery: Redelivery, *arguments: Any) -> list[bool]:
        if failures == ["call"]:
            failures.append("look")
            raise jmsql.JMSException("no lock was granted within the time limit", "55P03")
        return have_failed(redelivery, *arguments)

    monkeypatch.setattr(Redelivery, "have_failed", fail_to_look_once)
    send(jmsql_factory, "events", "again")
    async with app.running():
        assert await handled(database, 1) == ["again"]
    assert failures == ["call", "look"]


async def test_a_message_that_is_named_or_unreadable_leaves_its_chunk(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    calls: list[list[int]] = []
    told: list[tuple[str | None, str]] = []

    @app.listener("numbers", chunk=10, on_dead_letter=lambda message, _: told.append((message.get_body(str), "told")))
    def store_all(bodies: list[int], rows: sqlalchemy.Connection) -> None:
        calls.append(bodies)
        store(rows, list(map(str, bodies)))
        if 7 in bodies:
            raise Reject("an unlucky one", index=bodies.index(7))

    send(jmsql_factory, "numbers", "1", "2", "no number", "4", "7", "9")
    async with app.running():
        await until(lambda: len(database.handled()) == 4 and len(told) == 2)
    assert calls == [[1, 2, 4, 7, 9], [1, 2, 4, 9]]
    assert told == [("no number", "told"), ("7", "told")]
    reasons = database.rows(
        "select properties ->> 'JMS_jmsql_DeadLetterReason' from jmsql_internal.message order by sequence"
    )
    assert dead(jmsql_factory) == ["no number", "7"], reasons


async def test_a_commit_that_fails_halves_the_chunk(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    app = Application(jmsql_factory)
    database.rows("alter table handled add constraint once unique (text) deferrable initially deferred")
    database.rows("insert into handled (text) values ('004')")

    @app.listener("events", chunk=10, redelivery=RedeliveryPolicy(maximum_deliveries=2))
    def store_all(texts: list[str], rows: orm.Session) -> None:
        rows.execute(INSERTION, [{"text": text} for text in texts])

    send(jmsql_factory, "events", *numbered(10))
    async with app.running():
        await until(lambda: dead(jmsql_factory) == ["004"])
    assert [text for text, _ in database.handled()] == numbered(10)


async def test_messages_that_are_put_off_come_again_as_a_chunk(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    calls: list[list[int]] = []

    @app.listener("events", chunk=10)
    async def await_all(messages: list[Message], rows: psycopg.AsyncConnection[Any]) -> None:
        calls.append([message.delivery_count or 0 for message in messages])
        if len(calls) < 3:
            raise RetryAfter(0.01, "the service is closed")
        async with rows.cursor() as cursor:
            await cursor.executemany(
                "insert into handled (text) values (%s)", [[message.get_body(str)] for message in messages]
            )

    send(jmsql_factory, "events", *numbered(5))
    async with app.running():
        assert await handled(database, 5) == numbered(5)
    assert calls == [[1] * 5, [2] * 5, [3] * 5]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_groups_keep_their_order(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, concurrency: int
) -> None:
    app = Application(jmsql_factory)
    order: list[str] = []
    failures = Counter[str]()
    lock = threading.Lock()

    @app.listener("events", chunk=8, concurrency=concurrency, redelivery=AGAIN)
    def store_all(call_texts: list[str], rows: sqlalchemy.Connection) -> None:
        store(rows, call_texts)
        with lock:
            for bad in ("a 3", "b 5", "a 11"):
                if bad in call_texts and failures[bad] < 2:
                    failures[bad] += len(call_texts) == 1
                    raise RuntimeError(bad)
            order.extend(call_texts)  # the commit deletes claimed rows, which nothing prevents here

    with jmsql_factory.create_context() as context:
        producer = context.create_producer()
        for number in range(12):
            for group in "abc":
                producer.set_property("JMSXGroupID", group).send(Queue("events"), f"{group} {number}")
    async with app.running():
        await handled(database, 36)
    for group in "abc":
        assert [text for text in order if text[0] == group] == [f"{group} {number}" for number in range(12)]
    assert len(database.handled()) == 36


async def test_a_group_keeps_its_order_though_a_release_fails_at_first(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Application(jmsql_factory)
    calls: list[list[str]] = []
    refused: list[str] = []
    failures = Redelivery.failures

    @app.listener("events", chunk=8)
    def store_all(texts: list[str], rows: sqlalchemy.Connection) -> None:
        calls.append(texts)
        if len(calls) == 1:
            raise ValueError("one of them")
        if len(calls) == 2:
            raise RetryAfter(0.01)
        store(rows, texts)

    def refuse_once(redelivery: Redelivery, *arguments: Any) -> list[Release]:
        if len(calls) == 2 and not refused:
            refused.append("release")
            raise jmsql.JMSException("no lock was granted within the time limit", "55P03")
        return failures(redelivery, *arguments)

    monkeypatch.setattr(Redelivery, "failures", refuse_once)
    with jmsql_factory.create_context() as context:
        for text in numbered(2):
            context.create_producer().set_property("JMSXGroupID", "g").send(Queue("events"), text)
    async with app.running():
        assert await handled(database, 2) == numbered(2)
    assert refused == ["release"]
    assert [text for texts in calls[1:] for text in texts] == ["000", "000", "001"]


async def test_chunks_of_several_tasks_double_nothing(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)

    @app.listener("events", chunk=20, concurrency=4, chunk_wait=0.05, redelivery=AGAIN)
    def store_all(messages: list[Message], rows: sqlalchemy.Connection) -> None:
        texts = [message.get_body(str) or "" for message in messages]
        store(rows, texts)
        if any(
            text.endswith("7") and message.delivery_count == 1 for text, message in zip(texts, messages, strict=True)
        ):
            raise RuntimeError("sevens fail once")

    async with app.running():
        for start in range(0, 300, 50):
            await asyncio.to_thread(send, jmsql_factory, "events", *numbered(300)[start : start + 50])
        assert await handled(database, 300) == numbered(300)


async def test_more_tasks_than_connections_handle_chunks(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jms.ConnectionFactory(jmsql_factory.url, max_connections=2))

    @app.listener("events", chunk=2, concurrency=8)
    async def await_all(texts: list[str], rows: psycopg.AsyncConnection[Any]) -> None:
        async with rows.cursor() as cursor:
            await cursor.executemany("insert into handled (text) values (%s)", [[text] for text in texts])

    send(jmsql_factory, "events", *numbered(100))
    async with app.running():
        assert await handled(database, 100) == numbered(100)


KILLED = """
@app.listener("events", chunk=10, chunk_wait=1)
def store_all(messages: list[jmsql.Message], database: sqlalchemy.Connection) -> None:
    for message in messages:
        store(database, message)
    if any(message.get_body(str) == "poison" and message.delivery_count < 3 for message in messages):
        os.kill(os.getpid(), 9)
"""


def test_a_process_that_dies_with_a_chunk_loses_and_doubles_nothing(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    worker = start_worker(KILLED)
    worker.wait_until_ready()
    send(jmsql_factory, "events", *numbered(4), "poison", "after")
    database.wait_until_handled(6)
    counts = dict(database.handled())
    assert sorted(counts) == [*numbered(4), "after", "poison"]
    assert counts.pop("poison") == 3
    assert set(counts.values()) == {2}, "each is alone after the first death, which any of them may have caused"
    assert len(database.handled()) == 6


async def test_a_lost_connection_loses_and_doubles_nothing(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    calls: list[int] = []

    @app.listener("events", chunk=10)
    def store_all(texts: list[str], rows: sqlalchemy.Connection) -> None:
        calls.append(len(texts))
        store(rows, texts)
        if len(calls) == 1:
            database.rows(f"select pg_terminate_backend({rows.scalar(sqlalchemy.text('select pg_backend_pid()'))})")

    send(jmsql_factory, "events", *numbered(10))
    async with app.running():
        assert await handled(database, 10) == numbered(10)
    assert calls == [10, 5, 5]


async def test_a_cancelled_message_leaves_its_chunk(jmsql_factory: ConnectionFactory, database: WorkerDatabase) -> None:
    app = Application(jmsql_factory)
    has_begun, may_end = threading.Event(), threading.Event()
    patience: list[object] = []

    @app.listener("events", chunk=4)
    def store_all(texts: list[str], rows: sqlalchemy.Connection, call: HandlerCall) -> None:
        patience.append(vars(call)["_cancel_timeout"])
        has_begun.set()
        may_end.wait(PATIENCE)
        store(rows, texts)

    with jmsql_factory.create_context() as context:
        ids = [jmsql.send(context, "events", text) for text in numbered(4)]
    async with app.running(timings=WorkerTimings(cancel_timeout=60.0)):
        await until(has_begun.is_set)
        with Administration(jmsql_factory.url) as administration:
            administration.cancel(ids[2])
        may_end.set()
        assert await handled(database, 3) == ["000", "001", "003"]
    assert dead(jmsql_factory) == []
    assert set(patience) == {60.0}


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_a_chunk_that_is_cut_off_comes_again_and_does_not_count(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str
) -> None:
    calls: list[list[int | None]] = []
    has_begun = threading.Event()

    def note(messages: list[Message]) -> list[dict[str, object]]:
        calls.append([message.delivery_count for message in messages])
        has_begun.set()
        return [{"text": message.get_body(str)} for message in messages]

    app = Application(jmsql_factory)
    sleep = sqlalchemy.text("select pg_sleep(:seconds)")
    if kind == "threads":

        @app.listener("events", chunk=4)
        def store_all(messages: list[Message], rows: sqlalchemy.Connection) -> None:
            rows.execute(INSERTION, note(messages))
            rows.execute(sleep, {"seconds": 600 if len(calls) == 1 else 0})

    else:

        @app.listener("events", chunk=4)
        async def await_all(messages: list[Message], rows: AsyncConnection) -> None:
            await rows.execute(INSERTION, note(messages))
            await rows.execute(sleep, {"seconds": 600 if len(calls) == 1 else 0})

    send(jmsql_factory, "events", *numbered(4))
    async with app.running(drain_timeout=0.1):
        await until(has_begun.is_set)
    async with app.running():
        assert await handled(database, 4) == numbered(4)
    assert calls == [[1] * 4, [2] * 4], "an interruption is no failure: each would come alone"


@pytest.mark.parametrize("kind", ["statement", "statements", "python", "asyncio"])
async def test_a_call_that_is_cut_off_counts_as_interrupted_once(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str
) -> None:
    """A chunk, the half of a chunk with the half that waits, a group, members of a batch, and a single message."""
    app = Application(jmsql_factory)
    chunks, singles = ("chunk", "halves", "group", "batch"), ("single", "letter")
    begun: set[str] = set()
    threads: set[threading.Thread] = set()
    may_end = threading.Event()

    def begin(call: HandlerCall) -> None:
        if kind != "asyncio":
            threads.add(threading.current_thread())
        queue = call.message.jms_destination
        assert isinstance(queue, Queue)
        if queue.name == "halves" and len(call.messages) == 4:
            raise RuntimeError("the halves are called")
        begun.add(queue.name)

    for name in (*chunks, *singles):
        chunk, transacted = 4 if name in chunks else None, name != "letter"
        if kind == "asyncio":

            @app.listener(name, chunk=chunk, transacted=transacted)
            async def handle_awaited(call: HandlerCall) -> None:
                begin(call)
                await asyncio.sleep(PATIENCE)

        elif kind != "python" and transacted:

            @app.listener(name, chunk=chunk)
            def handle_in_statement(call: HandlerCall, rows: sqlalchemy.Connection) -> None:
                begin(call)
                while True:
                    rows.execute(sqlalchemy.text(f"select pg_sleep({600 if kind == 'statement' else 0})"))

        else:

            @app.listener(name, chunk=chunk, transacted=transacted)
            def handle(call: HandlerCall) -> None:
                begin(call)
                may_end.wait(PATIENCE)

    def ends() -> list[tuple[Any, ...]]:
        return database.rows(
            "select delivery_count, retry_count, interruption_count, count(*)"
            " from jmsql_internal.delivery natural left join jmsql_internal.delivery_outcome group by 1, 2, 3"
        )

    with jmsql_factory.create_context() as context:
        grouped = context.create_producer().set_property("JMSXGroupID", "g")
        with jmsql.batch(context, "import") as batch:
            for text in numbered(4):
                context.create_producer().send(Queue("chunk"), text).send(Queue("halves"), text)
                grouped.send(Queue("group"), text)
                batch.send("batch", text)
        for name in singles:
            jmsql.send(context, name, "000")
    async with app.running(drain_timeout=0):
        await until(lambda: begun == {*chunks, *singles})
    assert ends() == [(1, 1, 1, 18)]
    may_end.set()
    await until(lambda: not any(thread.is_alive() for thread in threads))
    assert ends() == [(1, 1, 1, 18)], "a thread that goes on afterwards changes nothing"


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_the_end_of_a_worker_does_not_wait_for_a_chunk_to_fill(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str
) -> None:
    app = Application(jmsql_factory)
    calls: list[int] = []

    if kind == "threads":

        @app.listener("events", chunk=10, chunk_wait=timedelta(hours=1))
        def store_all(texts: list[str], rows: sqlalchemy.Connection) -> None:
            calls.append(len(texts))
            store(rows, texts)

    else:

        @app.listener("events", chunk=10, chunk_wait=timedelta(hours=1))
        async def await_all(texts: list[str], rows: AsyncConnection) -> None:
            calls.append(len(texts))
            await rows.execute(INSERTION, [{"text": text} for text in texts])

    send(jmsql_factory, "events", *numbered(3))
    async with app.running():
        await until(lambda: database.rows("select count(*) from jmsql_internal.delivery")[0][0] == 3)
        await asyncio.to_thread(send, jmsql_factory, "events", "later")
        await until(lambda: database.rows("select count(*) from jmsql_internal.delivery")[0][0] == 4)
    assert calls == [4]
    assert await handled(database, 4) == [*numbered(3), "later"]


async def test_a_message_that_expires_while_its_chunk_waits_is_not_delivered(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)

    @app.listener("events", chunk=10, chunk_wait=1)
    def store_all(texts: list[str], rows: sqlalchemy.Connection) -> None:
        store(rows, texts)

    async with app.running():
        with jmsql_factory.create_context() as context:
            producer = context.create_producer()
            producer.send(Queue("events"), "stays")
            producer.set_time_to_live(0.2).send(Queue("events"), "expires")
        assert await handled(database, 1) == ["stays"]


async def test_a_durable_subscription_has_chunks_by_priority(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    calls: list[list[str]] = []

    @app.listener(Topic("news"), subscription="desk", selector="JMSPriority > 2", chunk=3)
    def store_all(texts: list[str], rows: sqlalchemy.Connection) -> None:
        calls.append(texts)
        store(rows, texts)

    async with app.running():
        pass  # which makes the subscription
    with jmsql_factory.create_context() as context:
        for text, priority in (("one", 4), ("two", 1), ("three", 4), ("four", 9), ("five", 4)):
            context.create_producer().set_priority(priority).send(Topic("news"), text)
    async with app.running():
        await handled(database, 4)
    assert calls == [["four", "one", "three"], ["five"]]


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_replies_are_a_list(jmsql_factory: ConnectionFactory, database: WorkerDatabase, kind: str) -> None:
    app = Application(jmsql_factory)
    calls: list[int] = []

    def answers(texts: list[str]) -> list[str | None]:
        calls.append(len(texts))
        assert "bad" not in texts
        return [None if text == "silent" else text.upper() for text in texts][: 1 if len(calls) == 1 else None]

    if kind == "threads":

        @app.listener("questions", chunk=10, redelivery=RedeliveryPolicy(maximum_deliveries=2))
        def answer(texts: list[str]) -> list[str | None]:
            return answers(texts)

    else:

        @app.listener("questions", chunk=10, redelivery=RedeliveryPolicy(maximum_deliveries=2))
        async def answer_awaited(texts: list[str]) -> list[str | None]:
            return answers(texts)

    with jmsql_factory.create_context() as context:
        producer = context.create_producer().set_jms_reply_to(Queue("answers"))
        for text in ("first", "silent", "bad", "second"):
            producer.set_jms_correlation_id(f"of {text}").send(Queue("questions"), text)
    async with app.running():
        await until(lambda: dead(jmsql_factory) == ["bad"])
        await until(lambda: database.queued() == 3)
    with jmsql_factory.create_context() as context, context.create_browser(Queue("answers")) as browser:
        found = [(message.get_body(str), message.jms_correlation_id) for message in browser]
    assert found == [("FIRST", "of first"), ("SECOND", "of second")]


async def test_a_function_that_does_not_end_takes_its_chunk_with_it(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    may_end = threading.Event()

    @app.listener("events", chunk=10, timeout=2.0, redelivery=RedeliveryPolicy(delay=0.01))
    def store_all(messages: list[Message], rows: sqlalchemy.Connection) -> None:
        if len(messages) > 1:
            while not may_end.is_set():
                try:
                    may_end.wait(PATIENCE)
                except TimeoutError:
                    continue
        rows.execute(
            sqlalchemy.text("insert into handled (text, delivery_count) values (:text, :count)"),
            [{"text": message.get_body(str), "count": message.delivery_count} for message in messages],
        )

    send(jmsql_factory, "events", *numbered(3))
    async with app.running(timings=WorkerTimings(cancel_timeout=0.1)):
        await until(lambda: len(database.handled()) == 3 and database.queued() == 0)
        may_end.set()
    assert database.handled() == [(text, 2) for text in numbered(3)]


async def test_a_coroutine_that_takes_too_long_is_halved(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)

    @app.listener("events", chunk=4, timeout=1, redelivery=RedeliveryPolicy(maximum_deliveries=2))
    async def await_all(texts: list[str], rows: AsyncConnection) -> None:
        await rows.execute(INSERTION, [{"text": text} for text in texts])
        if "002" in texts:
            await asyncio.sleep(PATIENCE)

    send(jmsql_factory, "events", *numbered(4))
    async with app.running():
        await until(lambda: dead(jmsql_factory) == ["002"])
        await until(lambda: database.queued() == 1)
    assert [text for text, _ in database.handled()] == ["000", "001", "003"]


async def test_calls_are_surrounded_and_messages_counted(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[int, str | None]] = []
    committed: list[int] = []

    @contextmanager
    def around(call: HandlerCall) -> Iterator[None]:
        seen.append((len(call.messages), call.message.get_body(str)))
        call.after_commit(lambda: committed.append(len(call.messages)))
        yield

    app = Application(jmsql_factory, around=around, provides=())
    registry = CollectorRegistry()

    @app.listener("events", chunk=4, redelivery=RedeliveryPolicy(maximum_deliveries=2))
    def store_all(texts: list[str], rows: sqlalchemy.Connection) -> None:
        store(rows, texts)
        if "003" in texts:
            raise ValueError("it is not handled")

    def value(name: str, **labels: str) -> float | None:
        listener = app.listeners[0].name
        return registry.get_sample_value(f"jmsql_worker_{name}", {"listener": listener, **labels})

    send(jmsql_factory, "events", *numbered(4))
    with caplog.at_level(logging.INFO, "jmsql.worker"):
        async with app.running(registry=registry):
            await until(lambda: dead(jmsql_factory) == ["003"])
            await until(lambda: value("messages_total", outcome="failed") == 2)
            assert value("messages_total", outcome="handled") == 3
            await until(lambda: value("handler_seconds_count") == 6)
    assert seen == [(4, "000"), (2, "000"), (2, "002"), (1, "002"), (1, "003"), (1, "003")]
    assert committed == [2, 1]
    assert len(re.findall("failed with a chunk of 4 messages, and is called again with its halves", caplog.text)) == 1
