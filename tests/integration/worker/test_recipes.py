"""The programs of docs/recipes.md: with a worker that is killed in their middle, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from jmsql.testing import wait_for
from jmsql.worker import Application
from tests.documentation import Block, blocks, run
from tests.integration.worker.conftest import KILLED_BEFORE_STEP, PATIENCE, StartWorker, WorkerDatabase

PAGE = "docs/recipes.md"
SHOWN_ENGINE_URL = "postgresql+psycopg://shop@db/shop"
TABLES = "published, booking, invoice, letter, album"
KILLED = {"watermark": 0, "retouch": 1, "bind_album": 0, "charge": 1, "send_invoices": 0, "take_turn": 1}
"""Handlers in whose first call the worker's process dies: before its commit (0), or after that."""

APPLICATION = (
    KILLED_BEFORE_STEP
    + """
from contextlib import contextmanager
from jmsql.worker import Router


@contextmanager
def kill_once(call):
    name = call.listener.name.rpartition(".")[2]
    killed = Path(f"killed {{name}}")
    if name in {killed} and not killed.exists():
        killed.touch()
        steps.left = {killed}[name]
    yield


app = Application(around=kill_once)
for text in {texts}:
    names = {{"__name__": "recipe"}}
    exec(text, names)
    app.include(names["app"])
"""
)


@pytest.fixture
def recipes(
    jmsql_clean_url: str, database: WorkerDatabase, monkeypatch: pytest.MonkeyPatch
) -> Any:  # the programs, with the address of the test's database
    """The programs of the page, and their tables in the database."""
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    for block in blocks(PAGE, "sql"):
        database.rows(block.text)
    shown = jmsql_clean_url.replace("postgresql:", "postgresql+psycopg:", 1)
    yield [program._replace(text=program.text.replace(SHOWN_ENGINE_URL, shown)) for program in blocks(PAGE, "python")]
    database.rows(f"drop table {TABLES}")


def started(recipe: Block) -> dict[str, Any]:
    """Run a program, which sends its messages, and return its names."""
    names = run(recipe, {})
    if "engine" in names:
        names["engine"].dispose()
    return names


def test_a_worker_that_is_killed_in_the_middle_loses_and_doubles_nothing(
    start_worker: StartWorker, database: WorkerDatabase, recipes: list[Block]
) -> None:
    database.rows("insert into invoice select generate_series(1, 250)")
    for recipe in recipes:
        started(recipe)
    texts = [recipe.text.replace("Application", "Router") for recipe in recipes]
    restarts = ("--timing", "minimum_restart_delay=0.01", "--timing", "maximum_restart_delay=0.01")
    worker = start_worker(APPLICATION.format(killed=KILLED, texts=texts), *restarts)
    waiting = "select count(*) from jmsql.messages where queue <> 'DLQ'"
    wait_for(lambda: database.rows(waiting) == [(0,)], 2 * PATIENCE)
    assert worker.stop() == 0
    assert {path.name for path in worker.directory.glob("killed *")} == {f"killed {name}" for name in KILLED}
    assert worker.log.count("was killed by SIGKILL") > 1  # of two handlers that die at once, it is one process
    assert database.rows("select * from published order by name") == [
        *((f"holidays {number}", 800, "retouched") for number in range(1, 5)),
        ("kite.png", 800, "(c) kites"),
    ]
    assert database.rows("select * from album") == [("holidays", 9, 1)]
    assert database.rows("select trip, step, state from booking order by 1 desc, 2") == [
        *((1, step, "booked") for step in ("flight", "hotel", "payment")),
        *((-2, step, "cancelled") for step in ("flight", "hotel")),
    ]
    parts = "select count(*)::integer from invoice where sent group by xmin::text order by min(id)"
    assert database.rows(parts) == [(100,), (100,), (50,)]
    letters = Counter(database.rows("select tenant, number from letter where written"))
    expected = [("large", number) for number in range(1, 101)] + [("small", 1)]
    assert letters == Counter(2 * expected), "one by each of the two recipes"


def program_with(recipes: list[Block], name: str) -> dict[str, Any]:
    [found] = [recipe for recipe in recipes if f"def {name}(" in recipe.text]
    return started(found)


@pytest.mark.parametrize("name", ["write", "take_turn"])
async def test_the_message_of_a_tenant_does_not_wait_for_the_ten_thousand_of_another(
    database: WorkerDatabase, recipes: list[Block], jmsql_clean_url: str, name: str
) -> None:
    names = program_with(recipes, name)
    application: Application = names["app"]
    database.rows("truncate jmsql_internal.message")
    database.rows("truncate letter")
    send = names[name].send
    with psycopg.connect(jmsql_clean_url) as connection:
        if name == "write":
            backlog = [{"tenant": "large", "number": number, "written": True} for number in range(10_000)]
            names[name].send_many(connection, backlog, group="large")
            send(connection, {"tenant": "small", "number": 1}, group="small")
        else:
            connection.execute("insert into letter select 'large', generate_series(1, 10000), false")
            connection.execute("insert into letter values ('small', 1, false)")
            for tenant in ("large", "small"):
                send(connection, tenant, group=tenant, coalesce=tenant)
    written = "select count(*) from letter where tenant = '{}' and written"
    async with application.running():
        await asyncio.to_thread(wait_for, lambda: database.rows(written.format("small")) == [(1,)], PATIENCE)
        ((before,),) = database.rows(written.format("large"))
    assert before < 1000
    database.rows("truncate jmsql_internal.message, jmsql_internal.delivery cascade")
