"""What the pages show."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration
from jmsql.console import poller
from jmsql.store.administration import looks
from jmsql.testing import wait_for
from tests.console.http import Browsing, message_paths
from tests.console.serving import Served

ORDERS, PRICES = jmsql.Queue("orders"), jmsql.Topic("prices")
Serve = Callable[..., Served]


def words(text: str) -> str:
    """Return what a reader sees of a page, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def fail_all(factory: jmsql.ConnectionFactory, queue: str, error: Exception) -> None:
    """Have all messages of a queue fail, so that they become dead letters."""

    def listen(_: jmsql.Message) -> None:
        raise error

    with factory.create_connection() as connection, Administration(factory) as administration:
        session = connection.create_session()
        session.create_consumer(jmsql.Queue(queue)).message_listener = listen
        connection.start()
        wait_for(lambda: administration.count(queue) == 0, timeout=60)


@pytest.mark.parametrize("wrong_by", [-7200.0, 7200.0], ids=["slow", "fast"])
def test_ages_go_by_the_servers_clock(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch, wrong_by: float
) -> None:
    clock = SimpleNamespace(time=lambda: time.time() + wrong_by)
    for module in ("jmsql.console.database", "jmsql.store.administration.diagnosis"):
        monkeypatch.setattr(f"{module}.time", clock)
    with psycopg.connect(jmsql_factory.url or "") as database:
        jmsql.send(database, ORDERS, "x")
        database.execute(
            "update jmsql_internal.message set jms_timestamp = jms_timestamp - 3600000 where jms_timestamp is not null"
        )
    console = Browsing(serve())
    shown = words(console.get("/").text)
    assert re.search(r"messages 1 oldest 1 h [01] min", shown)
    assert re.search(r"orders 1 1 h [01] min", words(console.get("/destinations?sort=age").text))
    assert "1 h" in words(console.get(str(console.get("/search?q=orders").headers["Location"])).text)


