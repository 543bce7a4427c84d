"""The pages of stored results."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from urllib.parse import urlencode

import psycopg
import pytest
from typer.testing import CliRunner

import jmsql
from jmsql.admin import Administration
from jmsql.cli.application import app as command
from jmsql.store.administration import results
from jmsql.worker import Application
from tests.console.http import Browsing, message_paths
from tests.console.kept_results import keep
from tests.console.serving import Served
from tests.console.test_actions import role
from tests.console.test_browser import HOSTILE
from tests.console.test_pages import fail_all, words

Serve = Callable[..., Served]
VALUE = '{"goods":"<b>kite</b> & \\u0000\\ud800\\u202e","price":1e16,"parts":[]}'
ERROR = f'Traceback (most recent call last):\n  File "shop.py", line 7\nValueError: {HOSTILE}'


@pytest.fixture
def filled(jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str) -> dict[str, str]:
    """A store with a result of each kind, by their names the identifiers of the messages."""
    with Administration(jmsql_factory) as administration:
        for name in ("orders", "other", HOSTILE):
            administration.create_queue(name)
    huge = json.dumps(["x" * 100] * 30_000)
    kinds = {
        "done": keep(jmsql_clean_url, "orders", "done", value=VALUE),
        "failed": keep(jmsql_clean_url, HOSTILE, "failed", error=ERROR),
        "expired": keep(jmsql_clean_url, "other", "expired"),
        "huge": keep(jmsql_clean_url, "other", "done", value=huge),
        "deep": keep(jmsql_clean_url, "other", "done", value="[" * 3000 + "]" * 3000),
    }
    return {name: found for name, [found] in kinds.items()}


def test_results_are_listed_and_shown_as_text(
    console: Browsing, filled: dict[str, str], jmsql_clean_url: str, serve: Serve
) -> None:
    listed = console.get("/results").text
    assert listed.count('href="/results/ID:') == len(filled)
    assert "<b>" not in listed
    assert "a long value" in listed
    assert "ValueError: &lt;script&gt;" in listed
    assert "1.500 s" in listed
    done = console.get(f"/results/{filled['done']}").text
    assert '"price": 1e16' in html.unescape(done)
    assert r"<b>kite</b> & \u0000\ud800\u202e" in html.unescape(done)
    assert "<b>" not in done
    failed = console.get(f"/results/{filled['failed']}").text
    assert "Traceback" in failed
    assert "[U+202E]" in failed
    huge = console.get(f"/results/{filled['huge']}").text
    assert "this is the beginning of it" in huge
    assert len(huge) < 400_000
    assert "[[[[" in console.get(f"/results/{filled['deep']}").text
    hidden = Browsing(serve(hide_bodies=True))
    for path in ("/results", *(f"/results/{each}" for each in filled.values())):
        assert not re.search("kite|Traceback|ValueError|xxxx|\\[\\[", hidden.get(path).text), path
    with Administration(jmsql_clean_url) as administration:
        administration.delete("queue://orders")
    assert "is gone" in console.get(f"/results/{filled['done']}").text


def test_lists_of_results_are_filtered_and_go_on(
    console: Browsing, filled: dict[str, str], jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_WINDOW", 40)
    keep(jmsql_clean_url, "orders", "failed", 120, error="ValueError: 7")

    def walked(**query: str) -> list[int]:
        path, seen = f"/results?{urlencode(query)}", []
        while path:
            text = console.get(path).text
            seen.append(text.count('href="/results/ID:'))
            path = next(map(html.unescape, re.findall(r'rel="next" href="([^"]*)"', text)), "")
        return seen

    assert walked() == [50, 50, 20 + len(filled)]
    assert walked(queue="orders", state="failed") == [50, 50, 20]
    assert walked(queue="orders", state="done") == [1]
    assert walked(queue=HOSTILE) == [1]
    assert walked(queue="nowhere") == [0]
    monkeypatch.setattr("jmsql.console.results.TIME_LIMIT", 0.0)
    assert walked(state="expired") == [0, 0, 0, 1]
    assert "None among the next 40." in console.get("/results?state=expired").text
    with Administration(jmsql_clean_url) as administration:
        first = administration.results("orders", limit=100)
        rest = administration.results("orders", before=first[-1].position)
        assert len({each.message_id for each in first + rest}) == 121
        assert [each.message_id for each in administration.results(state="expired")] == [filled["expired"]]
        assert administration.results(limit=0) == []
        for wrong in ("x", "1.2.3", first[0].position + "0000000000", "99" + first[0].position):
            with pytest.raises(ValueError, match="Expected the position of a result"):
                administration.results(before=wrong)
            assert console.get(f"/results?before={wrong}").status == 400
        with pytest.raises(ValueError, match="Expected a state"):
            administration.results(state="running")
        with pytest.raises(TypeError, match="Expected queue as a str"):
            administration.results(7)  # type: ignore[arg-type]


def test_results_of_other_queues_are_not_shown(filled: dict[str, str], serve: Serve, jmsql_clean_url: str) -> None:
    with role(jmsql_clean_url, "browser") as url:  # of orders
        visitor = Browsing(serve(factory=jmsql.ConnectionFactory(url)))
        assert visitor.get("/results").text.count('href="/results/ID:') == 1
        assert visitor.get(f"/results/{filled['done']}").status == 200
        assert visitor.get(f"/results/{filled['failed']}").status == 404


def test_result_is_linked_from_its_queue_its_message_and_the_search(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    app = Application()

    @app.listener("orders", keep_result=3600)
    def quote(goods: str) -> str:
        return goods.upper()

    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", maximum_deliveries=1)
    with psycopg.connect(jmsql_clean_url) as database:
        # As a worker does when it starts.
        database.execute(
            "insert into jmsql_internal.result_keeping (queue_id, seconds) "
            "select queue_id, 3600 from jmsql_internal.queue where name = 'orders'"
        )
        done = quote.send(database, "kite")
        app.drain(transaction=database)
        failed = quote.send(database, "<b>")
    fail_all(jmsql_factory, "orders", KeyError("<b>"))
    queue = console.get(console.find("orders")).text
    [path] = re.findall(r'href="(/results\?[^"]*)"', queue)
    assert words(console.get(path).text).count("orders") >= 2
    assert f'href="/results/{done}"' in console.get(f"/messages?id={done}").text
    [letter] = message_paths(console.get(console.find("DLQ")).text)
    assert f'href="/results/{failed}"' in console.get(letter).text
    assert "KeyError" in console.get(f"/results/{failed}").text


def test_the_command_lists_and_shows_results(filled: dict[str, str], jmsql_clean_url: str) -> None:
    def run(*words: str, exit_code: int = 0) -> str:
        ran = CliRunner().invoke(command, ["result", *words, "--url", jmsql_clean_url], env={"COLUMNS": "200"})
        assert ran.exit_code == exit_code, ran.output
        return ran.output if exit_code else ran.stdout

    assert filled["done"] in run("list", "orders")
    assert filled["done"] not in run("list", "--state", "failed")
    assert "There is no such result." in run("list", "nowhere")
    found = json.loads(run("list", "--limit", "2", "--json"))
    assert [each["message_id"] for each in found] == [filled["deep"], filled["huge"]]
    assert json.loads(run("list", "--before", found[1]["position"], "--json"))[0]["message_id"] == filled["expired"]
    shown = run("show", filled["failed"])
    assert "ValueError" in shown
    assert "\x1b" not in shown
    assert json.loads(run("show", filled["done"], "--json"))["value"]["price"] == 1e16
    assert "without keep_result" in run("show", "ID:x", exit_code=1)
    assert json.loads(run("show", "ID:x", "--json", exit_code=1))["state"] == "unknown"


def test_a_message_that_has_left_is_looked_up_among_the_results(filled: dict[str, str], jmsql_clean_url: str) -> None:
    ran = CliRunner().invoke(command, ["show", filled["done"], "--url", jmsql_clean_url])
    assert ran.exit_code == 1
    assert f"`jmsql result show {filled['done']} --url " in ran.stderr
