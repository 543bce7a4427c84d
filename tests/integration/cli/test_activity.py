"""`jmsql activity`: what administrators have done, in the shell."""

from __future__ import annotations

import getpass

import jmsql as library
from tests.integration.cli.conftest import Command


def test_actions_are_listed_and_searched(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    assert jmsql("activity").text == "Nothing was done.\n"
    jmsql("destination", "create", "orders")
    with jmsql_factory.create_context() as context:
        sent = library.send(context, "orders", "a")
    jmsql("purge", "orders", "--yes")
    jmsql("pause", "orders")
    header, pause, purge = jmsql("activity").text.splitlines()
    assert header.split() == ["number", "at", "by", "action", "destination", "messages", "what"]
    assert "pause" in pause
    assert f"{getpass.getuser()} (postgres)" in purge
    [found] = jmsql("activity", sent, "--json").document
    assert (found["action"], found["messages"], found["message_ids"]) == ("purge", 1, [sent])
    assert [each["action"] for each in jmsql("activity", "-n", "1", "--json").document] == ["pause"]
    assert jmsql("activity", "--before", str(found["number"])).text == "There is no such action.\n"


def test_actions_are_kept_for_so_many_days(jmsql: Command) -> None:
    assert jmsql("activity", "--keep-days", "90").text == "Actions are kept for 90 days.\n"
    assert jmsql("activity", "--keep-days", "30", "--json").document == {"activity_days": 30}
    assert jmsql("activity", "--keep-days", "-1").exit_code == 2
