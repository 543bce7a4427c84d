"""`jmsql search`: messages of all queues and subscriptions."""

from __future__ import annotations

import re

from tests.integration.cli.conftest import Command


def test_messages_are_searched_across_destinations(jmsql: Command) -> None:
    jmsql("subscribe", "topic://prices", "web", "--shared")
    for destination in ("orders", "mails", "topic://prices"):
        jmsql("send", destination, "hello", "-p", "customer:int=7", "--correlation-id", "c-1", "--jms-type", "t")
    jmsql("send", "orders", "another")
    everything = (
        "--property",
        "customer=7",
        "--correlation-id",
        "c-1",
        "--jms-type",
        "t",
        "--selector",
        "JMSPriority = 4",
    )
    lines = jmsql("search", *everything, "--json").lines
    assert sorted((each["destination"], each["subscription"]) for each in lines) == [
        ("queue://mails", None), ("queue://orders", None), ("topic://prices", "web"),
    ]  # fmt: skip
    shown = jmsql("search", *everything)
    assert "topic://prices -> web" in shown.text
    assert "--after" not in shown.text
    first = jmsql("search", "--jms-type", "t", "-n", "2")
    [position] = re.findall(r"the same with --after (\S+) goes on", first.text + first.errors)
    [last] = jmsql("search", "--jms-type", "t", "--after", position, "--json").lines
    assert last["message_id"] == lines[2]["message_id"]
    assert jmsql("search", "--id", last["message_id"]).exit_code == 0


def test_search_refuses_invalid_options(jmsql: Command) -> None:
    assert jmsql("search", "--jms-type", "none").exit_code == 1
    for wrong in ((), ("--property", "customer"), ("--jms-type", "t", "--after", "p5.1"), ("--property", "a b=1")):
        assert jmsql("search", *wrong).exit_code == 2
