"""Pages stay current at the cost of one look for all, and of none when nobody looks."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console import application, poller
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import wait_for
from tests.console.http import Browsing
from tests.console.serving import Served
from tests.progress import report_progress

ORDERS = jmsql.Queue("orders")
Serve = Callable[..., Served]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The statements that the console's connections have run."""
    statements: list[bytes] = []
    execute = PsycopgRunner.execute

    def listen(self: PsycopgRunner, statement: bytes, parameters: Any) -> Any:
        if threading.current_thread().name.startswith(("jmsql console", "AnyIO")):
            statements.append(statement)
        return execute(self, statement, parameters)

    monkeypatch.setattr(PsycopgRunner, "execute", listen)
    return statements


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console looks every 0.2 s, and for a second after the last page."""
    monkeypatch.setattr(application, "INTERVAL", 0.2)
    monkeypatch.setattr(application, "PATIENCE", 1.0)


def live(visitor: Browsing, path: str, tag: str | None = None) -> tuple[int, str]:
    answer = visitor.get(f"{path}?live=1", **({} if tag is None else {"If-None-Match": tag}))
    return answer.status, answer.headers["ETag"]


def connections(url: str) -> int:
    """Count the connections of consoles. Those that count are not counted: the last one may not have ended yet."""
    with psycopg.connect(url) as database:
        statement = (
            "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jmsql'"
        )
        [number] = database.execute(statement).fetchone() or ()
        return int(number)


def is_looking() -> bool:
    return any(thread.name == "jmsql console" for thread in threading.enumerate())


def test_defaults_are_those_that_the_documentation_promises() -> None:
    assert (poller.INTERVAL, poller.PATIENCE) == (2.0, 10.0)


def test_pages_show_an_action_at_once(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    monkeypatch.setattr(application, "INTERVAL", 60.0)
    monkeypatch.setattr(application, "PATIENCE", 60.0)
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
    visitor = Browsing(serve())
    orders = visitor.find("orders")
    pages = ("/", "/?live=1", "/destinations", "/destinations?live=1")
    seen = re.compile(r'paused</dt><dd><a[^>]*>1<|<span class="tag[^>]*>paused<')

    def is_paused() -> list[bool]:
        return [seen.search(visitor.get(path).text) is not None for path in pages]

    assert is_paused() == [False] * 4
    visitor.act(f"{orders}/pause")
    assert is_paused() == [True] * 4
    visitor.act(f"{orders}/resume")
    assert is_paused() == [False] * 4


def test_unchanged_parts_are_not_sent_again(quick: None, serve: Serve, jmsql_factory: jmsql.ConnectionFactory) -> None:
    visitor = Browsing(serve())
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
        status, tag = live(visitor, "/")
        assert status == 200
        wait_for(lambda: live(visitor, "/", live(visitor, "/")[1])[0] == 304, timeout=60)
        _, tag = live(visitor, "/")
        context.create_producer().send(ORDERS, "x")

        def shows_the_second() -> bool:
            answer = visitor.get("/?live=1")
            return re.search(r'data-label="Messages" class="n">2<', answer.text) is not None

        wait_for(shows_the_second, timeout=60)
        assert live(visitor, "/", tag)[0] == 200


def test_the_page_of_a_queue_shows_the_progress_of_its_messages(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with jmsql_factory.create_context() as context:
        message_id = jmsql.send(context, ORDERS, "x")
    report_progress(jmsql_clean_url, 0.25, "<b>rows</b>")
    with psycopg.connect(jmsql_clean_url) as database:
        [number] = database.execute("select queue_id from jmsql_internal.queue where name = 'orders'").fetchone() or ()
    page = Browsing(serve()).get(f"/destinations/{number}").text
    assert message_id in page
    assert "25 %" in page
    assert "&lt;b&gt;rows" in page
    assert "rows" not in Browsing(serve(hide_bodies=True)).get(f"/destinations/{number}").text


def test_server_is_not_queried_while_no_page_is_open(
    quick: None, serve: Serve, asked: list[bytes], jmsql_clean_url: str
) -> None:
    before = connections(jmsql_clean_url)
    served = serve()
    assert (asked, is_looking(), connections(jmsql_clean_url)) == ([], False, before)
    visitor = Browsing(served)
    wait_for(
        lambda: visitor.get("/").status == 200 and is_looking() and connections(jmsql_clean_url) > before, timeout=60
    )
    assert asked
    wait_for(lambda: not is_looking(), timeout=60)
    number = len(asked)
    wait_for(lambda: connections(jmsql_clean_url) == before, timeout=60)
    assert len(asked) == number
    wait_for(lambda: visitor.get("/").status == 200 and is_looking(), timeout=60)


@pytest.mark.parametrize("name", ["/", "orders"])
def test_a_hundred_tabs_cost_what_one_costs(
    monkeypatch: pytest.MonkeyPatch,
    serve: Serve,
    asked: list[bytes],
    jmsql_factory: jmsql.ConnectionFactory,
    name: str,
) -> None:
    # However long they take to ask, no other interval begins.
    monkeypatch.setattr(application, "INTERVAL", 3600.0)
    monkeypatch.setattr(application, "PATIENCE", 3600.0)
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
    served = serve()
    path = name if name == "/" else Browsing(served).find(name)
    Browsing(served).get(f"{path}?live=1")
    asked.clear()
    with ThreadPoolExecutor(16) as tabs:
        answers = list(tabs.map(lambda _: Browsing(served).get(f"{path}?live=1").status, range(100)))
    assert answers == [200] * 100
    assert [statement for statement in asked if b"delayed_message" in statement] == []


def test_console_does_not_listen(serve: Serve, asked: list[bytes], jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
    visitor = Browsing(serve())
    for path in ("/", "/clients", "/dead-letters", visitor.find("orders")):
        assert visitor.get(path).status == 200
    assert not [statement for statement in asked if re.search(rb"\b(un)?listen\b|\bnotify\b", statement, re.IGNORECASE)]


def test_looks_change_nothing_and_wait_for_no_lock(
    serve: Serve, jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
    visitor = Browsing(serve())
    orders = visitor.find("orders")
    with psycopg.connect(jmsql_clean_url) as holder:
        holder.execute("lock table jmsql_internal.message")
        answer = visitor.get(orders)
        assert answer.status == 503
        assert "lock" in answer.text
        holder.rollback()
    assert visitor.get(orders).status == 200


def test_first_page_after_a_pause_shows_the_present_state(
    quick: None, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    visitor = Browsing(serve())
    assert "Nothing waits" in visitor.get("/").text
    wait_for(lambda: not is_looking(), timeout=60)
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")

    def is_shown() -> bool:
        return "orders" in visitor.get("/").text

    wait_for(is_shown, timeout=60)


def test_rates_are_those_of_the_clients(quick: None, serve: Serve, jmsql_factory: jmsql.ConnectionFactory) -> None:
    visitor = Browsing(serve())
    with jmsql_factory.create_context() as context:
        producer, consumer = context.create_producer(), context.create_consumer(ORDERS)
        producer.send(ORDERS, "first")

        def moves() -> bool:
            producer.send(ORDERS, "x")
            producer.send(ORDERS, "x")
            assert consumer.receive(timeout=60) is not None
            text = visitor.get("/?live=1").text
            rates = re.findall(r'data-label="(?:In|Out) /s" class="n">([\d.,]+)<', text)
            return len(rates) == 2 and all(float(rate.replace(",", "")) > 0 for rate in rates)

        wait_for(moves, timeout=60)
        assert re.search(r"orders: the last 15 minutes, at most [\d.,]+ a second", visitor.get("/").text)
