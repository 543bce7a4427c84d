"""The table of destinations: its orders, what it says of each, and the way from a dead letter to its origin."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console import listing
from tests.console.http import Browsing, message_paths
from tests.console.test_pages import fail_all, words


@pytest.fixture
def shop(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> Browsing:
    """A console on queues that differ in each column, and a topic one of whose subscriptions lags."""
    with Administration(jmsql_factory) as administration:
        administration.create_queue("failing", maximum_deliveries=1)
        administration.create_queue("mails", paused=True)
        administration.subscribe("prices", "web", shared=True)
        administration.subscribe("prices", "risk", "symbol = 'A'", shared=True)
    with jmsql_factory.create_context() as context:
        producer = context.create_producer()
        for name, number in (("failing", 3), ("old", 1), ("deep", 5), ("mails", 2)):
            for _ in range(number):
                producer.send(jmsql.Queue(name), "x")
        producer.send(jmsql.Topic("prices"), "x")
    fail_all(jmsql_factory, "failing", ValueError("card was declined"))
    return console


def order_of(page: str) -> list[str]:
    """Return the names of a table's rows."""
    return [html.unescape(name) for name in re.findall(r'<th scope="row"[^>]*><a[^>]*><bdi>([^<]*)<', page)]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("name", ["DLQ", "deep", "failing", "mails", "old", "prices"]),
        ("depth", ["deep", "DLQ", "mails"]),
        ("age", ["DLQ", "old", "deep", "mails"]),
        ("consumers", ["old", "deep"]),
        ("letters", ["failing"]),
        ("paused", ["mails"]),
        ("busy", []),
    ],
)
def test_destinations_are_sorted_by_each_column(shop: Browsing, sort: str, first: list[str]) -> None:
    page = shop.get(f"/destinations?sort={sort}")
    assert page.status == 200
    found = order_of(page.text)
    assert found[: len(first)] == first
    assert {"DLQ", "deep", "failing", "mails", "old", "prices"} <= set(found)
    assert len(re.findall(r'aria-current="true"', page.text)) == 1
    fragment = shop.get(f"/destinations?sort={sort}&live=1").text
    assert "<html" not in fragment
    assert order_of(fragment)[: len(first)] == first


def test_row_shows_depth_age_consumers_dead_letters_pause_and_lagging_subscriptions(shop: Browsing) -> None:
    text = words(shop.get("/destinations?sort=name").text)
    assert re.search(r"deep 5 under 1 min \S+ \S+ 0 \S", text)
    assert re.search(r"failing 0 \S \S+ \S+ \d 3 ", text)
    assert "mails paused 2" in text
    assert "prices topic 2 subscriptions; web lags by 1, under 1 min" in text
    [letters] = re.findall(r'href="([^"]*/dead-letters\?[^"]*)"', shop.get("/destinations?sort=letters&q=fail").text)
    assert "queue://failing" in words(shop.get(html.unescape(letters)).text)
    assert "There are none" in words(shop.get("/dead-letters?origin=queue%3A%2F%2Fdeep").text)


def test_names_and_kinds_narrow_the_table(shop: Browsing) -> None:
    assert order_of(shop.get("/destinations?q=ee").text) == ["deep"]
    assert order_of(shop.get("/destinations?q=%25").text) == []
    assert set(order_of(shop.get("/destinations?kind=topic").text)) == {"prices"}
    assert order_of(shop.get("/destinations?sort=paused&kind=queue&q=i").text)[0] == "mails"
    for wrong in ("sort=x", "kind=x"):
        assert shop.get(f"/destinations?{wrong}").status == 400


def test_ten_thousand_queues_are_listed_a_page_at_a_time(
    console: Browsing, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_MOST_SHOWN", 60)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.queue (name) select format('queue %s', n) from generate_series(1, 10000) n;"
            "insert into jmsql_internal.message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body) "
            "select q.queue_id, 5, 2, 'TextMessage', 1, 'x' from jmsql_internal.queue q, generate_series(1, 2) n "
            "where q.name = 'queue 9999' or n = 1"
        )
    for sort in ("depth", "age", "name", "consumers"):
        listed = console.get(f"/destinations?sort={sort}").text
        assert len(order_of(listed)) == 50
        assert "50 of 10,000 queues and subscriptions" in words(listed)
    assert order_of(console.get("/destinations?sort=depth").text)[0] == "queue 9999"
    [more] = re.findall(r'href="([^"]*limit=60[^"]*)">Show 60', console.get("/destinations").text)
    last = console.get(html.unescape(more))
    assert len(order_of(last.text)) == 60
    assert "These are the first 60" in words(last.text)
    assert order_of(console.get("/destinations?q=queue+77").text)[:1] != []


def test_dead_letter_leads_to_its_origin_and_its_history(shop: Browsing) -> None:
    origin = {"destination": "queue://failing"}
    assert shop.get(f"/origin?{urlencode(origin)}").location == shop.find("failing")
    subscription = urlencode({"destination": "topic://prices", "subscription": "web"})
    assert shop.get(f"/origin?{subscription}").location == shop.find("web")
    past = shop.get(f"/origin?{urlencode(origin | {'history': 'ID:1'})}").location
    assert past == f"{shop.find('failing')}/history?message=ID%3A1"
    for gone in ("queue://gone", "topic://gone", "nonsense", ""):
        assert shop.get(f"/origin?{urlencode({'destination': gone})}").status == 404
    assert message_paths(shop.get(shop.find("DLQ")).text)
