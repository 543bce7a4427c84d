"""The command against a hot standby, which answers whatever only reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jmsql.embedded import start_server
from jmsql.testing.servers import directory_of_servers
from tests.integration.cli.conftest import Command
from tests.prepared_data import prepare_data

UNKNOWN = "ID:7d3a1c5e-3f0b-4c55-9a35-2a5b6c7d8e9f"


@pytest.fixture(scope="module")
def standby_url() -> Iterator[str]:
    """A standby with the schema, whose primary is gone."""
    with directory_of_servers("jmsql-standby-") as directory:
        prepare_data(directory / "standby")
        signal = directory / "standby/cluster/standby.signal"
        signal.touch()
        signal.chmod(0o666)
        with start_server(directory / "standby", durable=False) as server:
            yield server.url


@pytest.mark.parametrize("arguments", [("show", UNKNOWN), ("result", "show", UNKNOWN)])
def test_a_message_is_looked_for(jmsql: Command, standby_url: str, arguments: tuple[str, ...]) -> None:
    outcome = jmsql(*arguments, url=standby_url)
    assert outcome.exit_code == 1
    assert "read-only" not in outcome.errors
    assert "unknown" in outcome.text or "no message" in outcome.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("queues",),
        ("clients",),
        ("subscriptions",),
        ("dead-letters",),
        ("activity",),
        ("top", "--once"),
        ("destination", "list"),
        ("schedule", "list"),
        ("batch", "list"),
        ("result", "list"),
    ],
    ids=" ".join,
)
def test_lists_are_shown(jmsql: Command, standby_url: str, arguments: tuple[str, ...]) -> None:
    outcome = jmsql(*arguments, url=standby_url)
    assert outcome.exit_code in (0, 1)
    assert "jmsql:" not in outcome.errors


def test_the_doctor_finds_nothing_but_the_standby(jmsql: Command, standby_url: str) -> None:
    findings = jmsql("doctor", "--json", url=standby_url).document["findings"]
    assert [each["check"] for each in findings if each["health"] == "problem"] == ["server"]
    assert not [each for each in findings if "not examined" in each["says"]]


def test_a_send_names_the_cause(jmsql: Command, standby_url: str) -> None:
    outcome = jmsql("send", "orders", "a", url=standby_url)
    assert outcome.exit_code
    assert "connect to the primary" in outcome.errors
