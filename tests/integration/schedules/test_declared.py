"""Schedules that an application declares."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql import ConnectionFactory, IllegalStateException, JMSException, Queue
from jmsql import asyncio as jms
from jmsql.admin import Administration
from jmsql.asyncio.admin import Administration as AsyncAdministration
from jmsql.testing import wait_for
from jmsql.worker import Application, Router
from tests.integration.worker.conftest import PATIENCE, StartWorker
from tests.integration.worker.test_draining import WAITING, wait_until_begun
from tests.integration.worker.test_handlers import send

SetDue = Callable[[str, str], None]


async def test_handlers_are_called_at_their_ticks(
    jmsql_factory: ConnectionFactory, administration: Administration
) -> None:
    app = Application(jmsql_factory)
    loop = asyncio.get_running_loop()
    called: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    @app.periodic(timedelta(seconds=1), name="each second")
    async def awaited() -> None:
        await called.put(("each second",))

    @app.periodic("* * * * * *", name="in a thread", body={"kind": 5})
    @app.listener("reports")
    def blocking(body: dict[str, int], message: jmsql.Message) -> None:
        event = ("in a thread", body["kind"], message.get_string_property("JMS_jmsql_Schedule"))
        loop.call_soon_threadsafe(called.put_nowait, event)

    assert [listener.destination for listener in app.listeners] == [Queue("each second"), Queue("reports")]
    seen: set[tuple[Any, ...]] = set()
    async with app.running(), asyncio.timeout(60.0):
        while len(seen) < 2:
            seen.add(await called.get())
    assert seen == {("each second",), ("in a thread", 5, "in a thread")}
    assert [(each.name, each.declared) for each in administration.schedules()] == [
        ("each second", True),
        ("in a thread", True),
    ]


async def test_a_worker_updates_changed_schedules_and_deletes_none(
    jmsql_factory: ConnectionFactory, administration: Administration, sql: psycopg.Connection
) -> None:
    before, after = Application(jmsql_factory), Application(jmsql_factory)
    before.schedule("kept", "@yearly", "reports", "go", time_zone="Europe/Berlin")
    before.schedule("left out", "@yearly", "reports", "go")
    after.schedule("kept", "@yearly", "reports", "changed")
    async with before.running():
        pass
    administration.pause_schedule("left out")
    administration.pause_schedule("kept")
    revisions = "select name, revision from jmsql_internal.schedule order by name"
    declared = sql.execute(revisions).fetchall()
    async with before.running():
        assert sql.execute(revisions).fetchall() == declared
    async with after.running():
        pass
    kept, left_out = administration.schedules()
    assert (kept.time_zone, kept.paused, left_out.time_zone, left_out.paused) == ("UTC", True, "UTC", True)
    administration.send_scheduled("kept")
    assert sql.execute("select body from jmsql.messages").fetchall() == [("changed",)]
    with pytest.raises(IllegalStateException, match="declared by an application"):
        administration.set_schedule("kept", "@daily", "reports")


async def test_administration_is_awaited_under_asyncio(jmsql_asyncio_factory: jms.ConnectionFactory) -> None:
    async with AsyncAdministration(jmsql_asyncio_factory) as administration:
        await administration.set_schedule("report", "@daily", "reports", "go")
        await administration.pause_schedule("report")
        [found] = await administration.schedules()
        assert (found.paused, found.next_at, found.declared) == (True, None, False)
        await administration.resume_schedule("report")
        message_id = await administration.send_scheduled("report")
        assert (await administration.schedule("report")).last_message_id == message_id
        await administration.delete_schedule("report")
        assert await administration.schedules() == []


async def test_a_worker_says_that_the_schema_is_too_old_for_its_schedules(
    jmsql_factory: ConnectionFactory, sql: psycopg.Connection
) -> None:
    app = Application(jmsql_factory)
    app.schedule("report", "@daily", "reports")
    sql.execute("alter table jmsql_internal.schedule rename to schedule_of_later")
    try:
        with pytest.raises(JMSException, match="run `jmsql migrate`"):
            async with app.running():
                pass
    finally:
        sql.execute("alter table jmsql_internal.schedule_of_later rename to schedule")


def test_schedules_of_a_router_have_the_prefix_of_the_application() -> None:
    router, app = Router(), Application()
    router.schedule("early", "@daily", "reports")
    app.include(router, prefix="shop.")

    @router.periodic("@hourly", name="hourly")
    def count() -> None: ...

    router.schedule("late", "@daily", count)
    found = {each.name: each.destination.name for each in app.schedules}
    assert found == {"shop.early": "shop.reports", "shop.hourly": "shop.hourly", "shop.late": "shop.hourly"}
    assert [str(each.destination.name) for each in app.listeners] == ["shop.hourly"]
    other = Router()
    other.schedule("early", "@daily", "reports")
    with pytest.raises(ValueError, match=r"schedule 'shop\.early' already"):
        app.include(other, prefix="shop.")


def test_an_impossible_declaration_is_refused() -> None:
    app = Application()
    with pytest.raises(TypeError, match="is no handler"):
        app.schedule("report", "@daily", lambda: None)  # type: ignore[arg-type]
    app.schedule("report", "@daily", "reports")
    with pytest.raises(ValueError, match="a schedule 'report' already"):
        app.schedule("report", "@daily", "others")
    with pytest.raises(ValueError, match="Cannot read"):
        app.periodic("every day")(lambda: None)
    with pytest.raises(ValueError, match="goes with its connection"):
        app.schedule("temporary", "@daily", jmsql.TemporaryQueue("name"))


def test_processes_of_a_worker_send_due_messages(
    start_worker: StartWorker, set_due: SetDue, administration: Administration
) -> None:
    worker = start_worker(
        """
@app.listener("reports")
def report(message):
    Path("reported").write_text(message.get_body(str))


app.schedule("report", "@yearly", report, "go")
""",
        "--processes",
        "2",
    )
    worker.wait_until_ready()
    set_due("report", "0")
    wait_for((worker.directory / "reported").exists, PATIENCE)
    assert administration.schedule("report").sent == 1
    assert worker.stop() == 0


@pytest.mark.parametrize("limit", [(), ("--max-messages", "1")], ids=["killed", "retired"])
@pytest.mark.usefixtures("fresh_processes")
def test_a_replaced_process_leaves_schedules_as_a_newer_release_has_declared_them(
    start_worker: StartWorker, jmsql_factory: ConnectionFactory, administration: Administration, limit: tuple[str, ...]
) -> None:
    newer = Application(jmsql_factory)
    newer.schedule("report", "@yearly", "reports", time_zone="Europe/Berlin")
    worker = start_worker(f'{WAITING}app.schedule("report", "@daily", "reports")\n', *limit)
    worker.wait_until_ready()
    assert administration.schedule("report").cron == "@daily"
    administration.declare_schedules(newer.schedules)
    send(jmsql_factory, "orders", "a", "b")
    child = wait_until_begun(worker)
    if not limit:
        os.kill(child, signal.SIGKILL)
    wait_for(lambda: len({process for _, process in worker.began()}) == 2, PATIENCE)
    report = administration.schedule("report")
    assert (report.cron, report.time_zone) == ("@yearly", "Europe/Berlin")
    worker.give_leave()
    assert worker.stop() == 0
