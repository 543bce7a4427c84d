"""Handlers that report their progress, and that ask for more time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
from jmsql import ConnectionFactory, RedeliveryPolicy
from jmsql.client._sync.link.opening import open_runner
from jmsql.store.administration.running import running
from jmsql.values.clock import monotonic
from jmsql.worker import Application, HandlerCall
from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind
from tests.integration.worker.conftest import WorkerDatabase
from tests.integration.worker.test_handlers import send
from tests.integration.worker.test_running import Events, until

SHOWN = "select destination, subscription, message_id, progress, note, claimed_by is not null from jmsql.progress"

COUNTED = (
    "select acknowledged, rolled_back, calls, waited, handled from jmsql_internal.destination_counters t "
    "join jmsql_internal.queue q on q.queue_id = t.destination_id where q.name = 'orders'"
)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("transacted", [False, True])
async def test_the_last_report_is_shown_until_the_message_ends_and_again_by_its_next_delivery(
    is_async: bool, transacted: bool, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    events, leave, left = Events(), threading.Event(), asyncio.Event()
    app = Application(jmsql_factory)
    options: Any = {"transacted": transacted, "redelivery": RedeliveryPolicy(delay=0.0)}
    calls: list[HandlerCall] = []

    def work(call: HandlerCall) -> None:
        calls.append(call)
        if call.delivery_count == 1:
            call.progress(0.25, "rows " + "x" * 1000)
            events.tell(str(call.message_id))

    def fail(call: HandlerCall) -> None:
        if call.delivery_count == 1:
            raise ValueError("no")

    if is_async:

        @app.listener("orders", **options)
        async def handle_async(call: HandlerCall) -> None:
            await asyncio.to_thread(work, call)
            await left.wait()
            fail(call)

    else:

        @app.listener("orders", **options)
        def handle(body: str, call: HandlerCall) -> None:
            work(call)
            leave.wait()
            fail(call)

    async with app.running():
        sent_at = monotonic()
        send(jmsql_factory, "orders", "a")
        message_id = await events.next()
        began_before = monotonic()
        await until(lambda: bool(database.rows(SHOWN)))
        assert database.rows(SHOWN) == [("orders", None, message_id, 0.25, "rows " + "x" * 195, True)]
        with jmsql_factory.create_connection() as client:
            result = jmsql.result(client, message_id)
            assert (result.state, result.progress, result.note) == ("running", 0.25, "rows " + "x" * 195)
        for number in range(100_000):
            calls[0].progress(number / 100_000)
        await until(lambda: database.rows("select progress, note from jmsql.progress") == [(0.99999, "")])
        held = monotonic() - began_before
        leave.set()
        left.set()
        await until(lambda: database.queued() == 0)
        assert len(calls) == 2
        # Both ended calls are counted, as long as the test has held the first, and no longer than all of it lasted.
        await until(lambda: [row[:3] for row in database.rows(COUNTED)] == [(1, 1, 2)])
        [(_, _, _, waited, handled)] = database.rows(COUNTED)
        lasted = (monotonic() - sent_at) * 1_000_000
        assert held * 1_000_000 <= handled <= lasted
        assert waited <= lasted + 1_000_000  # the server's clock is another one
        assert database.rows(SHOWN) == []
    calls[0].progress(0.5)  # a thread that has outlived the call
    for wrong, error in [(float("nan"), ValueError), (1.5, ValueError), ("1", TypeError), (True, TypeError)]:
        with pytest.raises(error, match=r"Expected a number from 0 to 1"):
            calls[0].progress(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="note"):
        calls[0].progress(1, 5)  # type: ignore[arg-type]


async def test_the_worker_of_a_role_that_may_only_receive_reports_progress(
    jmsql_clean_url: str, jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    send(jmsql_factory, "orders", "a\0b")
    with roles_of_each_kind(database.connection) as roles:
        url = sqlalchemy.make_url(jmsql_clean_url).set(username=roles["receiver"], password=PASSWORD)
        app = Application(ConnectionFactory(url.render_as_string(hide_password=False)))
        leave = asyncio.Event()

        @app.listener("orders", redelivery=RedeliveryPolicy(maximum_deliveries=None))
        async def handle(call: HandlerCall) -> None:
            call.progress(None, "rows\0")
            await leave.wait()

        async with app.running():
            await until(lambda: bool(database.rows(SHOWN)))
            with open_runner(jmsql_clean_url, "jmsql") as runner:
                assert [each.note for each in runner.run(running(10))] == ["rows\0"]
            leave.set()
            await until(lambda: database.queued() == 0)


async def test_a_call_that_has_ended_reports_nothing_of_the_next_message(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    app = Application(jmsql_factory)
    calls: list[HandlerCall] = []
    leave = asyncio.Event()

    @app.listener("orders", concurrency=1)
    async def handle(text: str, call: HandlerCall) -> None:
        calls.append(call)
        if text == "b":
            await leave.wait()

    @app.listener("others")
    async def handle_other(text: str, call: HandlerCall) -> None:
        call.progress(0.1)
        await leave.wait()

    async with app.running():
        send(jmsql_factory, "orders", "a", "b")
        await until(lambda: len(calls) == 2)
        calls[0].progress(0.9)
        send(jmsql_factory, "others", "c")
        await until(lambda: "others" in {row[0] for row in database.rows(SHOWN)})
        assert [row[0] for row in database.rows(SHOWN)] == ["others"]
        leave.set()


async def test_a_coroutine_function_that_asks_for_it_has_its_time_once_more(
    jmsql_factory: ConnectionFactory, database: WorkerDatabase
) -> None:
    events = Events()
    app = Application(jmsql_factory)

    @app.listener("orders", timeout=60)
    async def handle(call: HandlerCall) -> None:
        deadline = call.deadline
        assert deadline is not None
        assert deadline.limit is not None
        ends = [deadline.limit.when() or 0.0]
        for keep_alive in (call.keep_alive, lambda: asyncio.to_thread(call.keep_alive)):
            await asyncio.sleep(0.002)
            done = keep_alive()
            if done is not None:
                await done
                await asyncio.sleep(0)
            ends.append(deadline.limit.when() or 0.0)
        events.tell(f"{ends[0] < ends[1] < ends[2]}")

    async with app.running():
        send(jmsql_factory, "orders", "a")
        assert await events.next() == "True"


def test_in_a_drained_transaction_both_do_nothing(jmsql_clean_url: str) -> None:
    app = Application()

    @app.listener("orders", timeout=60)
    def handle(call: HandlerCall) -> None:
        call.progress(1.0, "done")
        call.keep_alive()

    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    with orm.Session(engine) as session:
        jmsql.send(session, "orders", "a")
        assert len(app.drain(transaction=session)) == 1
    engine.dispose()
