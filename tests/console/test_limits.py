"""Limits of listeners, and the names of listeners: on the page of a queue, on Now, in Python and in `jmsql top`."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable

import psycopg
import sqlalchemy
from typer.testing import CliRunner

import jmsql
from jmsql.admin import Administration
from jmsql.cli.application import app as command
from jmsql.testing import wait_for
from jmsql.worker import Application
from tests.console.http import Browsing
from tests.console.serving import Served
from tests.console.test_actions import send
from tests.console.test_browser import HOSTILE
from tests.console.test_pages import words

Serve = Callable[..., Served]


def test_limits_tell_who_waits_for_them_and_until_when(
    console: Browsing, serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with jmsql_factory.create_context() as context:
        for tenant in (*"aaab", HOSTILE, HOSTILE):
            jmsql.send(context, "orders", "x", properties={"tenant": tenant})
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        database.execute(
            "insert into jmsql_internal.listener_limit (queue_id, selector, rate, per, rate_by, at_most) "
            "select queue_id, '', 2, 3600, 'tenant', 3 from jmsql_internal.queue where name = 'orders'"
        )
        database.execute(
            "insert into jmsql_internal.limit_usage (limit_id, queue_id, is_rate, value, started, numbers, used_at) "
            "select limit_id, queue_id, true, v.value, array[clock_timestamp()], array[v.number], clock_timestamp() "
            "from jmsql_internal.listener_limit, (values ('a', 2), ('b', 1), (%s, 2)) as v (value, number)",
            [HOSTILE],
        )
    with Administration(jmsql_clean_url) as administration:
        rate, at_most = administration.limits()
        assert (rate.rule, rate.kind, rate.values, rate.used, rate.met, rate.waiting) == (
            *("2 in 3600 s for each tenant", "rate", 3, 5, 2, 5),
        )
        assert rate.free_at is not None
        assert set(rate.met_values) == {"a", HOSTILE}
        assert (at_most.rule, at_most.used, at_most.met, at_most.waiting, at_most.free_at) == (
            "3 at a time",
            0,
            0,
            0,
            None,
        )
    orders = console.find("orders")
    for path in (orders, "/now", f"{orders}?live=1", "/now?live=1"):
        text = console.get(path).text
        assert "2 in 3600 s for each tenant met" in words(text), path
        assert "none runs 5 started 5 " in words(text), path
        assert "2 of 3: " in words(text), path
        assert "3 at a time" in words(text), path
        assert "<script>" not in text.replace('<script src="', ""), path
        assert "\u202e" not in text, path
    hidden = Browsing(serve(hide_bodies=True))
    assert "U+202E" not in hidden.get("/now").text
    ran = CliRunner().invoke(command, ["top", "--once", "--interval", "0.1", "--url", jmsql_clean_url, "--json"])
    assert [each["waiting"] for each in json.loads(ran.stdout)["limits"]] == [5, 0]
    ran = CliRunner().invoke(command, ["top", "--once", "--interval", "0.1", "--url", jmsql_clean_url])
    assert "2 in 3600 s for each tenant" in ran.stdout


app = Application()
started, released = threading.Event(), threading.Event()


@app.listener("orders", concurrency=2, at_most=3)
def pack(message: jmsql.Message, connection: sqlalchemy.Connection) -> None:
    connection.exec_driver_sql("select 1")
    started.set()
    released.wait(60)


@app.listener("orders", selector="color = 'blue'")
def wrap(message: jmsql.Message) -> None:
    pass


def test_consumers_have_the_names_of_their_listeners(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    names = f"{__name__}.pack, {__name__}.wrap"

    def look() -> None:
        with Administration(jmsql_factory) as administration:
            wait_for(
                lambda: [(each.listeners, each.consumers) for each in administration.now()] == [(names, 3)],
                timeout=60,
            )
            assert [each.listeners for each in administration.limits()] == [f"{__name__}.pack"]
        assert f"listener {names}" in words(console.get("/now").text)
        page = words(console.get(console.find("orders")).text)
        assert f"{__name__}.pack 2" in page
        assert f"{__name__}.wrap color = 'blue' 1" in page
        send(jmsql_factory, "orders", "x")
        assert started.wait(60)
        # Transactions of the client's own, which last for moments, may show as well.
        assert "A worker's handler holds its message by a claim" in words(console.get("/clients").text)
        for path, seen in (("/clients", r"orders 1 [0-9]+ s"), ("/now", r"1, first [0-9]+ [0-9]+ s")):
            assert re.search(seen, words(console.get(path).text)), path
        released.set()
        wait_for(lambda: re.search(r"nothing [0-9.]+ m?s ", words(console.get("/now").text)), timeout=60)

    async def run() -> None:
        async with app.running():
            try:
                await asyncio.to_thread(look)
            finally:
                released.set()

    app.factory = jmsql_factory
    asyncio.run(run())
