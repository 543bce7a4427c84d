"""The charts: what they draw, over which time, and what they say to those who cannot see them."""

from __future__ import annotations

import re

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console.charts import SPANS, seconds
from tests.console.http import Browsing
from tests.console.test_pages import words


@pytest.fixture
def past(console: Browsing, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str) -> Browsing:
    """A console on a queue through which 600 messages went a few minutes ago, and 6,000 some days ago."""
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
        administration.subscribe("prices", "web", shared=True)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("select jmsql.keep_rates(7)")  # a test before may have changed it
        for minutes, messages in ((2, 600), (3 * 24 * 60, 6000)):
            database.execute(
                "insert into jmsql_internal.rate "
                "select d, date_trunc('minute', now()) - make_interval(mins => %(minutes)s), %(messages)s, "
                "%(messages)s, %(messages)s / 20, 0, %(messages)s * 1500000::bigint, "
                "%(messages)s, %(messages)s * 250000::bigint "
                "from (select queue_id from jmsql_internal.queue where name = 'orders' union all select 0 "
                "union all select -topic_id from jmsql_internal.topic) q (d)",
                {"minutes": minutes, "messages": messages},
            )
    return console


def test_charts_show_rates_times_and_failures_over_each_span(past: Browsing) -> None:
    orders = past.find("orders")
    for path in ("/rates", f"{orders}/rates"):
        for span in SPANS:
            page = past.get(f"{path}?span={span.name}").text
            labels = re.findall(r'<svg[^>]*aria-label="([^"]*)"', page)
            assert [label.partition(",")[0] for label in labels] == [
                "In and out", "Failed deliveries", "Time in the queue", "Time of handling",
            ]  # fmt: skip
            assert all(f"each {span.each} of {span.label}" in label for label in labels)
            seen = words(page)
            assert "Time in the queue last 1.5 s" in seen
            assert "Time of handling last 250 ms" in seen
            assert "Failed deliveries last 30" in seen
            assert len(re.findall("<rect", page)) == (6 if span.name == "week" else 3)
            assert len(re.findall("<polyline", page)) == 2
            assert len(re.findall('<tr><th scope="row">', page)) == 4 * span.slots
    assert "In and out, a second last in 10, out 10" in words(past.get(f"{orders}/rates").text)
    assert (
        "orders: the last 15 minutes, at most 10 a second" in past.get(orders).text
    )  # before the console's first poll
    topic = words(past.get(f"{past.find('prices')}/rates").text)
    assert "Published, a second last 10" in topic
    assert "Time of handling last" not in topic
    assert past.get("/rates?span=year").status == 400
    assert past.get("/destinations/2000000000/rates").status == 404


def test_page_without_rates_says_why(past: Browsing, jmsql_clean_url: str) -> None:
    web = past.find("web")
    assert "Nothing has gone through in 15 minutes" in words(past.get(f"{web}/rates").text)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("select jmsql.keep_rates(0)")
    assert "Rates are not noted here" in words(past.get(f"{web}/rates?span=8h").text)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "\N{EN DASH}"), (0.00045, "0.45 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (90, "90 s"), (600, "10 min"),
     (9000, "2.5 h"), (260_000, "3.01 d")],
)  # fmt: skip
def test_durations_are_short(value: float | None, shown: str) -> None:
    assert seconds(value) == shown
