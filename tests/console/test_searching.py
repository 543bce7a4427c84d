"""The search for messages: found across queues, bounded, going on with one click, and whole in its address."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console import searching
from jmsql.store.administration import looks
from jmsql.store.administration import searching as store_searching
from tests.console.http import Browsing, message_paths
from tests.console.test_pages import fail_all, words


@pytest.fixture
def customer(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> Browsing:
    """A console on messages of a customer in two queues, one of them a dead letter."""
    with Administration(jmsql_factory) as administration:
        administration.create_queue("payments", maximum_deliveries=1)
    with jmsql_factory.create_context() as context:
        for name in ("payments", "mails"):
            message = context.create_text_message(f"{name} of the customer")
            message.set_int_property("customer", 7)
            message.set_string_property("JMSXGroupID", "it's C-7")
            message.jms_correlation_id, message.jms_type = "order-1", "invoice"
            context.create_producer().send(jmsql.Queue(name), message)
        context.create_producer().send(jmsql.Queue("mails"), "of another one")
    fail_all(jmsql_factory, "payments", ValueError("card was declined"))
    return console


@pytest.mark.parametrize(
    "terms",
    [
        {"correlation": "order-1"},
        {"group": "it's C-7"},
        {"type": "invoice"},
        {"property": "customer = 7"},
        {"property": "customer=7", "type": "invoice", "selector": "JMSPriority = 4"},
    ],
)
def test_messages_are_found_in_all_queues_by_an_address_that_says_all(
    customer: Browsing, terms: dict[str, str]
) -> None:
    page = customer.get(f"/messages?{urlencode(terms)}").text
    paths = message_paths(page)
    assert len(paths) == 2
    seen = words(page)
    assert re.search(r"DLQ ready ValueError: card was declined Text invoice payments of the customer", seen)
    assert re.search(r"mails ready Text invoice mails of the customer", seen)
    assert "These are all" in seen
    for name, text in terms.items():
        assert f'name="{name}" value="{html.escape(text)}"' in page.replace("&#39;", "&#x27;")
    found = words(customer.get(paths[0]).text)
    assert "JMSCorrelationID order-1" in found


def test_message_leads_to_those_of_its_group_and_correlation_in_all_queues(customer: Browsing) -> None:
    page = customer.get(message_paths(customer.get(customer.find("mails")).text)[0]).text
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*/messages\?[^"]*)"', page)]
    assert len(links) == 3
    for link in links:
        assert len(message_paths(customer.get(link).text)) == 2
    [identifier] = re.findall(r"ID:[0-9a-f-]{36}", page)[:1]
    assert len(message_paths(customer.get(f"/messages?id={identifier}").text)) == 1
    nothing = customer.get("/search?q=order-1").text
    [correlated] = re.findall(r'href="([^"]*messages\?correlation=[^"]*)"', nothing)
    assert len(message_paths(customer.get(html.unescape(correlated)).text)) == 2


def test_search_goes_on_with_one_click_and_reads_a_bounded_part(
    console: Browsing, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_searching, "TIME_LIMIT", 0.0)
    monkeypatch.setattr(looks, "WINDOW", 100)
    monkeypatch.setattr(searching, "_SHOWN", 2)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, 50) n;"
            "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_type)"
            "select q.queue_id, 5, 2, 'Message', case when q.name in ('queue 20', 'queue 40') then 'x' end "
            "from jmsql_internal.queue q, generate_series(1, 10) n"
        )
    path, seen, clicks = "/messages?type=x", list[str](), 0
    while path:
        page = console.get(path).text
        seen += message_paths(page)
        path = html.unescape(next(iter(re.findall(r'rel="next" href="([^"]*)"', page)), ""))
        clicks += 1
    assert len(set(seen)) == len(seen) == 20
    assert 10 < clicks < 25
    assert "100 messages were read, and none is like that" in words(console.get("/messages?type=x").text)


def test_search_says_why_it_cannot_search(customer: Browsing) -> None:
    assert "A message is found that meets all" in words(customer.get("/messages").text)
    assert "No message is like that" in words(customer.get("/messages?type=none").text)
    for terms in ({"property": "7"}, {"property": "a b=7"}, {"selector": "color = = 1"}, {"selector": "\0"}):
        answer = customer.get(f"/messages?{urlencode(terms)}")
        assert answer.status == 200
        assert 'role="alert"' in answer.text
    for after in ("x", "1.p5", f"{2**31}.p5.1", "1.p5.%00"):
        assert customer.get(f"/messages?type=x&after={after}").status == 400


def test_dead_letters_in_a_list_tell_error_origin_and_age(
    customer: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("DLQ"), "no letter")
    letters = customer.find("DLQ")
    page = customer.get(letters).text
    seen = words(page)
    assert re.search(r"ready ValueError: card was declined queue://payments under 1 min it.?s C-7 Text", seen)
    [origin] = set(re.findall(r'href="([^"]*/origin\?[^"]*)"', page))
    assert customer.get(html.unescape(origin)).location == customer.find("payments")
    letter = customer.get(message_paths(page)[0]).text
    seen = words(letter)
    assert re.search(r"Died \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC , under 1 min ago", seen)
    assert re.search(r"JMS_jmsql_DeadLetterTime long \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", seen)
    [past] = re.findall(r'href="([^"]*/origin\?[^"]*history[^"]*)"', letter)
    assert customer.get(html.unescape(past)).location.startswith(f"{customer.find('payments')}/history?message=")
    moving = customer.get(f"{letters}/move").text
    assert re.findall(r'<option value="([^"]*)">', moving) == ["mails", "payments"]
