"""What a role may not look into is not shown as empty."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

import jmsql
from jmsql.admin import Administration
from jmsql.cli.application import app
from jmsql.metrics import StoreCollector

Look = Callable[..., Result]
ADVICE = "The role may not look where ? stands: `jmsql destination grant NAME ROLE --browse` gives it access."


@pytest.fixture
def look(url_of: Callable[[str], str], jmsql_factory: jmsql.ConnectionFactory) -> Look:
    """The command, of a role that may send, receive or browse, on queues and subscriptions with messages."""
    with jmsql_factory.create_context() as context:
        for name in ("prices", "news"):
            context.create_shared_durable_consumer(jmsql.Topic(name), name).close()
            context.create_producer().send(jmsql.Topic(name), "x")
        for name in ("orders", "secrets"):
            context.create_producer().send(jmsql.Queue(name), "x")
    return lambda kind, *words: CliRunner().invoke(app, words, env={"JMSQL_URL": url_of(kind)}, catch_exceptions=False)


def rows(result: Result, skip: int = 0) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()[skip + 1 :]}


def test_queues_has_question_marks_where_the_role_may_not_look(look: Look) -> None:
    seen = look("sender", "queues")
    assert rows(seen) == {key: [*"??????", "0"] for key in ("orders", "secrets")}
    assert seen.stderr == f"{ADVICE}\n"
    for kind in ("browser", "receiver"):
        seen = look(kind, "queues")
        assert rows(seen)["orders"][:6] == ["1", "0", "0", "0", "0", "0"]
        assert rows(seen)["secrets"] == [*"??????", "0"]
    for kind in ("browser of all", "receiver from all", "administrator"):
        seen = look(kind, "queues")
        assert (rows(seen)["secrets"][0], seen.stderr) == ("1", "")


def test_json_has_null_where_the_role_may_not_look(look: Look) -> None:
    by_name = {each["queue"]: each for each in json.loads(look("browser", "queues", "--json").stdout)}
    assert [(by_name[name]["ready"], by_name[name]["browsable"]) for name in ("orders", "secrets")] == [
        (1, True),
        (None, False),
    ]
    document = json.loads(look("browser", "top", "--once", "--interval", "0.1", "--json").stdout)
    seen = {each["destination"]: (each["ready"], each["depth"]) for each in document["destinations"]}
    assert (seen["orders"], seen["secrets"]) == ((1, 1), (None, None))


def test_subscriptions_has_question_marks_where_the_role_may_not_look(
    look: Look, owner: psycopg.Connection, roles: dict[str, str]
) -> None:
    seen = look("browser", "subscriptions")
    assert {name: cells[-5:] for name, cells in rows(seen).items()} == dict.fromkeys(("news", "prices"), ["?"] * 5)
    assert seen.stderr == f"{ADVICE}\n"
    owner.execute("select jmsql.grant_access('topic://news', %s, 'browse')", [roles["browser"]])
    documents = json.loads(look("browser", "subscriptions", "--json").stdout)
    assert [(each["topic"], each["ready"]) for each in documents] == [("news", 1), ("prices", None)]


def test_top_has_question_marks_where_the_role_may_not_look(look: Look) -> None:
    seen = rows(look("browser", "top", "--once", "--interval", "0.1"), skip=2)
    assert seen["orders"][:4] == ["1", "0", "0", "0"]
    assert seen["secrets"][:4] == ["?"] * 4


def test_browsing_is_refused_instead_of_showing_nothing(look: Look, url_of: Callable[[str], str]) -> None:
    seen = look("sender", "browse", "orders")
    assert seen.exit_code == 3
    assert "may not browse" in seen.stderr
    seen = look("browser", "browse", "topic://news", "--subscription", "news")
    assert seen.exit_code == 3
    with (
        Administration(url_of("sender")) as administration,
        pytest.raises(jmsql.JMSSecurityException, match='may not browse from the queue "orders"'),
    ):
        next(administration.browse("orders"))
    assert look("browser", "browse", "orders").exit_code == 0


def test_metrics_leave_out_what_the_role_may_not_look_into(look: Look, url_of: Callable[[str], str]) -> None:
    assert callable(look)
    registry = CollectorRegistry()
    collector = StoreCollector(url_of("browser"))
    registry.register(collector)
    try:
        found = {
            sample.labels["destination"]
            for metric in registry.collect()
            if metric.name == "jmsql_messages"
            for sample in metric.samples
        }
        assert found == {"orders"}
    finally:
        collector.close()


@pytest.mark.parametrize("words", [("dead-letters",), ("history", "list", "orders"), ("show", "ID:1")], ids=" ".join)
def test_hidden_parts_are_named(look: Look, words: tuple[str, ...]) -> None:
    note = "Messages that the role may not browse are not shown."
    assert note in look("sender", *words).stderr
    assert note not in look("browser of all", *words).stderr


def test_settings_are_shown_to_roles_that_do_not_see_the_grants(look: Look) -> None:
    seen = look("sender", "destination", "show", "orders")
    assert (seen.exit_code, seen.stderr) == (0, "Only an administrator sees the access of roles.\n")
    assert json.loads(look("sender", "destination", "show", "orders", "--json").stdout)["grants"] is None
    assert look("administrator", "destination", "show", "orders").stderr == ""
