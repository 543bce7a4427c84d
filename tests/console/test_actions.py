"""What visitors can have done: to exactly the messages they chose, with the true number, and a line in the log."""

from __future__ import annotations

import html
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import LiteralString
from urllib.parse import urlencode

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql.admin import Administration
from jmsql.console import ActionRecord, actions
from jmsql.console.problems import has_unknown_outcome
from jmsql.store.administration import looks
from jmsql.store.errors import translate
from jmsql.testing import receive_all
from tests.console.http import Browsing, message_paths
from tests.console.serving import Served
from tests.console.test_pages import fail_all, words
from tests.integration.access.role_kinds import PASSWORD, roles_of_each_kind

ORDERS = jmsql.Queue("orders")
Serve = Callable[..., Served]


def send(factory: jmsql.ConnectionFactory, queue: str, *texts: str, **settings: float) -> None:
    with factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for text in texts:
            message = context.create_text_message(text)
            message.set_string_property("color", text.partition(" ")[0])
            context.create_producer(**settings).send(jmsql.Queue(queue), message)  # type: ignore[arg-type]
        context.commit()


def texts(factory: jmsql.ConnectionFactory, queue: str) -> list[str]:
    with Administration(factory) as administration:
        return [each.message.get_body(str) or "" for each in administration.browse(queue, limit=10_000)]


def keys(console: Browsing, path: str, *numbers: int) -> str:
    found = re.findall(r"name=\"key\" value=\"([^\"]*)\"", console.get(path).text)
    return urlencode([("key", found[number]) for number in numbers])


