"""`jmsql receive` and `browse` on topics and their subscriptions, and `jmsql subscribe`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

import jmsql as library
from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

PRICES = library.Topic("prices")
AUDIT = ("--subscription", "audit", "--client-id", "warehouse")


@contextmanager
def receiving(url: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`jmsql receive` as a process, once it has subscribed."""
    with subprocess.Popen(
        [sys.executable, "-m", "jmsql", "receive", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"JMSQL_URL": url},
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "Subscribed to topic://prices.\n"
            yield process
        finally:
            process.kill()


class TestATopicAlone:
    def test_later_publications_are_printed(
        self, jmsql: Command, jmsql_clean_url: str, database: psycopg.Connection
    ) -> None:
        jmsql("send", "topic://prices", "before")
        with receiving(jmsql_clean_url, "topic://prices", "--selector", "color = 'blue'") as process:
            jmsql("send", "topic://prices", "red", "-p", "color=red")
            jmsql("send", "topic://prices", "blue", "-p", "color=blue")
            output, errors = process.communicate(timeout=60)
        assert (process.returncode, output, errors) == (0, "blue\n", "")
        wait_for(lambda: database.execute("select count(*) from jmsql_internal.subscription").fetchone() == (0,))

    def test_it_is_followed_until_it_is_interrupted(
        self, jmsql: Command, jmsql_clean_url: str, database: psycopg.Connection
    ) -> None:
        with receiving(jmsql_clean_url, "topic://prices", "--follow", "--json") as process:
            jmsql("send", "topic://prices", "17.5", "--count", "2")
            assert process.stdout is not None
            lines = [json.loads(process.stdout.readline()) for _ in range(2)]
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
        assert [line["body"] for line in lines] == ["17.5", "17.5"]
        assert process.returncode == 130
        wait_for(lambda: database.execute("select count(*) from jmsql_internal.subscription").fetchone() == (0,))

    def test_a_timeout_ends_it(self, jmsql: Command) -> None:
        outcome = jmsql("receive", "topic://prices", "--timeout", "0.1")
        assert (outcome.exit_code, outcome.errors) == (1, "Subscribed to topic://prices.\nNo message came.\n")


class TestADurableSubscription:
    def test_it_is_made_and_collects_on_when_the_command_ends(self, jmsql: Command) -> None:
        nothing = jmsql("receive", "topic://prices", *AUDIT)
        assert (nothing.exit_code, nothing.errors) == (1, "No message came.\n")
        jmsql("send", "topic://prices", "a")
        jmsql("send", "topic://prices", "b")
        assert jmsql("receive", "topic://prices", *AUDIT).text == "a\n"
        assert jmsql("receive", "topic://prices", *AUDIT, "--all").text == "b\n"
        [summary] = jmsql("subscriptions", "--json").document
        assert (summary["subscription"], summary["client_id"], summary["ready"]) == ("audit", "warehouse", 0)

    def test_a_shared_one_belongs_to_no_client(self, jmsql: Command) -> None:
        shared = ("--subscription", "work", "--shared")
        assert jmsql("receive", "topic://prices", *shared).exit_code == 1
        jmsql("send", "topic://prices", "a")
        assert jmsql("receive", "topic://prices", *shared).text == "a\n"
        [summary] = jmsql("subscriptions", "--json").document
        assert (summary["shared"], summary["durable"], summary["client_id"]) == (True, True, None)

    def test_it_keeps_its_selector(self, jmsql: Command) -> None:
        jmsql("subscribe", "prices", "audit", "--client-id", "warehouse", "--selector", "color = 'blue'")
        for color in ("red", "blue"):
            jmsql("send", "topic://prices", color, "-p", f"color={color}")
        assert jmsql("receive", "topic://prices", *AUDIT, "--all").text == "blue\n"
        jmsql("send", "topic://prices", "blue again", "-p", "color=blue")
        refused = jmsql("receive", "topic://prices", *AUDIT, "--selector", "color = 'red'")
        assert refused.exit_code == 3
        assert "with the selector color = 'blue'" in refused.errors
        assert jmsql("receive", "topic://other", *AUDIT).exit_code == 3
        same = jmsql("receive", "topic://prices", *AUDIT, "--selector", "color = 'blue'")
        assert same.text == "blue again\n", "what it had collected was kept"

    def test_it_can_be_browsed(self, jmsql: Command) -> None:
        jmsql("subscribe", "prices", "audit", "--client-id", "warehouse")
        jmsql("send", "topic://prices", "a", "-p", "weight:int=5")
        jmsql("send", "topic://prices", "b", "--priority", "9")
        documents = jmsql("browse", "topic://prices", *AUDIT, "--json").lines
        assert [(each["body"], each["state"]) for each in documents] == [("b", "ready"), ("a", "ready")]
        assert "weight=5" in jmsql("browse", "topic://prices", *AUDIT, "--selector", "weight > 4").text
        assert jmsql("receive", "topic://prices", *AUDIT, "--all").text == "b\na\n"

    def test_one_that_has_a_consumer_is_refused(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        with jmsql_factory.create_connection() as connection:
            connection.client_id = "warehouse"
            connection.create_session().create_durable_consumer(PRICES, "audit")
            refused = jmsql("receive", "topic://prices", *AUDIT)
        assert refused.exit_code == 3
        assert "'warehouse'" in refused.errors


class TestSubscribe:
    def test_it_collects_before_a_consumer_comes(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        made = jmsql("subscribe", "topic://prices", "audit", "--client-id", "warehouse", "-s", "weight > 1")
        assert made.text == "Made the durable subscription 'audit' to topic://prices.\n"
        jmsql("send", "topic://prices", "a", "-p", "weight:int=5")
        with jmsql_factory.create_connection() as connection:
            connection.client_id = "warehouse"
            connection.start()
            message = connection.create_session().create_durable_consumer(PRICES, "audit", "weight > 1").receive(60)
        assert message is not None
        assert message.get_body(str) == "a"

    def test_one_that_is_there_is_left_as_it_is(self, jmsql: Command) -> None:
        arguments = ("subscribe", "prices", "audit", "--client-id", "warehouse")
        assert jmsql(*arguments, "--json").document["made"] is True
        jmsql("send", "topic://prices", "a")
        again = jmsql(*arguments, "--json").document
        assert (again["made"], again["ready"], again["topic"]) == (False, 1, "prices")
        assert jmsql(*arguments).text == "There already is the durable subscription 'audit' to topic://prices.\n"
        for change in (("--selector", "weight > 1"), ("--no-local",), ("--shared",)):
            refused = jmsql(*arguments, *change)
            assert refused.exit_code == 3
            assert "unsubscribe it first" in refused.errors
        assert jmsql("subscriptions", "--json").document[0]["ready"] == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("receive", "orders", "--subscription", "audit", "--shared"), "Only topics have subscriptions"),
        (("receive", "topic://prices", "--subscription", "audit"), "give --client-id, or"),
        (("receive", "topic://prices", "--client-id", "warehouse"), "give --subscription"),
        (("receive", "topic://prices", "--shared"), "give --subscription"),
        (("receive", "file://prices"), "topic://NAME"),
        (("receive", "topic://prices", "--timeout", "-1"), "timeout"),
        (("browse", "topic://prices"), "give"),
        (("subscribe", "prices", "audit"), "give --client-id, or"),
        (("subscribe", "queue://prices", "audit", "--shared"), "Only topics have subscriptions"),
        (("subscribe", "prices", "audit", "--shared", "--selector", "color ="), "color ="),
    ],
)
def test_options_that_do_not_go_together_are_refused(jmsql: Command, arguments: tuple[str, ...], problem: str) -> None:
    outcome = jmsql(*arguments)
    assert outcome.exit_code == 2
    assert problem in " ".join(re.sub("[│╭╮╰╯─]", " ", outcome.errors).split())


def test_a_subscription_that_is_not_there_is_not_browsed(jmsql: Command) -> None:
    outcome = jmsql("browse", "topic://prices", *AUDIT)
    assert outcome.exit_code == 3
    assert "no durable subscription 'audit'" in outcome.errors


def test_a_queue_may_be_written_like_a_topic(jmsql: Command) -> None:
    jmsql("send", "orders", "a")
    assert jmsql("browse", "queue://orders", "--json").lines[0]["body"] == "a"
    assert jmsql("receive", "queue://orders").text == "a\n"
