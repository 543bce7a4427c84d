"""The outcomes of actions, which a browser carries to the next page."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

import jmsql
from jmsql.console import notices
from jmsql.console.views import Notice
from tests.console.http import Browsing
from tests.console.serving import Served
from tests.console.test_actions import send

KEY = "0" * 16


def as_cookie(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def test_another_process_shows_what_an_action_has_done(
    serve: Callable[..., Served], jmsql_factory: jmsql.ConnectionFactory
) -> None:
    send(jmsql_factory, "orders", "a", "b")
    one = Browsing(serve())
    other = Browsing(serve(), cookies=one.cookies)  # as several processes of an application answer one browser
    orders = one.find("orders")
    answer = other.post(f"{orders}/purge", one.form(f"{orders}/purge"))
    assert answer.status == 303
    assert "2 messages deleted." in one.request("GET", answer.location).text
    assert '<p class="notice' not in one.request("GET", answer.location).text  # it is said once


@pytest.mark.parametrize(
    "cookie",
    ["", "x", "é", "bnVsbA==", as_cookie({"text": "a"}), as_cookie(["a"]), as_cookie(["a", 1, "", "", ""])]
    + [as_cookie(["a", False, "more", "link", address]) for address in ("//elsewhere", "/\\elsewhere", "x:y")],
)
def test_a_notice_that_no_console_has_made_is_not_shown(cookie: str) -> None:
    assert notices.unpack({notices.cookie_of(KEY): cookie}, KEY) is None
    assert notices.unpack({"": cookie}, "") is None


@pytest.mark.parametrize("text", ["a" * 5000, "\N{SNOWMAN}" * 3000, "\0" * 3000, "\ud800", '"; <b>'])
def test_a_notice_fits_into_a_cookie(text: str) -> None:
    packed = notices.pack(Notice(text, True, "Then see", "a queue", "/destinations/1"))
    assert len(packed) <= 3800
    shown = notices.unpack({notices.cookie_of(KEY): packed}, KEY)
    assert shown is not None
    assert shown.is_problem
    assert text.replace("\ud800", "?").startswith(shown.text.removesuffix("…"))