def test_overview_says_what_its_sums_leave_out(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    assert "stands for more" not in words(console.get("/").text)
    with jmsql_factory.create_context() as context:
        for name in ("orders", "mails"):
            jmsql.send(context, name, "x")
    with psycopg.connect(jmsql_factory.url or "") as database:
        for _ in range(1001):
            jmsql.send(database, ORDERS, "x")
    wait_for(lambda: "1,001+" in words(console.get("/").text), timeout=60)
    shown = words(console.get("/").text)
    assert "+ stands for more: of each destination, at most 1,000 messages are counted." in shown


def test_overview_of_an_empty_store_shows_zeros(console: Browsing) -> None:
    text = words(console.get("/").text)
    assert re.search(r"messages 0 oldest \S in /s 0 out /s 0 failed /s 0 dead letters 0 receiving 0 paused 0", text)
    assert "No dead letters" in text
    assert "Nothing waits" in text
    assert "No client is connected" in words(console.get("/clients").text)


def test_overview_shows_the_oldest_first_with_depth_and_receivers(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        producer = context.create_producer()
        producer.send(jmsql.Queue("older"), "x")
        producer.send(jmsql.Queue("newer"), "x")
        for _ in range(1005):
            producer.send(jmsql.Queue("newer"), "x")
        context.create_shared_durable_consumer(PRICES, "web").close()
        producer.send(PRICES, "x")
        text = words(console.get("/").text)
    assert text.index("older under 1 min 1 0 0 0") < text.index("newer under 1 min 1,000+ 0 0 0")
    assert text.index("newer under") < text.index("prices → web under 1 min 1 0 0")
    assert "no consumer receives from 'older' (1 message" in text


def test_overview_shows_problems_before_notes_with_the_way_out(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", paused=True)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        database.execute("alter table jmsql_internal.delivery set (autovacuum_enabled = off)")
        try:
            text = words(console.get("/").text)
        finally:
            database.execute("alter table jmsql_internal.delivery reset (autovacuum_enabled)")
    assert text.startswith("Overview · jmsql")
    assert "dead letters 0 receiving 0 paused 1" in text
    assert "1 problem" in text
    assert "Turn autovacuum on: alter table jmsql_internal.delivery reset (autovacuum_enabled)" in text
    assert text.index("Turn autovacuum on") < text.index("'orders' (0 messages) is paused")
    assert "To go on: jmsql resume orders" in text


def test_dead_letters_are_grouped_by_origin_and_error(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("payments", maximum_deliveries=1)
        administration.create_queue("mails", maximum_deliveries=1)
    with jmsql_factory.create_context() as context:
        for name, number in (("payments", 3), ("mails", 2)):
            for _ in range(number):
                context.create_producer().send(jmsql.Queue(name), "x")
    fail_all(jmsql_factory, "payments", ValueError("card was declined"))
    fail_all(jmsql_factory, "mails", OSError("no route"))
    for path in ("/", "/dead-letters"):
        text = words(console.get(path).text)
        assert re.search(r"queue://payments maximum deliveries ValueError: card was declined (DLQ )?3 ", text), path
        assert re.search(r"queue://mails maximum deliveries OSError: no route (DLQ )?2 ", text), path
    groups = console.get("/dead-letters").text
    [mails] = [row for row in groups.split("<tr>") if "queue://mails" in row]
    [show] = re.findall(r"href=\"([^\"]*)\">Show<", mails)
    assert len(message_paths(console.get(html.unescape(show)).text)) == 2
    text = console.get(message_paths(console.get(html.unescape(show)).text)[0]).text
    assert "Traceback (most recent call last)" in text
    assert re.search(
        r"from queue://mails \( its history there \) Died .* Dead because of maximum deliveries, after 1 delivery",
        words(text),
    )


def test_search_finds_parts_of_names_and_pages_through_all(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with Administration(jmsql_factory) as administration:
        for number in range(120):
            administration.create_queue(f"Region {number:03}")
        administration.create_topic("region news")
        administration.subscribe("region news", "every region", shared=True)
    seen: list[str] = []
    path = "/search?q=reGION"
    while path:
        answer = console.get(path)
        seen += re.findall(r"<bdi>([^<]*)</bdi></a>", answer.text)
        path = html.unescape(next(iter(re.findall(r"rel=\"next\" href=\"([^\"]*)\"", answer.text)), ""))
    assert sorted(seen) == sorted([*(f"Region {number:03}" for number in range(120)), "region news", "every region"])
    exact = console.get("/search?q=Region+007")
    assert exact.status == 303
    assert "There is none" in words(console.get("/search?q=%25").text)


def test_pages_of_messages_lose_none_though_all_have_the_same_time(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        for number in range(170):
            context.create_producer(priority=number % 3).send(ORDERS, str(number))
        context.create_producer(delivery_delay=timedelta(hours=1)).send(ORDERS, "170")
        context.commit()
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("update jmsql_internal.message set jms_timestamp = 1700000000000")
    bodies: list[str] = []
    path = console.find("orders")
    while path:
        answer = console.get(path)
        bodies += re.findall(r"class=\"preview\"><bdi>(\d+)</bdi>", answer.text)
        path = html.unescape(next(iter(re.findall(r"rel=\"next\" href=\"([^\"]*)\"", answer.text)), ""))
    expected = [str(number) for rest in (2, 1, 0) for number in range(170) if number % 3 == rest]
    assert bodies == [*expected, "170"]


def test_messages_are_shown_by_state_and_selector(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        for color in ("red", "blue", "red"):
            message = context.create_text_message(color)
            message.set_string_property("color", color)
            context.create_producer().send(ORDERS, message)
        context.create_producer(delivery_delay=3600).send(ORDERS, "later")
    orders = console.find("orders")
    assert len(message_paths(console.get(f"{orders}?selector=color+%3D+%27red%27").text)) == 2
    assert len(message_paths(console.get(f"{orders}?state=delayed").text)) == 1
    assert len(message_paths(console.get(f"{orders}?state=ready&selector=color+%3D+%27blue%27").text)) == 1
    assert message_paths(console.get(f"{orders}?state=expired").text) == []
    figures = words(console.get(orders).text)
    assert "ready 3 claimed 0 waiting 0 expired 0 delayed 1" in figures
    wrong = console.get(f"{orders}?selector=color+%3D+%3D+1")
    assert wrong.status == 200
    assert "    color = = 1\n            ^" in html.unescape(wrong.text)
    assert console.get(f"{orders}?selector=%00").status == 200


def send_all_kinds(context: jmsql.JMSContext) -> dict[str, jmsql.Message]:
    text = context.create_text_message("plain text")
    document = context.create_text_message('{"number": 1.50, "list": [1, 2]}')
    mapped = context.create_map_message()
    mapped.set_short("weight", 7)
    mapped.set_bytes("raw", b"\x01\xff")
    stream = context.create_stream_message()
    stream.write_int(5)
    stream.write_string("five")
    raw = context.create_bytes_message()
    raw.write_bytes(bytes(range(40)))
    thing = context.create_object_message({"answer": 42})
    empty = context.create_message()
    return {
        "text": text, "json": document, "map": mapped, "stream": stream, "hex": raw, "object": thing, "none": empty
    }  # fmt: skip


def test_bodies_are_shown_by_their_type(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    shown = {
        "text": "plain text",
        "json": '{\n  "number": 1.50,\n  "list": [\n    1,\n    2\n  ]\n}',
        "map": "weight short 7",
        "stream": "2 five",
        "hex": "00000010  10 11 12 13 14 15 16 17  18 19 1a 1b 1c 1d 1e 1f  ................",
        "object": '"answer": 42',
        "none": "It has no body",
    }
    with jmsql_factory.create_context() as context:
        for kind, message in send_all_kinds(context).items():
            context.create_producer().send(jmsql.Queue(kind), message)
    for kind, expected in shown.items():
        [path] = message_paths(console.get(console.find(kind)).text)
        text = html.unescape(console.get(path).text)
        assert expected in (words(text) if kind in {"map", "stream", "none"} else text), kind


def test_message_has_typed_properties_headers_and_its_group(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        message = context.create_text_message("x")
        message.set_byte_property("small", 1)
        message.set_double_property("ratio", 0.5)
        message.set_boolean_property("urgent", True)
        message.set_string_property("JMSXGroupID", "it's one")
        message.jms_type = "order"
        message.jms_correlation_id = "c-1"
        message.jms_reply_to = jmsql.Queue("answers")
        context.create_producer(priority=9, time_to_live=3600).send(ORDERS, message)
    listed = console.get(console.find("orders")).text
    [path] = message_paths(listed)
    text = console.get(path).text
    seen = words(text)
    properties = ("small byte 1", "ratio double 0.5", "urgent boolean true")
    headers = ("JMSPriority 9", "JMSType order", "JMSCorrelationID c-1", "JMSReplyTo queue://answers")
    for expected in (*properties, *headers, f"JMSMessageID {message.jms_message_id}"):
        assert expected in seen
    for page in (text, listed):
        [group] = re.findall(r"href=\"([^\"]*JMSXGroupID[^\"]*)\"", page)
        assert message_paths(console.get(html.unescape(group)).text) == [path]


def test_long_bodies_are_cut_and_said_to_be(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x" * 1_000_000)
    [path] = message_paths(console.get(console.find("orders")).text)
    answer = console.get(path)
    assert "976.6 KiB; this is the beginning of it" in words(answer.text)
    assert 250_000 < len(answer.text) < 300_000


def test_message_that_is_gone_is_said_to_be_gone(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
        [path] = message_paths(console.get(console.find("orders")).text)
        assert context.create_consumer(ORDERS).receive(timeout=60) is not None
    answer = console.get(path)  # once the context is closed, the commit of the receive is answered
    assert answer.status == 404
    assert "not there any more" in answer.text
    wrong = ("messages/present/77/1", "messages/none/5/1", f"messages/present/5/{2**70}")
    for impossible in (*(f"/destinations/1/{each}" for each in wrong), f"/topics/{2**30}", f"/topics/{2**40}"):
        assert console.get(impossible).status == 404


def test_topic_shows_its_subscriptions(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.subscribe(PRICES, "web", "symbol = 'A'", shared=True)
        administration.subscribe(PRICES, "audit", client_id="risk")
    with jmsql_factory.create_context() as context:
        context.create_producer().send(PRICES, "x")
    seen = words(console.get(console.find("prices")).text)
    assert "web durable, shared symbol = 'A' 0 0" in seen
    assert "audit of risk durable 1 0" in seen
    subscription = words(console.get(console.find("web")).text)
    assert "Subscription to prices web" in subscription
    assert "Selector symbol = 'A'" in subscription


def test_clients_page_shows_held_messages_and_open_transactions(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "warehouse"
        connection.start()
        holding = connection.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
        holding.create_producer(ORDERS).send(jmsql.Message())
        assert holding.create_consumer(ORDERS).receive(timeout=60) is not None
        transacted = connection.create_session(transacted=True)
        transacted.create_producer(ORDERS).send(jmsql.Message())
        transacted.database.exec_driver_sql("select 1")
        seen = words(console.get("/clients").text)
        assert "warehouse" in seen
        assert re.search(r"orders 1 [0-9]+ s", seen)
        assert re.search(r"idle in transaction [0-9]+ s", seen)


def test_history_shows_acknowledged_messages(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
    with jmsql_factory.create_context() as context:
        for number in range(3):
            context.create_producer().send(ORDERS, f"number {number}")
        consumer = context.create_consumer(ORDERS)
        received = [consumer.receive(timeout=60) for _ in range(3)]
    path = f"{console.find('orders')}/history"
    assert re.findall(r"number \d", console.get(path).text) == ["number 2", "number 1", "number 0"]
    assert received[1] is not None
    assert re.findall(r"number \d", console.get(f"{path}?message={received[1].jms_message_id}").text) == ["number 1"]


SECRET = "classified"


@pytest.fixture
def hiding(serve: Serve, jmsql_factory: jmsql.ConnectionFactory) -> Browsing:
    """A console that hides bodies, on a store whose bodies, properties and errors say what must not be seen."""
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
        administration.create_queue("payments", maximum_deliveries=1)
    with jmsql_factory.create_context() as context:
        for name in ("orders", "payments", "orders"):
            message = context.create_text_message(SECRET)
            message.set_string_property("color", SECRET)
            context.create_producer().send(jmsql.Queue(name), message)
        assert context.create_consumer(ORDERS).receive(timeout=60) is not None
    fail_all(jmsql_factory, "payments", ValueError(SECRET))
    return Browsing(serve(hide_bodies=True))


def test_hidden_bodies_properties_and_errors_are_on_no_page(hiding: Browsing) -> None:
    orders, letters = hiding.find("orders"), hiding.find("DLQ")
    paths = ["/", "/dead-letters", "/clients", orders, letters, f"{orders}/history"]
    for place in (orders, letters):
        paths += message_paths(hiding.get(place).text)
    assert len(paths) == 8
    for path in paths:
        answer = hiding.get(path)
        assert answer.status == 200, path
        assert SECRET not in answer.text, path


def test_hidden_properties_cannot_be_guessed_by_selectors(hiding: Browsing) -> None:
    orders = hiding.find("orders")
    for selector in ("color+LIKE+%27c%25%27", "color+IS+NULL", "JMSPriority+%3D+4+AND+NOT+color+%3D+%27x%27"):
        answer = hiding.get(f"{orders}?selector={selector}")
        assert answer.status == 403
        assert "headers alone" in answer.text
        assert hiding.get(f"{orders}/purge?selector={selector}").status == 403
    assert len(message_paths(hiding.get(f"{orders}?selector=JMSPriority+%3D+4").text)) == 1


def test_hidden_columns_are_not_selected(
    hiding: Browsing, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What PostgreSQL is asked for has none of the columns."""
    from jmsql.store.wire._sync.runner import PsycopgRunner

    asked: list[str] = []
    execute = PsycopgRunner.execute

    def listen(self: PsycopgRunner, statement: bytes, parameters: Any) -> Any:
        asked.append(statement.decode())
        return execute(self, statement, parameters)

    monkeypatch.setattr(PsycopgRunner, "execute", listen)
    orders = hiding.find("orders")
    paths = ["/dead-letters", orders, f"{orders}/history", *message_paths(hiding.get(orders).text)]
    for path in paths:
        assert hiding.get(path).status == 200
    looks = [
        statement for statement in asked if 'jmsql_internal".message' in statement or "message_history" in statement
    ]
    assert len(looks) > 5
    for statement in looks:
        assert not re.search(r"(text|json|bytes)_body|property_types|last_error|LastError", _selected(statement)), (
            statement
        )


def _selected(statement: str) -> str:
    """Return a statement without what looks the state of a delivery up, whose columns are not all returned."""
    return re.sub(r"select t\.claim_id.*?offset 0", "", statement, flags=re.DOTALL)


def test_database_that_does_not_answer_gets_a_page_that_says_so(serve: Serve) -> None:
    factory = jmsql.ConnectionFactory("postgresql://nobody@127.0.0.1:1/none")
    visitor = Browsing(serve(factory=factory))
    first = visitor.get("/")
    assert first.status == 200
    assert "cannot be looked at" in first.text
    answer = visitor.get("/clients")
    assert answer.status == 503
    assert "The database does not answer" in answer.text
    assert "127.0.0.1" in answer.text


def test_findings_count_all_rows_beyond_those_shown(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "SHOWN", 3)
    monkeypatch.setattr(poller, "_TRACKED", 5)
    with Administration(jmsql_factory) as administration:
        administration.create_queue("DLQ")
        for number in range(55):
            administration.create_queue(f"paused {number}", paused=True)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.queue (name) select 'waiting ' || n from generate_series(1, 40) n;"
            "insert into jmsql_internal.message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body) "
            "select queue_id, 5, 2, 'TextMessage', 1, 'x' from jmsql_internal.queue, generate_series(1, 2) "
            "where name like 'waiting%' or name = 'DLQ';"
            "insert into jmsql_internal.message "
            "(queue_id, inverse_priority, jms_delivery_mode, message_type, jms_timestamp, text_body) "
            "select queue_id, 5, 2, 'TextMessage', 2, 'x' from jmsql_internal.queue, generate_series(1, 1500) "
            "where name = 'paused 0'"
        )
    text = html.unescape(words(Browsing(serve()).get("/").text))
    assert "'paused 0' (1,000 messages or more)" in text
    assert "'paused 1' (0 messages)" in text
    assert "and 50 more are paused" in text
    assert re.search(r"no consumer receives from 'waiting \d+' \(2 messages\), .* and 35 more", text)


def test_messages_in_a_dead_letter_queue_alone_are_not_said_to_be_none(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("DLQ"), "by hand")
    text = words(console.get("/").text)
    assert "Nothing waits but dead letters: 1 destination, empty but for DLQ" in text


def test_search_pages_through_topics_too(
    console: Browsing, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "_NAMES_AT_ONCE", 40)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.topic (name) select 'news ' || n from generate_series(1, 130) n;"
            "insert into jmsql_internal.queue (name) select 'old news ' || n from generate_series(1, 60) n"
        )
    seen: set[str] = set()
    path = "/search?q=news"
    for _ in range(9):
        answer = console.get(path)
        seen |= answer.ids.keys()
        following = re.findall(r'rel="next" href="([^"]*)"', answer.text)
        if not following:
            break
        [path] = map(html.unescape, following)
    assert len(seen) == 190


def test_history_of_a_queue_goes_on_behind_that_of_a_topic_of_its_name(
    console: Browsing, jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "WINDOW", 3)
    topic = jmsql.Topic("orders")
    with Administration(jmsql_factory) as administration:
        administration.create_queue("orders", history=True)
        administration.create_topic("orders", history=True)
        administration.subscribe(topic, "readers", shared=True)
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "of the queue")
        assert context.create_consumer(ORDERS).receive(timeout=60) is not None
        readers = context.create_shared_durable_consumer(topic, "readers")
        for number in range(4):
            context.create_producer().send(topic, f"of the topic {number}")
            assert readers.receive(timeout=60) is not None
    path = next(path for path in console.get("/search").ids.values() if "/destinations/" in path and "orders" in
                words(console.get(path).text) and "Queue" in words(console.get(path).text))  # fmt: skip
    first = console.get(f"{path}/history")
    assert "None among the next" in first.text
    [following] = re.findall(r'rel="next" href="([^"]*)"', first.text)
    assert "of the queue" in console.get(html.unescape(following)).text


def test_a_message_that_is_named_twice_counts_once(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(ORDERS, "x")
    orders = console.find("orders")
    [key] = re.findall(r'name="key" value="([^"]*)"', console.get(orders).text)
    assert "<strong>1</strong> message " in console.get(f"{orders}/purge?key={key}&key={key}").text
    assert console.act(f"{orders}/purge", f"key={key}&key={key}") == "1 message deleted."
