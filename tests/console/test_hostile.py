"""Requests that no page makes: each gets an answer with a sentence, and none costs more than a page would."""

from __future__ import annotations

import itertools
import logging
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console import Console, application, database, serving
from jmsql.console.access import TokenGate
from jmsql.testing import wait_for
from tests.console.conftest import ALICE
from tests.console.http import Browsing, message_paths
from tests.console.serving import Served, served
from tests.console.test_live import asked, connections, quick
from tests.console.test_pages import fail_all

Serve = Callable[..., Served]
__all__ = ["asked", "quick"]

DIGITS = "9" * 4301
WRONG = ("x", "-1", "0x1", "1e9", "%D9%A3", "9" * 19, "9" * 20, DIGITS, "%00", "p5.%00", "p9999.1", f"p5.{DIGITS}",
         f"{DIGITS}.{DIGITS}", "1.", ".1", "%FF%FE", "%ED%A0%80", "'", "%F0%9F%98%80", "p5", "d-1.1")  # fmt: skip


@pytest.fixture
def filled(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> Browsing:
    """A console on a store with a message, a subscription and a history."""
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
        administration.subscribe("news", "readers", shared=True)
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
    return console


def test_no_address_leads_to_a_defect(filled: Browsing) -> None:
    orders, news = filled.find("orders"), filled.find("news")
    [message] = message_paths(filled.get(orders).text)
    queries = {
        "/search": ("q", "after"), "/clients": ("after",), "/batches": ("name", "before"),
        "/results": ("queue", "state", "before"),
        news: ("after",), f"{orders}/history": ("before", "message"),
        orders: ("after", "state", "cause", "selector", "notice"), f"{orders}/purge": ("key", "state", "cause"),
        "/": ("notice", "live"),
    }  # fmt: skip
    paths = [f"{path}?{name}={value}" for path, names in queries.items() for name in names for value in WRONG]
    table = message.rpartition("/")[0].rpartition("/")[0]
    for value in WRONG:
        paths += [
            f"/destinations/{value}",
            f"/topics/{value}",
            f"/batches/{value}",
            f"/results/{value}",
            f"{table}/{value}/1",
            f"{table}/5/{value}",
        ]
        paths += [f"{orders}/{value}", f"/destinations/{value}/purge", f"/topics/{value}/pause", f"/static/{value}"]
    for path in paths:
        answer = filled.get(path)
        assert answer.status in {200, 303, 400, 404}, path[:200]
        if answer.status >= 400:
            [advice] = re.findall(r'<pre class="plain">(.*?)</pre>', answer.text, re.DOTALL) or ["It is gone."]
            assert advice.endswith("."), (path[:200], advice)
            assert "database" not in answer.text, path[:200]


@pytest.mark.parametrize(("path", "name"), [("/search", "after"), ("/clients", "after"), ("orders", "after"),
                                            ("/results", "before"),
                                            ("orders/history", "before"), ("orders", "state")])  # fmt: skip
def test_a_cursor_that_cannot_be_read_is_said_to_be_one(filled: Browsing, path: str, name: str) -> None:
    address = path if path.startswith("/") else path.replace("orders", filled.find("orders"))
    answer = filled.get(f"{address}?{name}={DIGITS}")
    assert answer.status == 400
    assert "The address does not say" in answer.text or "There is no such state" in answer.text


def test_pages_without_a_live_part_are_whole(filled: Browsing) -> None:
    orders, news = filled.find("orders"), filled.find("news")
    [message] = message_paths(filled.get(orders).text)
    for path in ("/search", news, f"{orders}/history", message, f"{orders}/purge", f"{news}/pause", f"{orders}/send"):
        answer = filled.get(f"{path}?live=1")
        assert answer.status == 200, path
        assert "<!doctype html>" in answer.text, path
    assert filled.get("/search?q=orders&live=1").status == 303
    assert filled.get(f"{message}0?live=1").status == 404


def test_nothing_wrong_leaves_a_traceback_before_anybody_has_signed_in(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = Browsing(serve(access=TokenGate("secret", 8161)))
    for path in (
        f"/destinations/{DIGITS}",
        f"/topics/{DIGITS}/pause",
        f"/search?after={DIGITS}",
        "/%00",
        "/?token=%00",
    ):
        assert visitor.get(path).status == 403
    for headers in (
        {"Cookie": "\xff=\xff"},
        {"Host": "[x"},
        {"Authorization": "Basic \xff"},
        {"If-None-Match": "\xff"},
    ):
        assert visitor.get("/", **headers).status == 403
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_forms_with_wrong_values_are_refused(filled: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    orders, news, readers = filled.find("orders"), filled.find("news"), filled.find("readers")
    purge = f"{orders}/purge"
    key = dict(filled.form(purge))["form_key"]
    tried = [
        (purge, "newest"), (purge, "key"), (purge, "cause"), (f"{orders}/move", "key"), (f"{orders}/retry", "key"),
        (f"{orders}/move", "to"), (f"{readers}/delete", "name"), (f"{news}/send", "priority"),
    ]  # fmt: skip
    for (path, name), value in itertools.product(tried, ("x", "", "\0", "9" * 4301, "\ufffe0", "p5." + DIGITS)):
        newest = [("newest", "0")] if name == "to" else []
        answer = filled.post(path, [("form_key", key), (name, value), *newest])
        assert answer.status in {400, 404, 409}, (path, name, value[:20], answer.status, answer.location)
    for header in ("http://[", "http://[::1", "\xff", "null"):
        assert filled.post(purge, [("form_key", key)], {"Origin": header}).status == 403
    with Administration(jmsql_factory) as administration:
        assert administration.count("orders") == 1


def test_page_of_a_locked_table_names_the_session_that_locks_it(filled: Browsing, jmsql_clean_url: str) -> None:
    orders = filled.find("orders")
    with psycopg.connect(jmsql_clean_url, application_name="nightly") as holder:
        holder.execute("lock table jmsql_internal.message")
        for path in (orders, f"{orders}/purge"):
            answer = filled.get(path)
            assert answer.status == 503
            assert "A table is locked" in answer.text
            assert f"select pg_terminate_backend({holder.info.backend_pid})" in answer.text
            assert "nightly" in answer.text
            assert "does not answer" not in answer.text
        assert "pg_terminate_backend" in filled.get("/").text
        holder.rollback()


def test_actions_do_not_wait_for_a_locked_table_for_long(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, filled: Browsing, jmsql_clean_url: str
) -> None:
    monkeypatch.setattr(database, "_LONGEST_LOCK_WAIT", 0.2)
    with Administration(jmsql_clean_url) as administration:
        administration.create_queue("lines")
    visitor = Browsing(serve())
    orders = visitor.find("orders")
    texts = {"text": "x", "priority": "4", "to": "lines"}
    forms = {action: visitor.form(f"{orders}/{action}") for action in ("send", "purge", "move", "pause")}
    with psycopg.connect(jmsql_clean_url, application_name="nightly") as holder:
        holder.execute("lock table jmsql_internal.message, jmsql_internal.queue in exclusive mode")
        for action, fields in forms.items():
            answer = visitor.post(f"{orders}/{action}", [*fields, *texts.items()])
            assert answer.status == 503, action
            assert "A table is locked" in answer.text, action
            assert f"select pg_terminate_backend({holder.info.backend_pid})" in answer.text, action
        holder.rollback()
    for action in ("send", "purge"):
        assert visitor.post(f"{orders}/{action}", [*forms[action], *texts.items()]).status == 303, action


def test_connections_of_a_single_page_close(
    quick: None, serve: Serve, jmsql_clean_url: str, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    before = connections(jmsql_clean_url)
    visitor = Browsing(serve())
    for _ in range(2):
        # A second after the last page, they close again.
        wait_for(
            lambda: visitor.get("/search?q=nothing").status == 200 and connections(jmsql_clean_url) > before, timeout=60
        )
        wait_for(lambda: connections(jmsql_clean_url) == before, timeout=60)


def test_many_tabs_of_a_queue_cost_what_one_costs(
    monkeypatch: pytest.MonkeyPatch, serve: Serve, asked: list[bytes], filled: Browsing
) -> None:
    monkeypatch.setattr(application, "INTERVAL", 3600.0)
    monkeypatch.setattr(application, "PATIENCE", 3600.0)  # after which a look counts as old
    visitor = Browsing(serve())
    orders = visitor.find("orders")
    assert visitor.get(f"{orders}?live=1").status == 200
    visitor.get("/clients?live=1")
    visitor.get("/dead-letters?live=1")
    asked.clear()
    started = time.time()
    for _ in range(20):
        for path in (orders, "/", "/dead-letters", "/clients"):
            assert visitor.get(f"{path}?live=1").status == 200
    # The stored rates are read for each minute, and a slow machine may take several for so many requests.
    assert asked.count(b"begin") <= time.time() // 60 - started // 60


def test_requests_that_do_not_arrive_whole_are_cut_off(
    monkeypatch: pytest.MonkeyPatch, jmsql_factory: jmsql.ConnectionFactory, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "REQUEST_TIMEOUT", 1.0)
    halves = {
        "nothing": b"",
        "a line": b"GET / HTTP/1.1\r\n",
        "a header": b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        "a body": b"POST /destinations/1/purge HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nab",
        "a body that nobody reads": b"GET /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nab",
        "a second request": b"GET /static/icon.svg HTTP/1.1\r\nHost: x\r\n\r\nGET / HT",
    }
    console = Console(jmsql_factory, access=lambda _: ALICE)
    with served(console, http=serving.PunctualProtocol, ws="none") as where:
        opened = {name: socket.create_connection(("127.0.0.1", where.port), timeout=60) for name in halves}
        for name, connection in opened.items():
            connection.sendall(halves[name])
        assert Browsing(where).get("/").status == 200
        for name, connection in opened.items():
            with connection:
                assert _is_cut_off(connection, trickle=name == "a header"), name
        with closing(HTTPConnection("127.0.0.1", where.port, timeout=60)) as kept:
            for _ in range(2):
                kept.request("GET", "/static/icon.svg")
                assert kept.getresponse().read().startswith(b"<svg")
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def _is_cut_off(connection: socket.socket, *, trickle: bool) -> bool:
    """Read to the end; meanwhile, if asked for, send a byte each time that nothing comes."""
    connection.settimeout(0.2 if trickle else 60)
    for _ in range(500):
        try:
            if not connection.recv(65536):
                return True
        except TimeoutError:
            connection.sendall(b"x")
        except ConnectionError:
            return True
    return False


def test_the_command_serves_with_that_limit(jmsql_factory: jmsql.ConnectionFactory) -> None:
    console = Console(jmsql_factory, access=lambda _: ALICE)
    config = serving.server(console, root_path="/jms").config
    assert config.http is serving.PunctualProtocol
    assert (config.proxy_headers, config.root_path, config.ws) == (False, "/jms", "none")
    assert serving.REQUEST_TIMEOUT < 30
    console.close()


def test_stand_ins_of_nul_are_on_no_page(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    nul = "a\0b\ufffec"
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", maximum_deliveries=1, history=True)
        administration.subscribe("news", nul, f"color <> '{nul}'", client_id=nul)
    with jmsql_factory.create_context() as context:
        mapped, streamed = context.create_map_message(), context.create_stream_message()
        mapped.set_string("name", nul)
        streamed.write_string(nul)
        kinds = [context.create_text_message(nul), context.create_text_message(nul + "x" * 300_000), mapped, streamed]
        kinds.append(context.create_object_message([nul]))
        for destination in (jmsql.Queue("orders"), jmsql.Queue("others"), jmsql.Topic("news")):
            for message in kinds:
                message.jms_type = message.jms_correlation_id = nul
                message.set_string_property("color", f"not {nul}")
                context.create_producer().send(destination, message)
        assert context.create_consumer(jmsql.Queue("others")).receive(timeout=60) is not None
    fail_all(jmsql_factory, "orders", ValueError(nul))
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("update jmsql_internal.message set property_types = '{\"color\": \"nothing\"}' "
                         "where text_body like '%x'")  # fmt: skip
    ids = console.get("/search").ids
    places = [ids[name] for name in ("DLQ", "others", "news", "a␀b[U+FFFE]c")]
    messages = [message for place in places for message in message_paths(console.get(place).text)]
    assert len(messages) >= 14
    [cause] = re.findall(r'href="([^"]*cause=[^"]*)">Show', console.get("/dead-letters").text)
    more = ["/", "/search", "/dead-letters", "/clients", cause, f"{places[1]}/history", f"{places[3]}/delete"]
    for path in (*places, *messages, *more):
        text = console.get(path).text
        assert "\ufffe" not in text, path
        assert not re.search(r"\[U\+FFFE\][0\[]", text), path
    said = console.post(f"{places[3]}/delete", [*console.form(f"{places[3]}/delete"), ("name", nul)])
    assert said.status == 303, said.text
