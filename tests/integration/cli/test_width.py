"""What the command lists fits into a terminal of 80 columns, and breaks no word; elsewhere it is not padded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

import jmsql as library
from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command
from tests.integration.client.server import Server

QUEUE = "orders-of-the-northern-warehouse"
SUBSCRIPTION = "audit-of-all-prices"
SELECTOR = "region = 'north' AND weight > 2500 AND color IN ('blue', 'green')"
LISTINGS = {
    "top": ("top", "--once", "--interval", "0.1"),
    "queues": ("queues",),
    "subscriptions": ("subscriptions",),
    "clients": ("clients",),
    "destination": ("destination", "list"),
    "history": ("history", "list", QUEUE),
    "history days": ("history", "days"),
    "browse": ("browse", QUEUE),
    "dead-letters": ("dead-letters",),
    "roles": ("roles", "list"),
    "doctor": ("doctor",),
}


@pytest.fixture
def _filled(jmsql: Command, jmsql_factory: library.ConnectionFactory, server: Server) -> Iterator[None]:
    """Something in every listing, which stays as it is."""
    jmsql("destination", "create", QUEUE)
    jmsql("destination", "set", QUEUE, "--history", "--maximum-deliveries", "1")
    jmsql("send", QUEUE, "x", "--count", "3", "-p", "color=blue", "-p", "weight:int=2600")
    jmsql("receive", QUEUE)
    jmsql("subscribe", "topic://prices", SUBSCRIPTION, "--client-id", "warehouse-clerk", "--selector", SELECTOR)
    with jmsql_factory.create_connection() as connection:
        connection.client_id = "a-client-of-the-warehouse"
        connection.start()
        session = connection.create_session(transacted=True)
        assert session.create_consumer(library.Queue(QUEUE)).receive(timeout=60) is not None
        session.rollback()
        assert session.create_consumer(library.Queue(QUEUE)).receive(timeout=0) is not None  # the other is buried
        wait_for(lambda: server.rows("select sum(consumers) from jmsql.consumers") == [(2,)])
        yield


def plain(text: str) -> list[str]:
    return re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", text).splitlines()


@pytest.mark.usefixtures("_filled")
def test_at_80_columns_no_line_is_longer_and_no_word_is_broken(jmsql: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {name: plain(jmsql(*words).text) for name, words in LISTINGS.items()}
    monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    for name, words in LISTINGS.items():
        lines = plain(jmsql(*words).text)
        assert lines, name
        assert max(map(cell_len, lines)) <= 80, (name, lines)
        known = {word for line in wide[name] for word in line.split()}
        own = [word for line in lines for word in line.split() if not word.endswith("…")]
        strange = [word for word in own if word not in known and not _may_differ(word)]
        assert strange == [], (name, lines)


def _may_differ(word: str) -> bool:
    """Tell words of the hint at missing columns, and numbers and units of ages, which change between two looks."""
    return bool(re.fullmatch(r"Left|out|in|this|width:|s|min|[-\d.,:;]+|[a-z/]+[.,]", word))


def test_a_property_of_several_lines_stays_in_its_row(jmsql: Command) -> None:
    error = "Traceback (most recent call last):\n" + "\n".join(f"  line {number}" for number in range(20))
    jmsql("send", QUEUE, "body", "-p", f"error={error}", "-p", "color=blue")
    _, row = jmsql("browse", QUEUE).text.splitlines()
    assert "  color=blue error=Traceback (most recent call last): line 0 line 1 line 2" in row
    assert row.endswith("…  body")
    shown = jmsql("show", row.split()[0]).text
    assert error in shown, "there it is whole"


def test_the_lines_of_an_error_are_kept_where_they_are_asked_for(
    jmsql: Command, jmsql_factory: library.ConnectionFactory
) -> None:
    jmsql("destination", "create", QUEUE)
    jmsql("destination", "set", QUEUE, "--maximum-deliveries", "1")
    jmsql("send", QUEUE, "x")
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        assert session.create_consumer(library.Queue(QUEUE)).receive(timeout=60) is not None
        session.rollback(RuntimeError("first\nsecond"))
    wait_for(lambda: jmsql("dead-letters", "--json").document)
    assert len(jmsql("dead-letters").text.splitlines()) == 2
    lines = [line.strip() for line in jmsql("dead-letters", "--traceback").text.splitlines()]
    assert "RuntimeError: first" in lines[-3]
    assert lines[-2:] == ["second", "RuntimeError: first"], "the last line says what it is"


@pytest.mark.usefixtures("_filled")
def test_piped_output_has_a_line_for_each_row_without_trailing_spaces(jmsql: Command) -> None:
    for name, words in LISTINGS.items():
        lines = jmsql(*words).text.splitlines()
        assert [line for line in lines if line != line.rstrip()] == [], name
    [row] = [line for line in jmsql("subscriptions").text.splitlines() if SUBSCRIPTION in line]
    assert SELECTOR in row


def test_text_that_the_locale_cannot_encode_is_escaped(
    jmsql: Command, jmsql_process: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    jmsql("send", "größe", "日本", "-p", "half=\ud800")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for words in (("queues",), ("browse", "größe"), ("destination", "show", "größe")):
        outcome = jmsql_process(*words)
        assert (outcome.exit_code, outcome.errors) == (0, "")
        assert "gr\\xf6\\xdfe" in outcome.text or "\\u65e5\\u672c" in outcome.text
    assert jmsql_process("browse", "nowhere ü").errors.startswith("jmsql: There is no queue 'nowhere ")


def test_one_very_long_name_leaves_room_for_the_rest(jmsql: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "q" * 200
    for name in ("orders", long):
        jmsql("destination", "create", name)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    header, *rows, _ = plain(jmsql("queues").text)
    assert header.split()[:2] == ["queue", "ready"]
    assert "".join(row.split()[0] for row in rows if row.startswith("q")) == long
    assert [row.split()[:2] for row in rows if row.startswith("orders")] == [["orders", "0"]]
    assert max(map(cell_len, (header, *rows))) <= 80
    monkeypatch.delenv("FORCE_COLOR")
    assert long in jmsql("queues").text
