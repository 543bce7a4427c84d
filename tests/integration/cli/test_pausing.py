"""A pause is shown wherever people look for messages that do not come."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.cli.conftest import Command


def test_a_queue_is_paused_and_resumed(jmsql: Command) -> None:
    jmsql("send", "orders", "hello")
    assert jmsql("pause", "orders").text == "Paused queue://orders.\n"
    assert jmsql("pause", "orders", "--json").document == {"destination": "queue://orders", "paused": True}
    assert jmsql("receive", "orders").exit_code == 1
    assert jmsql("resume", "orders", "--json").document == {"destination": "queue://orders", "paused": False}
    assert jmsql("resume", "orders").text == "Resumed queue://orders.\n"
    assert jmsql("receive", "orders").text == "hello\n"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_missing_destination_is_not_paused(jmsql: Command, command: str) -> None:
    for name in ("nowhere", "topic://nowhere"):
        outcome = jmsql(command, name)
        assert outcome.exit_code == 3
        assert "nowhere" in outcome.errors
    assert jmsql(command, "queue://").exit_code == 2


def test_queues_shows_a_pause(jmsql: Command) -> None:
    jmsql("send", "orders", "hello")
    assert "paused" not in jmsql("queues").text
    jmsql("pause", "orders")
    jmsql("destination", "create", "others")
    outcome = jmsql("queues")
    header, *rows = outcome.text.splitlines()
    place = slice(header.index("paused"), header.index("consumers"))
    shown = {row.split()[0]: row[place].strip() for row in rows}
    assert (shown["orders"], shown["others"]) == ("yes", "")
    assert outcome.errors == "Paused destinations deliver nothing; `jmsql resume` ends the pause.\n"
    documents = jmsql("queues", "--json")
    paused = {each["queue"]: each["paused"] for each in documents.document}
    assert (paused["orders"], paused["others"]) == (True, False)
    assert documents.errors == ""


def test_subscriptions_shows_the_pause_of_its_topic(jmsql: Command) -> None:
    for topic in ("prices", "news"):
        jmsql("subscribe", topic, topic, "--shared")
    jmsql("pause", "topic://prices")
    outcome = jmsql("subscriptions")
    header, *rows = outcome.text.splitlines()
    place = header.index("paused")
    assert {row.split()[0]: row[place:].strip() for row in rows} == {"prices": "yes", "news": ""}
    assert "`jmsql resume`" in outcome.errors
    assert {each["topic"]: each["paused"] for each in jmsql("subscriptions", "--json").document} == {
        "prices": True,
        "news": False,
    }


def test_top_shows_a_pause(jmsql: Command) -> None:
    jmsql("subscribe", "prices", "desk", "--shared")
    jmsql("send", "orders", "hello")
    looking = ("top", "--once", "--interval", "0.1")
    assert "paused" not in jmsql(*looking).text
    jmsql("pause", "orders")
    jmsql("pause", "topic://prices")
    _, _, header, *rows = jmsql(*looking).text.splitlines()
    place = header.index("paused")
    assert {row.split()[0]: row[place:].strip() for row in rows if "DLQ" not in row} == {
        "orders": "yes",
        "topic://prices": "yes",
    }
    document = jmsql(*looking, "--json").document
    assert {each["destination"] for each in document["destinations"] if each["paused"]} == {"orders", "prices"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("orders",), "orders"),
        (("queue://my orders",), "'queue://my orders'"),
        (("topic://prices", "--subscription", "desk", "--shared"), "topic://prices"),
        (("topic://prices", "--timeout", "0"), "topic://prices"),
    ],
)
def test_receive_says_why_nothing_comes(jmsql: Command, words: tuple[str, ...], name: str) -> None:
    for each in ("orders", "my orders", "topic://prices"):
        jmsql("destination", "create", each)
        jmsql("pause", each)
    outcome = jmsql("receive", *words)
    assert outcome.exit_code == 1
    assert f"is paused: no message comes. `jmsql resume {name}` goes on with its delivery.\n" in outcome.errors


def test_receive_that_waits_says_so_at_once(jmsql: Command, jmsql_clean_url: str) -> None:
    jmsql("send", "orders", "hello")
    jmsql("pause", "orders")
    with subprocess.Popen(
        [sys.executable, "-m", "jmsql", "receive", "orders", "--json", "--timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"JMSQL_URL": jmsql_clean_url},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"queue://orders is paused" in process.stderr.readline()
        jmsql("resume", "orders")
        assert json.loads(process.stdout.readline())["body"] == "hello"
    assert process.returncode == 0
