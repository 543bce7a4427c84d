"""The page of what administrators have done, whatever program has done it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.store.administration import looks
from tests.console.http import Browsing
from tests.console.serving import Served
from tests.console.test_actions import send
from tests.console.test_dead_letters import retry_of
from tests.console.test_pages import fail_all

Serve = Callable[..., Served]


def test_actions_of_the_console_name_the_visitor_and_are_one_line_each(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "WINDOW", 7)
    send(jmsql_factory, "orders", *(f"red {number}" for number in range(20)))
    send(jmsql_factory, "orders", "blue")
    orders = console.find("orders")
    red = urlencode({"selector": "color = 'red'", "state": "ready"})
    assert console.act(f"{orders}/purge", red) == "20 messages deleted."
    console.act(f"{orders}/pause")
    with Administration(jmsql_factory) as administration:
        pause, purge = administration.activity()
        assert (pause.action, pause.actor) == ("pause", "alice")
        assert (purge.action, purge.actor, purge.messages, purge.selector, purge.details) == (
            *("purge", "alice", 20, "color = 'red'", "state ready"),
        )
        administration.resume("orders")
    text = console.get("/activity").text
    assert "color = &#39;red&#39;" in text
    assert "13 more" in text  # of the first step, seven are named
    assert "resume" not in console.get("/activity?search=alice").text.partition("<tbody>")[2]
    assert "No action is like that" in console.get("/activity?search=nobody").text


def test_an_action_on_a_group_of_dead_letters_names_its_error_unless_that_is_hidden(
    console: Browsing, serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("payments", maximum_deliveries=1)
    send(jmsql_factory, "payments", "1", "2")
    fail_all(jmsql_factory, "payments", ConnectionError("the bank of customer 7"))
    path, query = retry_of(console.get("/dead-letters").text)
    assert console.act(path, query).startswith("2 messages went back")
    with Administration(jmsql_factory) as administration:
        assert administration.activity()[0].details == "a group of dead letters of queue://payments, ConnectionError"
    hiding = Browsing(serve(hide_bodies=True))
    assert "ConnectionError" not in hiding.get("/activity").text
    assert "No action is like that" in hiding.get("/activity?search=ConnectionE").text


def test_selectors_are_hidden_with_bodies(serve: Serve, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", "secret 1")
    with Administration(jmsql_factory) as administration:
        administration.purge("orders", "color = 'secret'")
        administration.create_queue("secrets of state")
        administration.pause("secrets of state")
    showing, hiding = Browsing(serve()), Browsing(serve(hide_bodies=True))
    assert "color = &#39;secret&#39;" in showing.get("/activity?search=R+%3D+%27SEC").text
    assert "color = " not in hiding.get("/activity").text
    for guess in ("color", "%3D", "secret%27"):
        assert "No action is like that" in hiding.get(f"/activity?search={guess}").text
    assert "secrets of state" in hiding.get("/activity?search=secret").text


def test_actions_are_shown_by_pages(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
        for number in range(1, 61):
            administration.alter("orders", maximum_deliveries=number)
    first = console.get("/activity").text
    assert first.count("maximum_deliveries") == 50
    [following] = [part.partition('"')[0] for part in first.split('rel="next" href="')[1:]]
    assert console.get(following.replace("&amp;", "&")).text.count("maximum_deliveries") == 10
    assert console.get("/activity?before=x").status == 400
