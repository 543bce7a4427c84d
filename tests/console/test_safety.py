"""What keeps other pages out: headers, the host, and where forms come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files

import pytest

import jmsql
from jmsql.console.safety import CONTENT_SECURITY_POLICY
from tests.console.http import Browsing
from tests.console.serving import Served

Serve = Callable[..., Served]


@pytest.fixture
def filled(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> Browsing:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
        context.create_shared_durable_consumer(jmsql.Topic("news"), "sub").close()
    return console


def pages(console: Browsing) -> list[str]:
    orders = console.find("orders")
    [message] = re.findall(rf"{orders}/messages/[^\"]*", console.get(orders).text)
    return [
        "/", "/?live=1", "/search", "/search?q=none", "/dead-letters", "/clients", orders, f"{orders}?live=1",
        f"{orders}?selector=a+=+=", message, f"{message}0", f"{orders}/purge", f"{orders}/send", f"{orders}/history",
        console.find("news"), "/nowhere", "/destinations/99999999999999999999", "/destinations/77",
        "/static/console.js", "/static/none", f"{orders}/nothing",
    ]  # fmt: skip


def test_every_answer_has_the_headers_that_keep_others_out(filled: Browsing) -> None:
    for path in pages(filled):
        answer = filled.get(path)
        assert answer.status < 500, path
        assert answer.headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY, path
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        is_file = path.startswith("/static/console")
        assert ("no-store" in answer.headers["Cache-Control"]) is not is_file, path
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_pages_have_no_inline_scripts_or_styles_and_nothing_from_elsewhere(filled: Browsing) -> None:
    for path in pages(filled):
        if path.startswith("/static/"):
            continue
        text = filled.get(path).text
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), path
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), path
        sources = re.findall(r"(?:src|href|action|formaction|hx-get)=\"([^\"]*)\"", text)
        assert all(source.startswith(("/", "#")) or source == "" for source in sources), (path, sources)


def test_script_that_is_not_ours_is_the_published_file() -> None:
    content = files("jmsql.console").joinpath("static", "htmx-2.0.11.min.js").read_bytes()
    readme = files("jmsql.console").joinpath("static", "README.md").read_text()
    assert sha256(content).hexdigest() in readme
    assert "Zero-Clause BSD" in readme


def test_names_are_in_no_address(filled: Browsing) -> None:
    for path in pages(filled):
        text = filled.get(path).text
        addresses = re.findall(r"(?:href|action|formaction|hx-get)=\"([^\"]*)\"", text)
        assert not [address for address in addresses if "orders" in address or "news" in address]


FORGERIES: list[dict[str, str | None]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": None},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": None, "Referer": "https://evil.example/"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Cookie": None},
    {"Cookie": "jmsql-console-form=00000000000000000000000000000000"},
]


@pytest.mark.parametrize("headers", FORGERIES, ids=str)
def test_form_of_another_page_is_refused(
    filled: Browsing, jmsql_factory: jmsql.ConnectionFactory, headers: dict[str, str | None]
) -> None:
    path = f"{filled.find('orders')}/purge"
    answer = filled.post(path, filled.form(path), headers)
    assert answer.status == 403
    with jmsql_factory.create_context() as context:
        assert context.create_consumer(jmsql.Queue("orders")).receive(timeout=60) is not None


def test_form_without_its_key_is_refused(filled: Browsing) -> None:
    path = f"{filled.find('orders')}/purge"
    fields = dict(filled.form(path))
    for key in ("", "0" * 32):
        assert filled.post(path, (fields | {"form_key": key}).items()).status == 403


def test_large_form_is_refused(filled: Browsing) -> None:
    path = f"{filled.find('orders')}/send"
    answer = filled.post(path, [*filled.form(path), ("text", "x" * 2_000_000), ("priority", "4")])
    assert answer.status == 413


def test_getting_a_page_changes_nothing(filled: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    orders = filled.find("orders")
    for action in ("purge", "move", "retry", "pause", "resume", "send"):
        assert filled.get(f"{orders}/{action}").status == 200
    assert f"{orders}/resume" not in filled.get(orders).text  # the page of a paused queue has that button
    with jmsql_factory.create_context() as context:
        assert context.create_consumer(jmsql.Queue("orders")).receive(timeout=60) is not None


def test_only_known_hosts_are_answered(serve: Serve) -> None:
    visitor = Browsing(serve(allowed_hosts=["console.example", "[::1]"]))
    for host, status in (
        ("console.example", 200), ("Console.Example:8161", 200), ("[::1]:8161", 200), ("evil.example", 400),
        ("127.0.0.1", 400), ("console.example.evil", 400), ("", 400),
    ):  # fmt: skip
        assert visitor.get("/", Host=host).status == status, host
