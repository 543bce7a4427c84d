"""The pages of batches."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import psycopg

import jmsql
from jmsql.admin import Administration
from tests.console.http import Browsing, message_paths
from tests.console.serving import Served
from tests.console.test_pages import fail_all, words

HOSTILE = "<b>hostile</b> & 'co'"


def test_batches_are_shown_with_their_counts_and_messages(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, serve: Callable[..., Served]
) -> None:
    assert "There are no batches." in console.get("/batches").text
    with Administration(jmsql_factory) as administration:
        administration.create_queue("broken", maximum_deliveries=1)
    with jmsql_factory.create_connection() as connection:
        connection.start()
        with jmsql.batch(connection, HOSTILE, on_end=HOSTILE, on_failure="alarms") as first:
            first.send_many("parts", ["one", "two", "three"])
            first.send("broken", "four")
        with jmsql.batch(connection, "nightly"):
            pass
        session = connection.create_session()
        assert session.create_consumer("parts").receive(60) is not None
        fail_all(jmsql_factory, "broken", ValueError("no"))
        text = console.get("/batches").text
        assert "<b>" not in text
        assert 'aria-label="1 done, 1 failed, 0 expired or cancelled, 2 waiting"' in text
        assert re.search(r"nightly ended.* <b>hostile</b> & 'co' running 4 1 1 2 ", words(text))
        assert "nightly" not in console.get("/batches?name=%3Cb%3Ehostile%3C/b%3E%20%26%20%27co%27").text
        page = console.get(f"/batches/{first.id}").text
        assert "<b>" not in page
        assert "On end sends to <b>hostile" in words(page)
        assert "On failure sends to alarms" in words(page)
        [waiting] = re.findall('href="([^"]*)">waiting<', page)
        [failed] = re.findall('href="([^"]*)">failed<', page)
        assert len(message_paths(console.get(html.unescape(waiting)).text)) == 2
        [letter] = message_paths(console.get(html.unescape(failed)).text)
        assert f'href="/batches/{first.id}"' in console.get(letter).text
        hidden = Browsing(serve(hide_bodies=True)).get(f"/batches/{first.id}?live=1").text
        assert "DeadLetterReason" not in hidden
        assert words(hidden).startswith("running messages 4 done 1 failed 1")


def test_lists_of_batches_are_bounded(console: Browsing, jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("insert into jmsql_internal.batch (name) select 'n' from generate_series(1, 45)")
    path, seen = "/batches?name=n", []
    while path:
        text = console.get(path).text
        seen.append(len(re.findall(r"/batches/\d+", text)))
        assert console.get(f"{path}&live=1").status == 200
        path = next(map(html.unescape, re.findall(r'rel="next" href="([^"]*)"', text)), "")
    assert seen == [20, 20, 5]
    for wrong in ("/batches/0", f"/batches/{2**62}", "/batches/x", f"/batches/{2**63}", "/batches?before=x"):
        assert console.get(wrong).status in (400, 404), wrong
    assert console.get("/batches?before=9223372036854775807").status == 200