def test_exactly_the_chosen_messages_are_deleted(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", *map(str, range(6)))
    orders = console.find("orders")
    chosen = keys(console, orders, 1, 4)
    assert "Exactly those that you have chosen" in console.get(f"{orders}/purge?{chosen}").text
    assert console.act(f"{orders}/purge", chosen) == "2 messages deleted."
    assert texts(jmsql_factory, "orders") == ["0", "2", "3", "5"]


def test_cancelled_message_has_one_identifier_everywhere(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, caplog: pytest.LogCaptureFixture
) -> None:
    with jmsql_factory.create_context() as context:
        message_id = jmsql.send(context, "orders", "x")
    orders = console.find("orders")
    [path] = message_paths(console.get(orders).text)
    [link] = re.findall(r'href="([^"]*/cancel\?[^"]*)"', console.get(path).text)
    _, _, query = html.unescape(link).partition("?")
    assert f"<code>{message_id}</code>" in console.get(f"{orders}/cancel?{query}").text
    with caplog.at_level(logging.INFO, "jmsql.console"):
        assert "is cancelled" in console.act(f"{orders}/cancel", query)
    [record] = [json.loads(each.message) for each in caplog.records if each.name == "jmsql.console"]
    assert record["message_ids"] == [message_id]


def test_form_that_is_submitted_again_acts_once(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", "a", "b")
    orders = console.find("orders")

    def submit(action: str, fields: list[tuple[str, str]]) -> str:
        answer = console.post(f"{orders}/{action}", fields)
        assert answer.status == 303, answer.text
        [said] = re.findall(r'<p class="notice[^>]*>(.*?)</p>', console.request("GET", answer.location).text)
        return str(said)

    deletion = console.form(f"{orders}/purge")
    assert submit("purge", deletion) == "2 messages deleted."
    assert submit("purge", deletion) == "2 messages deleted. The form was submitted again, and carried out once."
    sending = console.form(f"{orders}/send")
    said = submit("send", [*sending, ("text", "x"), ("priority", "4")])
    assert submit("send", [*sending, ("text", "x"), ("priority", "4")]).startswith(f"{said} The form was submitted")
    assert "submitted again" not in submit("send", [*sending, ("text", "y"), ("priority", "4")])
    assert texts(jmsql_factory, "orders") == ["x", "y"]
    moving = console.form(f"{orders}/move")
    assert console.post(f"{orders}/move", [*moving, ("to", "others")]).status == 409
    send(jmsql_factory, "others", "z")
    assert submit("move", [*moving, ("to", "others")]) == "2 messages moved to others."


def test_question_names_the_first_of_the_chosen_messages(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", maximum_deliveries=1)
    send(jmsql_factory, "orders", *"abcdef")
    fail_all(jmsql_factory, "orders", ConnectionError("<b>no answer"))
    letters = console.find("DLQ")
    asked = console.get(f"{letters}/retry?{keys(console, letters, *range(6))}").text
    seen = words(asked)
    assert len(re.findall(r"ready ConnectionError: <b>no answer back to queue://orders", seen)) == 5
    assert "and 1 more" in seen
    [_, *addresses] = re.findall(r'href="(/destinations/[0-9]+/messages/[^"]*)"', asked)
    assert len(addresses) == 4
    assert "ConnectionError" in console.get(addresses[0]).text
    gone = keys(console, letters, 0).replace("p5.", "p5.9999")
    assert "1 message" in words(console.get(f"{letters}/purge?{gone}").text)


def test_nothing_chosen_is_said_on_the_same_page(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", *map(str, range(60)))
    orders = console.find("orders")
    page = words(console.get(orders).text)
    assert "With those chosen :" in page
    assert "With all that match the filter (60 as shown) :" in page
    assert "(50+ as shown)" in words(console.get(f"{orders}?state=ready").text)
    assert "(0 as shown)" in words(console.get(f"{orders}?state=delayed").text)
    answer = console.get(f"{orders}/purge?chosen=yes&state=ready")
    assert answer.status == 303
    assert answer.location.startswith(f"{orders}?state=ready&notice=")
    assert "No message is chosen. Tick the boxes of messages first." in console.get(answer.location).text


def test_delayed_messages_are_chosen_too(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", "now")
    send(jmsql_factory, "orders", "a", "b", "c", delivery_delay=3600.0)
    with Administration(jmsql_factory) as administration:
        administration.create_queue("other")
    orders = console.find("orders")
    assert console.act(f"{orders}/purge", keys(console, orders, 0, 2)) == "2 messages deleted."
    assert console.act(f"{orders}/move", keys(console, orders, 1), to="other") == "1 message moved to other."
    assert texts(jmsql_factory, "orders") == ["a"]
    assert texts(jmsql_factory, "other") == ["c"]


def test_messages_after_the_question_are_left_alone(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", "red 1", "blue 2", "red 3")
    path = f"{console.find('orders')}/purge"
    fields = console.form(f"{path}?selector=color+%3D+%27red%27")
    send(jmsql_factory, "orders", "red 4")
    assert console.post(path, fields).status == 303
    assert texts(jmsql_factory, "orders") == ["blue 2", "red 4"]


def test_all_messages_are_named_as_such(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", "red 1", "blue 2")
    path = f"{console.find('orders')}/purge"
    assert "</bdi>: all messages." in console.get(f"{path}?selector=&state=").text
    for chosen in ("selector=color+IS+NOT+NULL", "state=ready", keys(console, console.find("orders"), 0)):
        assert "all messages" not in console.get(f"{path}?{chosen}").text


def test_an_action_and_cancel_return_to_the_filtered_page(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    send(jmsql_factory, "orders", "red 1", "red 2", "blue 3")
    orders = console.find("orders")
    given = urlencode({"selector": "color = 'red' OR color = '\"&<'", "state": "ready"})
    shown = console.get(f"{orders}?{given}").text
    [chosen] = re.findall(r'<form method="get" class="chosen">.*?</form>', shown, re.DOTALL)
    fields = [(name, html.unescape(value)) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', chosen)]
    for query in (urlencode(fields[:-1]), given):  # the first one, and all that match
        path = f"{orders}/purge?{query}"
        assert html.escape(f"{orders}?{given}") in console.get(path).text
        answer = console.post(f"{orders}/purge", console.form(path))
        assert answer.location.removeprefix(console.served.prefix).startswith(f"{orders}?{given}&notice=")
    assert texts(jmsql_factory, "orders") == ["blue 3"]


def test_a_selector_that_is_refused_is_mended_on_the_page_of_its_queue(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    send(jmsql_factory, "orders", "red 1")
    orders = console.find("orders")
    answer = console.get(f"{orders}/purge?{urlencode({'selector': 'color = = 1'})}")
    assert answer.location == f"{console.served.prefix}{orders}?{urlencode({'selector': 'color = = 1'})}"
    page = console.get(answer.location).text
    assert 'value="color = = 1"' in page
    assert 'role="alert"' in page


def test_a_move_to_a_queue_that_does_not_exist_asks_again(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    send(jmsql_factory, "orders", "red 1", "blue 2", "red 3")
    send(jmsql_factory, "payments", "x")
    path = f"{console.find('orders')}/move"
    for query in (keys(console, console.find("orders"), 0), "selector=color+%3D+%27red%27&state=ready"):
        answer = console.post(path, [*console.form(f"{path}?{query}"), ("to", 'paymens"<b>')])
        assert answer.status == 409
        assert 'value="paymens&#34;&lt;b&gt;"' in answer.text
        assert "Similar: <code>payments</code>." in answer.text
        [form] = re.findall(r'<form class="confirm".*?</form>', answer.text, re.DOTALL)
        hidden = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
        fields = [(name, html.unescape(value)) for name, value in hidden]
        assert console.post(path, [*fields, ("to", "payments")]).status == 303
    assert texts(jmsql_factory, "orders") == ["blue 2"]
    assert len(texts(jmsql_factory, "payments")) == 3


@pytest.mark.parametrize("origin", ["https://evil.example", "//evil.example/", "dead-letters/../x"])
def test_an_action_returns_to_no_page_but_the_consoles_own(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, origin: str
) -> None:
    send(jmsql_factory, "orders", "x")
    path = f"{console.find('orders')}/purge"
    fields = console.form(f"{path}?{urlencode({'from': origin})}")
    assert console.post(path, fields).location.partition("?")[0] == f"{console.served.prefix}{console.find('orders')}"


def test_held_messages_stay_and_the_number_is_true(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", *map(str, range(5)))
    orders = console.find("orders")
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        received = context.create_consumer(ORDERS).receive(timeout=60)
        assert received is not None
        said = console.act(f"{orders}/purge", keys(console, orders, 0, 1, 2))
        assert said == "2 messages deleted. 1 stayed: a client holds them, or they are gone."
        context.rollback()
    assert texts(jmsql_factory, "orders") == ["0", "3", "4"]


def test_all_are_done_in_windows(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "WINDOW", 7)
    send(jmsql_factory, "orders", *(f"{'red' if number % 3 else 'blue'} {number}" for number in range(50)))
    with Administration(jmsql_factory) as administration:
        administration.create_queue("other")
    orders = console.find("orders")
    red = urlencode({"selector": "color = 'red'"})
    assert "<strong>33</strong> messages" in console.get(f"{orders}/move?{red}").text
    assert console.act(f"{orders}/move", red, to="other") == "33 messages moved to other."
    assert console.act(f"{orders}/purge") == "17 messages deleted."
    assert texts(jmsql_factory, "other") == [f"red {number}" for number in range(50) if number % 3]


def test_action_that_takes_long_says_how_far_it_came(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "WINDOW", 10)
    monkeypatch.setattr(actions, "_LONGEST_ACTION", -1.0)
    send(jmsql_factory, "orders", "x")
    said = console.act(f"{console.find('orders')}/purge")
    assert said == "0 messages deleted. It took long, and stopped before the end: repeat it to go on."


def test_many_are_counted_to_a_thousand(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", *["x"] * 1001)
    orders = console.find("orders")
    assert "<strong>1,000+</strong> messages" in console.get(f"{orders}/purge").text
    assert console.act(f"{orders}/purge") == "1,001 messages deleted."


def test_dead_letters_go_back_one_some_or_all(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", maximum_deliveries=1)
    send(jmsql_factory, "orders", *map(str, range(6)))
    fail_all(jmsql_factory, "orders", ValueError("no"))
    letters = console.find("DLQ")
    [first, *_] = message_paths(console.get(letters).text)
    [one] = re.findall(r"href=\"([^\"]*/retry\?key=[^\"]*)\"", console.get(first).text)
    path, _, query = one.partition("?")
    assert console.act(path, query) == "1 message went back to where they come from."
    assert console.act(f"{letters}/retry", keys(console, letters, 0, 2)).startswith("2 messages went back")
    assert console.act(f"{letters}/retry").startswith("3 messages went back")
    fail_all(jmsql_factory, "orders", ValueError("no"))
    assert "Retried before" in console.get(message_paths(console.get(letters).text)[0]).text
    assert console.act(f"{letters}/retry").startswith("6 messages went back")
    assert sorted(texts(jmsql_factory, "orders")) == list("012345")
    assert texts(jmsql_factory, "DLQ") == []


def test_messages_that_are_no_dead_letters_do_not_go_back(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    send(jmsql_factory, "DLQ", "by hand")
    letters = console.find("DLQ")
    assert console.act(f"{letters}/retry", keys(console, letters, 0)).startswith("0 messages went back")
    assert texts(jmsql_factory, "DLQ") == ["by hand"]


def test_waiting_messages_are_delivered_now_and_others_stay(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", redelivery_delay=3600.0)
    send(jmsql_factory, "orders", "red 1", "blue 2")
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        assert len(receive_all(context.create_consumer(ORDERS))) == 2
        context.rollback()
    send(jmsql_factory, "orders", "red 3", "red 4", delivery_delay=3600.0)
    send(jmsql_factory, "orders", "red 5")
    orders = console.find("orders")
    red = urlencode({"selector": "color = 'red'"})
    assert "<strong>3</strong> messages" in console.get(f"{orders}/deliver?{red}").text
    assert "There is nothing to do" in console.get(f"{orders}/deliver?state=ready").text
    assert console.act(f"{orders}/deliver", f"{red}&state=delayed") == "2 messages can be received now."
    chosen = keys(console, orders, *range(5))
    said = "2 messages can be received now. 3 stayed: they do not wait, a client holds them, or they are gone."
    assert console.act(f"{orders}/deliver", chosen) == said
    with jmsql_factory.create_context() as context:
        received = [each.get_body(str) for each in receive_all(context.create_consumer(ORDERS))]
    assert received == ["red 1", "blue 2", "red 5", "red 3", "red 4"]


def test_moving_keeps_a_message_as_it_is(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        message = context.create_map_message()
        message.set_long("n", 2**40)
        message.set_float_property("f", 1.5)
        message.jms_type = "t"
        message.jms_correlation_id = "c"
        context.create_producer(priority=7, time_to_live=3600).send(ORDERS, message)
        context.create_queue("other")
    with Administration(jmsql_factory) as administration:
        administration.create_queue("other")
    orders = console.find("orders")
    assert console.act(f"{orders}/move", to="queue://other") == "1 message moved to queue://other."
    with jmsql_factory.create_context() as context:
        [moved] = receive_all(context.create_consumer(jmsql.Queue("other")), timeout=5)
    assert isinstance(moved, jmsql.MapMessage)
    assert (moved.get_long("n"), moved.get_float_property("f"), moved.jms_type) == (2**40, 1.5, "t")
    assert (moved.jms_priority, moved.jms_correlation_id) == (7, "c")
    assert (moved.jms_message_id, moved.jms_expiration) == (message.jms_message_id, message.jms_expiration)


@pytest.mark.parametrize(("target", "reason"), [("nowhere", "no queue"), ("orders", "already"), ("", "Name the queue")])
def test_moving_to_a_wrong_queue_is_refused(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, target: str, reason: str
) -> None:
    send(jmsql_factory, "orders", "x")
    path = f"{console.find('orders')}/move"
    answer = console.post(path, [*console.form(path), ("to", target)])
    assert answer.status == 409
    assert reason in answer.text
    assert texts(jmsql_factory, "orders") == ["x"]


def test_purged_messages_are_in_the_history(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
    send(jmsql_factory, "orders", "x", "y")
    orders = console.find("orders")
    assert "the history keeps them" in console.get(f"{orders}/purge").text
    console.act(f"{orders}/purge", keys(console, orders, 0))
    with Administration(jmsql_factory) as administration:
        [past] = administration.history.messages("orders")
    assert past.entry.outcome == "purged"


def test_destinations_are_paused_and_resumed(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    send(jmsql_factory, "orders", "x")
    with Administration(jmsql_factory) as administration:
        administration.create_topic("news")
    for name, uri in (("orders", "queue://orders"), ("news", "topic://news")):
        path = console.find(name)
        assert console.act(f"{path}/pause") == f"{uri} is paused."
        assert "paused</span>" in console.get(path).text
        assert console.act(f"{path}/resume") == "Delivery goes on."
        assert "paused</span>" not in console.get(path).text


def test_text_is_sent_to_a_queue_and_to_the_subscriptions_of_a_topic(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders")
        administration.subscribe("news", "readers", "JMSPriority > 5", shared=True)
    said = console.act(f"{console.find('orders')}/send", text="one\r\ntwo <&>", priority="7", jms_type="t")
    assert re.fullmatch(r"1 message was sent: ID:[0-9a-f-]{36}\.", said)
    for priority in "49":
        console.act(f"{console.find('news')}/send", text=priority, priority=priority, jms_type="")
    with jmsql_factory.create_context() as context:
        [message] = receive_all(context.create_consumer(ORDERS), timeout=5)
        assert (message.get_body(str), message.jms_priority, message.jms_type) == ("one\ntwo <&>", 7, "t")
        consumer = context.create_shared_durable_consumer(jmsql.Topic("news"), "readers", "JMSPriority > 5")
        assert [each.get_body(str) for each in receive_all(consumer, timeout=5)] == ["9"]
    path = f"{console.find('orders')}/send"
    assert console.post(path, [*console.form(path), ("text", "x"), ("priority", "10")]).status == 409


@contextmanager
def at_each_commit(url: str, event: LiteralString, action: LiteralString) -> Iterator[None]:
    """Have the server do this as a transaction commits that has inserted or deleted a message."""
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(
            "create function public.at_commit() returns trigger language plpgsql "
            f"as $$begin {action}; return null; end$$"
        )
        database.execute(
            f"create constraint trigger at_commit after {event} on jmsql_internal.message "
            "deferrable initially deferred for each row execute function public.at_commit()"
        )
        try:
            yield
        finally:
            database.execute("drop function public.at_commit cascade")


@pytest.mark.parametrize(
    ("action", "status", "title", "outcome"),
    [
        ("raise exception 'not today'", 409, "Not done", "refused: "),
        ("perform pg_terminate_backend(pg_backend_pid())", 503, "The outcome is not known", "unknown: "),
    ],
    ids=["refused", "cut"],
)
@pytest.mark.parametrize(("form", "event"), [("send", "insert"), ("purge", "delete")])
def test_commit_that_fails_is_explained(
    serve: Serve,
    jmsql_factory: jmsql.ConnectionFactory,
    jmsql_clean_url: str,
    *,
    form: str,
    event: LiteralString,
    action: LiteralString,
    status: int,
    title: str,
    outcome: str,
) -> None:
    records: list[ActionRecord] = []
    console = Browsing(serve(on_action=records.append))
    send(jmsql_factory, "orders", "one")
    path = f"{console.find('orders')}/{form}"
    fields = [*console.form(path), ("text", "two"), ("priority", "4"), ("jms_type", "")]
    with at_each_commit(jmsql_clean_url, event, action):
        answer = console.post(path, fields)
    assert (answer.status, title in answer.text) == (status, True)
    assert ("Nothing more was done" in answer.text) == (status == 409)
    [record] = records
    assert record.outcome.startswith(outcome)
    assert texts(jmsql_factory, "orders") == ["one"]


def test_outcome_is_known_where_the_connection_could_not_be_made() -> None:
    error = translate(psycopg.OperationalError("connection failed: Connection refused"), "connecting")
    assert error.error_code == "08001"
    assert not has_unknown_outcome(error)


def test_subscription_is_deleted_if_its_name_is_repeated(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.subscribe("news", "readers", client_id="c")
    path = f"{console.find('readers')}/delete"
    answer = console.post(path, [*console.form(path), ("name", "others")])
    assert answer.status == 409
    assert "Nothing was deleted" in answer.text
    assert console.act(path, name="readers") == "The subscription readers was deleted."
    with Administration(jmsql_factory) as administration:
        assert administration.subscriptions() == []


def test_each_action_is_one_line_in_the_log_and_one_call(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jmsql.console")
    records: list[ActionRecord] = []
    console = Browsing(serve(on_action=records.append))
    send(jmsql_factory, "orders\n{}", "red 1", "blue 2", "red 3")
    with Administration(jmsql_factory) as administration:
        ids = [str(each.message.jms_message_id) for each in administration.browse("orders\n{}")]
    path = console.find("orders\n{}")
    console.act(f"{path}/purge", urlencode({"selector": "color = 'red'"}))
    console.act(f"{path}/pause")
    wrong = f"{path}/move"
    console.post(wrong, [*console.form(wrong), ("to", "nowhere")])
    lines = [
        each.getMessage() for each in caplog.records if each.name == "jmsql.console" and each.message.startswith("{")
    ]
    assert all("\n" not in line for line in lines)
    assert lines == [each.as_json() for each in records]
    assert [json.loads(line)["at"] for line in lines] == [each.at.isoformat() for each in records]
    purged, paused, refused = records
    assert purged == ActionRecord(
        purged.at, "purge", "alice", "127.0.0.1", "queue://orders\n{}", None, "color = 'red'", None, None, None,
        [ids[0], ids[2]], 2, "done",
    )  # fmt: skip
    assert abs(purged.at.timestamp() - time.time()) < 3600
    assert (paused.action, paused.outcome) == ("pause", "done")
    assert refused.outcome.startswith("refused: There is no queue 'nowhere'")
    assert refused.message_ids == [ids[1]]


def test_record_names_the_subscription_the_state_and_the_messages(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    records: list[ActionRecord] = []
    console = Browsing(serve(on_action=records.append))
    with Administration(jmsql_factory) as administration:
        administration.subscribe("news", "readers", client_id="c")
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Topic("news"), "x")
        delayed = context.create_text_message("y")
        context.create_producer(delivery_delay=3600).send(jmsql.Topic("news"), delayed)
    readers = console.find("readers")
    console.act(f"{readers}/purge", "state=delayed")
    console.act(f"{readers}/purge", keys(console, readers, 0))
    console.act(f"{console.find('news')}/send", text="z", priority="4", jms_type="")
    console.act(f"{readers}/delete", name="readers")
    assert [(each.action, each.subscription, each.state, each.chosen, each.number) for each in records] == [
        ("purge", "c/readers", "delayed", None, 1),
        ("purge", "c/readers", None, 1, 1),
        ("send", None, None, None, 1),
        ("delete subscription", "c/readers", None, None, 0),
    ]
    assert [len(each.message_ids) for each in records] == [1, 1, 1, 0]
    assert records[0].message_ids == [delayed.jms_message_id]


def test_failing_on_action_undoes_nothing(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: ActionRecord) -> None:
        raise RuntimeError("no")

    send(jmsql_factory, "orders", "x")
    console = Browsing(serve(on_action=fail))
    assert console.act(f"{console.find('orders')}/purge") == "1 message deleted."
    assert "on_action has failed" in caplog.text


@contextmanager
def role(url: str, kind: str) -> Iterator[str]:
    """Yield the URL with which a role of a kind connects."""
    protected = (
        "select oid::regclass::text from pg_class where relrowsecurity "
        "and relnamespace = 'jmsql_internal'::regnamespace"
    )
    with psycopg.connect(url, autocommit=True) as database:
        before = database.execute(protected).fetchall()
        try:
            with roles_of_each_kind(database) as names:
                yield (
                    sqlalchemy.make_url(url)
                    .set(username=names[kind], password=PASSWORD)
                    .render_as_string(hide_password=False)
                )
        finally:
            database.execute("delete from jmsql_internal.permission")
            for (table,) in set(database.execute(protected).fetchall()) - set(before):
                database.execute(f"alter table {table} disable row level security".encode())


def test_actions_that_the_role_may_not_do_are_not_offered_and_are_refused(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    send(jmsql_factory, "orders", "x")
    with role(jmsql_clean_url, "browser of all") as url:
        console = Browsing(serve(factory=jmsql.ConnectionFactory(url)))
        orders = console.find("orders")
        for path in ("/", "/dead-letters", "/clients", orders, *message_paths(console.get(orders).text)):
            answer = console.get(path)
            assert answer.status == 200, path
            assert not re.search(r"/(purge|move|pause|send)\b", answer.text), path
        for action, more in (("purge", []), ("pause", []), ("send", [("text", "y"), ("priority", "4")])):
            key = console.cookies["jmsql-console-form"]
            answer = console.post(f"{orders}/{action}", [("form_key", key), ("key", "p5.1"), *more])
            assert answer.status == 403, (action, answer.text)
    assert texts(jmsql_factory, "orders") == ["x"]


def test_messages_that_the_role_may_not_browse_are_said_to_be_hidden(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    send(jmsql_factory, "orders", "mine")
    send(jmsql_factory, "secrets", "others")
    with role(jmsql_clean_url, "browser") as url:
        console = Browsing(serve(factory=jmsql.ConnectionFactory(url)))
        assert "mine" in console.get(console.find("orders")).text
        hidden = console.get(console.find("secrets"))
        assert hidden.status == 200
        assert "may not browse this destination" in hidden.text
        assert "others" not in hidden.text
        text = console.get("/").text
        assert "orders" in text
        assert "secrets" not in text
        remark = "may not browse all destinations. Messages, dead letters and results elsewhere are not shown."
        for path in ("/dead-letters", "/results", "/batches", "/messages?type=none", "/destinations", "/clients"):
            assert remark in console.get(path).text, path
    with role(jmsql_clean_url, "browser of all") as url:
        console = Browsing(serve(factory=jmsql.ConnectionFactory(url)))
        assert remark not in console.get("/dead-letters").text


def test_results_lead_on(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", maximum_deliveries=1)
        administration.create_queue("mails <&>")
    send(jmsql_factory, "orders", "a", "b")
    fail_all(jmsql_factory, "orders", ConnectionError("no answer"))
    letters = console.find("DLQ")
    for action, fields, address in (
        ("move", {"to": "mails <&>"}, "/origin?destination=queue%3A%2F%2Fmails+%3C%26%3E"),
        ("retry", {}, "/dead-letters"),
    ):
        path = f"{letters}/{action}"
        answer = console.post(path, [*console.form(f"{path}?{keys(console, letters, 0)}"), *fields.items()])
        text = console.get(answer.location).text
        assert '<p class="notice"' in text, action
        assert f'<a href="{address}"><bdi>' in text, action
        assert console.get(address).status in {200, 303}, action
    assert "handled" in console.get(f"{console.find('orders')}/pause").text
    assert '<a href="/messages?property=customer%3D33">property</a>' in console.get("/search?q=customer%3D33").text
