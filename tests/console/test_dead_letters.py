"""Dead letters by cause: a row stands for exactly its letters, and letters that differ by a number share a row."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable, Sequence

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console import poller
from tests.console.http import Browsing
from tests.console.serving import Served

Serve = Callable[..., Served]

_TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/listeners.py", line 7, in handle
    store(order)
    ~~~~~^^^^^^^
"""
BACKGROUND = "(Background on this error at: https://sqlalche.me/e/20/gkpj)"


def bury(url: str, origin: str, errors: Sequence[str], died_at: int = 1_700_000_000_000) -> None:
    """Put a dead letter into the DLQ for each error, the last of which died last."""
    with psycopg.connect(url) as database:
        database.execute("insert into jmsql_internal.queue (name) values ('DLQ') on conflict do nothing")
        database.execute(
            "insert into jmsql_internal.message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body, properties) "
            "select q.queue_id, 5, 2, 'TextMessage', 1, e.error, jsonb_build_object("
            " 'JMS_jmsql_DeadLetterReason', 'maximum deliveries', 'JMS_jmsql_OriginalDestination', %s::text, "
            " 'JMS_jmsql_LastError', %s::text || e.error, 'JMS_jmsql_DeadLetterTime', %s::bigint + e.place) "
            "from jmsql_internal.queue q, unnest(%s::text[]) with ordinality e (error, place) "
            "where q.name = 'DLQ' order by e.place",
            [origin, _TRACEBACK, died_at, list(errors)],
        )


def rows(console: Browsing) -> list[str]:
    """Return the rows of the table of groups, the last that died first."""
    return re.findall(r"<tr>\s*<th scope=\"row\".*?</tr>", console.get("/dead-letters").text, re.DOTALL)


def retry_of(row: str) -> tuple[str, str]:
    [link] = re.findall(r'href="([^"]*/retry\?[^"]*)"', row)
    path, _, query = link.replace("&amp;", "&").partition("?")
    return path, query


@pytest.mark.parametrize("hidden", [False, True], ids=["shown", "hidden"])
def test_a_row_acts_on_exactly_its_letters(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str, hidden: bool
) -> None:
    with Administration(jmsql_factory) as administration:
        for name in ("orders", "payments"):
            administration.create_queue(name)
    bury(jmsql_clean_url, "queue://orders", ["ValueError: no"] * 40)
    bury(jmsql_clean_url, "queue://payments", ["ValueError: no"] * 5)
    bury(jmsql_clean_url, "queue://orders", ["KeyError: 'customer'"])
    console = Browsing(serve(hide_bodies=hidden))
    numbers = {}
    for row in rows(console):
        [number] = re.findall(r'data-label="Messages" class="n">([^<]*)<', row)
        path, query = retry_of(row)
        assert f"<strong>{number}</strong> message" in console.get(f"{path}?{query}").text
        [shown] = re.findall(r'href="([^"]*)">Show<', row)
        assert len(re.findall('name="key"', console.get(shown.replace("&amp;", "&")).text)) == min(int(number), 50)
        numbers[number] = path, query
    assert sorted(numbers) == (["41", "5"] if hidden else ["1", "40", "5"])
    assert console.act(*numbers["41" if hidden else "1"]).startswith("41" if hidden else "1 message went back")
    path, query = numbers["5"]
    asked = console.form(f"{path}?{query}queue%3A%2F%2Fpayments")
    assert console.post(path, asked).location.startswith(f"{console.served.prefix}/dead-letters?origin=queue")
    with Administration(jmsql_factory) as administration:
        assert (administration.count("orders"), administration.count("payments")) == (41 if hidden else 1, 5)
        assert administration.count("DLQ") == (0 if hidden else 40)


def test_the_overview_begins_with_the_dead_letters_of_the_last_hour(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_factory) as administration:
        for name in ("orders", "payments", "mails"):
            administration.create_queue(name)
        administration.pause("mails")
    now = int(time.time() * 1000)
    bury(jmsql_clean_url, "queue://mails", ["ValueError: long ago"] * 9)
    assert first_line(Browsing(serve())).startswith("Dead letters, none of the last hour, ")
    bury(jmsql_clean_url, "queue://orders", ["KeyError: <b>"] * 2, now)
    bury(
        jmsql_clean_url, "queue://payments", ["ConnectionError: 7 s"] * 3 + ["ConnectionError: 8 s", "OSError: no"], now
    )
    console = Browsing(serve())
    assert first_line(console) == (
        "5 messages of queue://payments died within the last hour, 4 of ConnectionError: 8 s and others like it"
    )
    findings = re.findall(r'aria-labelledby="findings".*?</section>', console.get("/").text, re.DOTALL)[0]
    assert "queue://orders</bdi></a> died within the last hour, all of" in findings
    assert "long ago" not in findings
    path, query = retry_of(findings.partition("</p>")[0])
    answer = console.post(path, console.form(f"{path}?{query}"))
    assert answer.location.startswith(f"{console.served.prefix}/?notice=")
    assert "4 messages went back to where they come from." in console.get(answer.location).text
    with Administration(jmsql_factory) as administration:
        assert administration.count("payments") == 4
    [resume] = re.findall(r'href="([^"]*)/resume\?from=overview"', findings)
    asked = console.form(f"{resume}/resume?from=overview")
    assert console.post(f"{resume}/resume", asked).location.startswith(f"{console.served.prefix}/?notice=")
    offered = Browsing(serve(read_only=True)).get("/").text
    assert "died within the last hour" in offered
    assert "/retry?" not in offered
    assert "/resume" not in offered


