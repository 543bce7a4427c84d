"""`jmsql top`: what waits, what moves, and who receives, in a terminal and without one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import jmsql as library
from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command
from tests.progress import report_progress

PATIENCE = 60.0


def test_rates_are_those_between_two_looks(jmsql: Command, jmsql_clean_url: str) -> None:
    environment = os.environ | {"JMSQL_URL": jmsql_clean_url}
    jmsql("send", "orders", "x", "--count", "5")
    jmsql("send", "letters", "x")
    with subprocess.Popen(
        [sys.executable, "-m", "jmsql", "top", "--json", "--interval", "0.5"],
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert [(each["destination"], each["ready"]) for each in first["destinations"]] == [
            ("orders", 5),
            ("letters", 1),
        ]
        assert first["destinations"][0]["in_per_second"] is None
        jmsql("receive", "orders", "--count", "2")
        jmsql("send", "orders", "x", "--count", "10")
        arrived = gone = 0.0
        before = first["store"]["server_time"]
        orders = first["destinations"][0]
        while gone < 1.99 or arrived < 9.99:
            look = json.loads(process.stdout.readline())
            orders = next(each for each in look["destinations"] if each["destination"] == "orders")
            seconds = look["store"]["server_time"] - before
            before = look["store"]["server_time"]
            arrived += orders["in_per_second"] * seconds
            gone += orders["out_per_second"] * seconds
        assert orders["ready"] == 13
        assert round(gone) == 2
        assert round(arrived) == 10
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_one_document_of_two_looks(jmsql: Command) -> None:
    jmsql("send", "orders", "x")
    outcome = jmsql("top", "--once", "--json", "--interval", "0.1")
    [orders] = outcome.document["destinations"]
    assert orders["in_per_second"] == 0.0
    assert orders["oldest_seconds"] > 0.0
    jmsql("receive", "orders")
    [orders] = jmsql("top", "--once", "--json", "--interval", "0.1").document["destinations"]
    assert orders["oldest_seconds"] is None
    assert outcome.document["store"]["connected_clients"] == 0


def test_messages_whose_handlers_report_their_progress_stand_below(jmsql: Command, jmsql_clean_url: str) -> None:
    jmsql("send", "orders", "x")
    jmsql("send", "letters", "x")
    report_progress(jmsql_clean_url, 0.25, "rows")
    [orders] = jmsql("top", "orders", "--once", "--json", "--interval", "0.1").document["running"]
    assert (orders["destination"], orders["progress"], orders["note"]) == ("orders", 0.25, "rows")
    lines = [line.split() for line in jmsql("top", "--once", "--interval", "0.1").text.splitlines()]
    assert [line[-2:] for line in lines if line[-1:] == ["rows"]] == [["25%", "rows"]] * 2


def test_subscriptions_stand_by_their_names_in_each_table(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, jmsql_clean_url: str
) -> None:
    topic = library.Topic("prices")
    with jmsql_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(False, library.AcknowledgeMode.CLIENT)
        for name in ("audit", "books"):
            session.create_shared_durable_consumer(topic, name)
        session.create_producer(topic).send(session.create_text_message("x"))
        report_progress(jmsql_clean_url, 0.25, "rows")
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
            recorded = "select from jmsql_internal.consumer"
            wait_for(lambda: database.execute(recorded).rowcount == 2, PATIENCE)
        document = jmsql("top", "--once", "--json", "--interval", "0.1").document
        text = jmsql("top", "--once", "--interval", "0.1").text
    for part in ("destinations", "consumers_now", "running"):
        named = [each for each in document[part] if each["subscription"] is not None]  # the topic has a line, too
        found = {(each["destination"], each["subscription"]) for each in named}
        assert found == {("prices", "audit"), ("prices", "books")}, part
    for name in ("audit", "books"):
        assert len([line for line in text.splitlines() if f"prices, {name} " in line]) == 2, text


@pytest.mark.parametrize("order", ["busy", "depth", "age", "name"])
def test_people_read_a_table(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, jmsql_clean_url: str, order: str
) -> None:
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(transacted=True)
        session.create_shared_durable_consumer(library.Topic("prices"), "audit")
        session.create_producer(library.Queue("orders")).send(session.create_message())
        session.commit()
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
            counted = "select from jmsql_internal.destination_counters where sent > 0"  # and not between the two looks
            wait_for(lambda: database.execute(counted).rowcount == 1, PATIENCE)
        outcome = jmsql("top", "--once", "--interval", "0.1", "--sort", order)
    assert outcome.exit_code == 0
    assert "1 client connected" in outcome.text
    lines = [line.split() for line in outcome.text.splitlines()]
    [orders] = [line for line in lines if line[:1] == ["orders"]]
    assert orders[1:5] == ["1", "0", "0", "0"]
    assert [line[1] for line in lines if line[:1] == ["topic://prices"]].count("audit") == 1


def test_an_empty_store(jmsql: Command) -> None:
    assert "There is no queue" in jmsql("top", "--once", "--interval", "0.1").text


@contextmanager
def terminal(url: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """Start the command in a terminal of 120 columns; gives the terminal and the process."""
    process, descriptor = pty.fork()
    if process == 0:
        environment = os.environ | {"JMSQL_URL": url, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "40"}
        os.execve(sys.executable, [sys.executable, "-m", "jmsql", *arguments], environment)
    try:
        yield descriptor, process
    finally:
        os.close(descriptor)


def read_until(descriptor: int, pattern: str) -> str:
    """Read what the terminal shows until it has the pattern."""
    shown = ""
    deadline = time.monotonic() + PATIENCE
    while not re.search(pattern, shown):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{pattern!r} was not shown:\n{shown}"
        try:
            shown += os.read(descriptor, 65536).decode()
        except OSError as error:
            raise AssertionError(f"It has ended before {pattern!r} was shown:\n{shown}") from error
    return shown


@pytest.mark.parametrize("key", [b"q", b"Q", b"\x03"])
def test_a_terminal_shows_it_until_a_key_ends_it(jmsql: Command, jmsql_clean_url: str, key: bytes) -> None:
    jmsql("send", "orders", "x")
    with terminal(jmsql_clean_url, "top", "--interval", "0.2") as (descriptor, process):
        read_until(descriptor, r"orders\s+1")
        jmsql("send", "orders", "x")
        read_until(descriptor, r"orders\s+2")
        os.write(descriptor, b"n")
        read_until(descriptor, r"orders\s+2")
        os.write(descriptor, key)
        read_until(descriptor, r"\x1b\[\?1049l")  # the screen as it was before
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def end_connections(url: str) -> int:
    """End the connections of the commands with this application name, and return their number."""
    with psycopg.connect(url, autocommit=True) as database:
        ended = database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'watching'"
        )
        return len(ended.fetchall())


def test_it_goes_on_after_the_server_has_ended_its_connection(jmsql: Command, jmsql_clean_url: str) -> None:
    jmsql("send", "orders", "x")
    url = f"{jmsql_clean_url}{'&' if '?' in jmsql_clean_url else '?'}application_name=watching"
    with terminal(url, "top", "--interval", "0.2") as (descriptor, process):
        read_until(descriptor, r"orders\s+1")
        assert end_connections(jmsql_clean_url) == 1
        read_until(descriptor, "No figures, trying again: ")
        jmsql("send", "orders", "x")
        read_until(descriptor, r"orders\s+2")
        os.write(descriptor, b"q")
        read_until(descriptor, r"\x1b\[\?1049l")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    with subprocess.Popen(
        [sys.executable, "-m", "jmsql", "top", "--json", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"JMSQL_URL": url},
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert json.loads(watching.stdout.readline())["destinations"]
        assert end_connections(jmsql_clean_url) == 1
        assert b"No figures, trying again: " in watching.stderr.readline()
        while json.loads(watching.stdout.readline())["destinations"][0]["ready"] != 2:
            pass
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE) == 0
