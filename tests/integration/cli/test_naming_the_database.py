"""Which database the command uses, and that it says which."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy
from typer.testing import CliRunner

import jmsql as library
from jmsql.cli.application import app
from jmsql.embedded import server
from jmsql.store.connections.database_url import parse_url
from tests.integration.cli.conftest import Command

UNREACHABLE = "postgresql://clerk@127.0.0.1:1/shop"


@pytest.fixture
def shop(
    jmsql: Command, jmsql_clean_url: str, database: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The URL of a database whose schema "the [red] shop" has a paused queue and a dead letter from it."""
    schema = ("--schema", "the [red] shop")
    assert jmsql("migrate", *schema).exit_code == 0
    jmsql("destination", "create", "orders", *schema)
    jmsql("destination", "set", "orders", "--maximum-deliveries", "1", *schema)
    jmsql("send", "orders", "x", *schema)
    with library.ConnectionFactory(jmsql_clean_url, schema="the [red] shop").create_context(
        session_mode=library.AcknowledgeMode.TRANSACTED
    ) as context:
        assert context.create_consumer(library.Queue("orders")).receive_body(str, timeout=60) == "x"
        context.rollback()
    jmsql("pause", "orders", *schema)
    parsed = sqlalchemy.make_url(jmsql_clean_url)
    monkeypatch.setenv("PGPASSWORD", parsed.password or "")
    yield parsed.set(password=None).render_as_string()
    database.execute('drop schema "the [red] shop", "the [red] shop_internal" cascade')


@pytest.mark.parametrize("arguments", [("migrate",), ("send", "orders", "x"), ("queues",), ("doctor",)], ids=" ".join)
def test_an_empty_variable_is_refused(
    jmsql: Command, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "start_server", None)
    outcome = jmsql(*arguments, url="")
    assert outcome.exit_code == 3
    assert outcome.errors == (
        "jmsql: The environment variable JMSQL_URL is empty. Set it to the URL of a database, or unset it.\n"
    )


def test_the_help_is_shown_whatever_the_variable_says(jmsql: Command) -> None:
    assert [jmsql(*words, "--help", url="").exit_code for words in ((), ("queues",))] == [0, 0]


def test_an_empty_variable_of_the_schema_is_refused(jmsql: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_SCHEMA", "")
    outcome = jmsql("queues")
    assert outcome.exit_code == 3
    assert "The environment variable JMSQL_SCHEMA is empty" in outcome.errors
    assert jmsql("queues", "--schema", "jmsql").exit_code == 0


def test_a_deployment_forbids_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_EMBEDDED", "off")
    result = CliRunner().invoke(app, ["migrate"], env={"JMSQL_URL": None})
    assert result.exit_code == 3
    assert "JMSQL_EMBEDDED is off, so no embedded server is started. Name the database in JMSQL_URL" in result.stderr


def test_options_before_the_subcommand(jmsql: Command, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = sqlalchemy.make_url(jmsql_clean_url)
    monkeypatch.setenv("PGPASSWORD", parsed.password or "")
    url = parsed.set(password=None).render_as_string()
    for words in (("queues",), ("destination", "list")):
        assert jmsql("--url", url, *words, url=UNREACHABLE).exit_code == 0
        assert "127.0.0.1:1" in jmsql("--url", UNREACHABLE, *words).errors
        assert "`jmsql migrate --schema nowhere`" in jmsql("--schema", "nowhere", *words).errors
    assert jmsql("--url", UNREACHABLE, "queues", "--url", url).exit_code == 0
    assert jmsql("--schema", "nowhere", "queues", "--schema", "jmsql").exit_code == 0


@pytest.mark.parametrize(
    ("words", "advised"),
    [
        (("browse", "nowhere"), "destination list"),
        (("queues",), "resume"),
        (("history", "days"), "destination set NAME --history"),
        (("dead-letters", "orders"), "dead-letters DLQ --from orders"),
        (("retry", "orders"), "retry DLQ --from orders"),
        (("receive", "orders"), "resume orders"),
        (("selector", "explain", "orders", "color = 'red'"), "destination index orders SELECTOR"),
        (("doctor",), "resume orders"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_advice_names_the_place_that_was_given(jmsql: Command, shop: str, words: tuple[str, ...], advised: str) -> None:
    wanted = f"`jmsql {advised} --url {shlex.quote(shop)} --schema 'the [red] shop'`"
    place = ("--url", shop, "--schema", "the [red] shop")
    for given in ((*words, *place), (*place, *words)):
        outcome = jmsql(*given, url=UNREACHABLE)
        assert wanted in outcome.text + outcome.errors


def test_advised_commands_stay_whole_on_a_narrow_terminal(
    jmsql: Command, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    outcome = jmsql("history", "days", "--url", shop, "--schema", "the [red] shop")
    assert f"`jmsql destination set NAME --history --url {shlex.quote(shop)} --schema 'the [red] shop'`" in outcome.text


def test_a_password_before_the_subcommand_is_refused(jmsql: Command) -> None:
    outcome = jmsql("--url", "postgresql://clerk:entirely-secret@127.0.0.1:1/shop", "queues")
    assert outcome.exit_code == 2
    assert "PGPASSWORD" in outcome.errors
    assert "entirely-secret" not in outcome.errors


def test_migrate_and_send_name_server_and_database(jmsql: Command, jmsql_clean_url: str) -> None:
    place = parse_url(jmsql_clean_url).place
    assert place.database in jmsql_clean_url
    assert f"'jmsql' in database {place.database!r} on {place.host} is at version" in jmsql("migrate").text
    assert jmsql("send", "orders", "x").text.endswith(f"), in database {place.database!r} on {place.host}.\n")
    for words in (("migrate",), ("send", "orders", "x")):
        document = jmsql(*words, "--json").document
        assert (document["host"], document["database"]) == place