def test_the_page_of_a_queue_leads_to_its_dead_letters(console: Browsing, jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("insert into jmsql_internal.queue (name) values ('orders'), ('mails & more')")
    bury(jmsql_clean_url, "queue://orders", ["KeyError: x"] * 2 + ["ValueError: y"])
    bury(jmsql_clean_url, "queue://mails & more", ["KeyError: x"])
    for name, number, groups in (("orders", "3 dead letters", 2), ("mails & more", "1 dead letter", 1)):
        shown = console.get(console.find(name)).text
        [path] = re.findall(rf'href="([^"]*)">{number} came from here<', shown)
        assert console.get(html.unescape(path)).text.count("Retry …") == groups
    assert "came from here" not in console.get(console.find("DLQ")).text


def first_line(console: Browsing) -> str:
    """Return the heading of the overview's findings."""
    [text] = re.findall(r'<h2 id="findings">(.*?)</h2>', console.get("/").text, re.DOTALL)
    return html.unescape(" ".join(re.sub(r"<[^>]*>", "", text).split()))


def test_errors_that_differ_by_a_number_or_an_identifier_share_a_row(console: Browsing, jmsql_clean_url: str) -> None:
    errors = [
        *(f"ValueError: order {number} has no customer" for number in range(300)),
        *(f"KeyError: '{number:08x}-9b1d-4c4e-8d7a-0123456789ab'" for number in range(5)),
        *(f"TimeoutError: {number}.{number} s at 0x7f{number:010x}" for number in range(4)),
        *(f"psycopg2.errors.{name}: key (id)=({name})" for name in ("UniqueViolation", "CheckViolation")),
        *(f"sqlalchemy.exc.{name}: (e) no\n{BACKGROUND}" for name in ("DataError", "DataError", "DBAPIError")),
    ]
    bury(jmsql_clean_url, "queue://orders", errors)
    found = [
        (re.sub(r"<[^>]*>", "", re.findall(r'class="error"[^>]*><bdi>([^<]*)', row)[0]),
         re.findall(r'data-label="Messages" class="n">([^<]*)<', row)[0])
        for row in rows(console)
    ]  # fmt: skip
    assert [number for _, number in found] == ["1", "2", "1", "1", "4", "5", "300"]
    assert found[-1][0] == "ValueError: order 299 has no customer"
    assert found[0][0].startswith("sqlalchemy.exc.DBAPIError")
    assert rows(console)[-1].count("and others like it") == 1
    assert rows(console)[0].count("and others like it") == 0


def test_many_causes_do_not_hide_a_frequent_one_and_the_page_counts_the_omitted(
    serve: Serve, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "SHOWN", 10)
    names = [f"{chr(97 + number % 26)}{chr(97 + number // 26)}" for number in range(60)]
    bury(jmsql_clean_url, "queue://orders", ["ValueError: frequent"] * 67)
    bury(jmsql_clean_url, "queue://orders", [f"KeyError: {name}" for name in names])
    console = Browsing(serve())
    found = rows(console)
    assert len(found) == 10
    assert any("ValueError: frequent" in row and ">67<" in row for row in found)
    text = " ".join(re.sub(r"<[^>]*>", " ", console.get("/dead-letters").text).split())
    assert "51 further groups with 51 messages are not shown" in text


def test_letters_beyond_those_that_were_looked_at_are_counted_as_more(
    serve: Serve, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jmsql.store.administration import looks

    monkeypatch.setattr(looks, "_DEAD_LETTERS", 20)
    bury(jmsql_clean_url, "queue://orders", ["KeyError: 'a'"] * 3 + ["ValueError: b"] * 20)
    console = Browsing(serve())
    assert ">20+<" in rows(console)[0]
    bury(jmsql_clean_url, "queue://orders", ["KeyError: 'a'"])
    [letter] = [row for row in rows(Browsing(serve())) if "KeyError" in row]
    assert ">1+<" in letter
    path, query = retry_of(letter)
    assert "<strong>4</strong> messages" in console.get(f"{path}?{query}").text


def test_letters_whose_origin_is_gone_say_why_they_stay(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
        bury(jmsql_clean_url, "queue://orders", ["ValueError: no"] * 2)
        bury(jmsql_clean_url, "queue://closed", ["ValueError: no"] * 3)
        bury(jmsql_clean_url, "topic://news", ["ValueError: no"])
        assert sum("is gone" in row for row in rows(console)) == 2
        letters = console.find("DLQ")
        said = console.act(f"{letters}/retry")
        assert said.startswith("2 messages went back to where they come from. 4 stayed")
        assert "queue://closed (3) and topic://news (1) are gone" in said
        again = administration.retry("DLQ")
        assert (again.returned, again.left) == ({}, 4)
        assert again.gone == {"queue://closed": 3, "topic://news": 1}
        places = [each.delivery.place for each in administration.browse("DLQ")]
        assert administration.retry("DLQ", places=places).gone == again.gone


def test_a_message_that_is_named_in_no_way_or_in_a_wrong_one_is_never_taken_for_all(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        for _ in range(3):
            context.create_producer().send(jmsql.Queue("orders"), "x")
    orders = console.find("orders")
    assert 'name="chosen"' in console.get(orders).text
    for query in ("key=garbage", "key=", "key=p5.1&key=x", "chosen=yes", "state=bogus", "cause=x", "cause=" + "g" * 64):
        answer = console.get(f"{orders}/purge?{query}")
        assert answer.status == (303 if "chosen" in query else 400), query
        assert "orders" not in answer.text, query
        fields = [("form_key", console.cookies["jmsql-console-form"]), ("newest", str(2**62))]
        names = [(name, value) for name, _, value in (each.partition("=") for each in query.split("&"))]
        assert console.post(f"{orders}/purge", [*fields, *names]).status == 400, query
    with Administration(jmsql_factory) as administration:
        assert administration.count("orders") == 3
