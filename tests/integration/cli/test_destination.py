"""`jmsql destination`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest

import jmsql as library
from tests.integration.cli.conftest import Command


def test_a_queue_is_made_changed_shown_and_deleted(jmsql: Command) -> None:
    assert jmsql("destination", "create", "orders").text == "Made queue://orders.\n"
    assert jmsql("destination", "create", "orders").text == "There already is queue://orders.\n"
    assert jmsql("destination", "create", "expired", "--json").document["made"] is True
    shown = jmsql("destination", "set", "orders", "--expiry-queue", "expired", "--json").document
    assert shown["settings"] == {"expiry_queue": "expired"}
    assert jmsql("destination", "show", "orders", "--json").document == shown
    assert ["expiry", "queue", "expired"] in [
        line.split() for line in jmsql("destination", "show", "orders").text.splitlines()
    ]
    assert jmsql("destination", "set", "orders", "--reset", "expiry-queue", "--json").document["settings"] == {}
    assert jmsql("destination", "delete", "orders", "--yes").text == "Deleted queue://orders.\n"
    assert jmsql("destination", "delete", "expired", "--yes", "--json").document == {"destination": "queue://expired"}
    assert jmsql("destination", "list", "--json").document == []


def test_settings_are_reset_and_set_together_or_not_at_all(jmsql: Command) -> None:
    jmsql("destination", "create", "orders")
    jmsql("destination", "set", "orders", "--maximum-deliveries", "5", "--history-days", "7")
    refused = jmsql("destination", "set", "orders", "--reset", "maximum-deliveries", "--expiry-queue", "nowhere")
    assert (refused.exit_code, "nowhere" in refused.errors) == (3, True)
    assert jmsql("destination", "set", "orders", "--reset", "destination", "--history-days", "8").exit_code == 3
    settings = jmsql("destination", "show", "orders", "--json").document["settings"]
    assert settings == {"maximum_deliveries": 5, "history_days": 7}

    both = ("--reset", "maximum-deliveries", "--reset", "history-days", "--history-days", "9")
    assert jmsql("destination", "set", "orders", *both, "--json").document["settings"] == {"history_days": 9}


def test_destinations_are_listed(jmsql: Command) -> None:
    assert "no destination yet" in jmsql("destination", "list").text
    jmsql("destination", "create", "expired")
    jmsql("destination", "create", "topic://prices")
    jmsql("destination", "set", "topic://prices", "--expiry-queue", "expired")
    listed = jmsql("destination", "list", "--json").document
    assert [(each["kind"], each["destination"], each["settings"]) for each in listed] == [
        ("queue", "expired", {}),
        ("topic", "prices", {"expiry_queue": "expired"}),
    ]
    lines = [line.split() for line in jmsql("destination", "list").text.splitlines()]
    assert lines[1:] == [["queue", "expired"], ["topic", "prices", "expiry", "queue", "expired"]]


def test_refusals(jmsql: Command) -> None:
    jmsql("destination", "create", "orders")
    assert jmsql("destination", "create", "stream://x").exit_code == 2
    assert jmsql("destination", "set", "orders").exit_code == 2
    assert "--yes" in jmsql("destination", "delete", "orders").errors
    for arguments in (
        ("show", "nowhere"),
        ("set", "nowhere", "--expiry-queue", "orders"),
        ("set", "orders", "--expiry-queue", "nowhere"),
        ("set", "orders", "--reset", "color"),
        ("delete", "nowhere", "--yes"),
    ):
        outcome = jmsql("destination", *arguments)
        assert outcome.exit_code == 3
        assert len(outcome.errors.splitlines()) == 1
    assert [each["destination"] for each in jmsql("destination", "list", "--json").document] == ["orders"]


def test_a_queue_is_paused_and_resumed(jmsql: Command) -> None:
    jmsql("send", "orders", "x")
    assert jmsql("destination", "pause", "orders").text == "Paused queue://orders.\n"
    assert jmsql("receive", "orders").exit_code == 1
    assert ["queue", "orders", "paused", "yes"] in [
        line.split() for line in jmsql("destination", "list").text.splitlines()
    ]
    assert jmsql("destination", "resume", "orders").text == "Resumed queue://orders.\n"
    assert jmsql("receive", "orders").exit_code == 0
    assert jmsql("destination", "pause", "nowhere").exit_code == 3


@pytest.fixture
def role(database: psycopg.Connection) -> Iterator[str]:
    """A role of its own, and the tables as a migration leaves them afterwards."""
    protected = (
        "select oid::regclass::text from pg_class where relrowsecurity "
        "and relnamespace = 'jmsql_internal'::regnamespace"
    )
    before = database.execute(protected).fetchall()
    name = f"jmsql_test_{secrets.token_hex(4)}"
    database.execute(f"create role {name}".encode())
    yield name
    database.execute(f"drop owned by {name}; drop role {name}".encode())
    for (table,) in set(database.execute(protected).fetchall()) - set(before):
        database.execute(f"alter table {table} disable row level security".encode())


def test_access_is_granted_shown_and_revoked(jmsql: Command, role: str) -> None:
    assert "No access was granted" in jmsql("roles", "list").text
    jmsql("destination", "create", "orders")
    assert jmsql("destination", "grant", "orders", role, "--send", "--browse").text == (
        f"Granted to {role} on queue://orders.\n"
    )
    [shown] = jmsql("roles", "list", "--json").document
    assert shown == {
        "kind": "queue",
        "destination": "orders",
        "role": role,
        "send": True,
        "receive": False,
        "browse": True,
        "administer": False,
    }
    assert jmsql("destination", "show", "orders", "--json").document["grants"] == [shown]
    assert [line.split() for line in jmsql("roles", "list").text.splitlines()[1:]] == [
        [role, "queue://orders", "yes", "yes"]
    ]
    assert [role, "send,", "browse"] in [
        line.split() for line in jmsql("destination", "show", "orders").text.splitlines()
    ]
    assert jmsql("destination", "revoke", "orders", role, "--send", "--browse").exit_code == 0
    assert jmsql("roles", "list", "--json").document == []


def test_access_that_cannot_be_granted(jmsql: Command, role: str) -> None:
    jmsql("destination", "create", "orders")
    assert jmsql("destination", "grant", "orders", role).exit_code == 2
    for arguments in (("orders", "nobody_in_particular", "--send"), ("nowhere", role, "--send")):
        outcome = jmsql("destination", "grant", *arguments)
        assert outcome.exit_code == 3
        assert "There is no" in outcome.errors


def test_the_roles_for_all_destinations(jmsql: Command, role: str) -> None:
    jmsql("roles", "create")
    assert "have their rights" in jmsql("roles", "create").text
    assert jmsql("roles", "create", "--json").document == {"made": []}
    names = ["jmsql_admin", "jmsql_browser", "jmsql_consumer", "jmsql_producer"]
    assert [each["role"] for each in jmsql("roles", "list", "--json").document] == names
    assert ["jmsql_consumer", "(all)", "yes", "yes"] in [
        line.split() for line in jmsql("roles", "list").text.splitlines()
    ]


def test_messages_are_moved(jmsql: Command) -> None:
    jmsql("send", "orders", "x", "--count", "5")
    jmsql("destination", "create", "old")
    assert jmsql("move", "orders", "old", "--limit", "2", "--json").document == {
        "from": "orders",
        "to": "old",
        "moved": 2,
    }
    assert (
        jmsql("move", "orders", "old", "--selector", "JMSPriority = 4").text
        == "Moved 3 messages from 'orders' to 'old'.\n"
    )
    assert jmsql("move", "orders", "old").text == "Moved 0 messages from 'orders' to 'old'.\n"
    assert jmsql("move", "orders", "nowhere").exit_code == 3
    assert jmsql("move", "orders", "old", "--selector", "x >").exit_code == 2


def test_a_queue_in_use_is_deleted_by_force(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    jmsql("send", "orders", "x")
    with jmsql_factory.create_connection() as connection:
        session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
        connection.start()
        assert session.create_consumer(library.Queue("orders")).receive(timeout=60) is not None
        assert "force" in jmsql("destination", "delete", "orders", "--yes").errors
        assert jmsql("destination", "delete", "orders", "--yes", "--force").exit_code == 0


def test_automatic_creation(jmsql: Command) -> None:
    assert jmsql("destination", "automatic-creation").text == "Automatic creation is on.\n"
    try:
        assert jmsql("destination", "automatic-creation", "off", "--json").document == {"automatic_creation": False}
        assert "jmsql destination create orders" in jmsql("send", "orders", "x").errors
    finally:
        jmsql("destination", "automatic-creation", "on")
    assert jmsql("send", "orders", "x").exit_code == 0


def test_administered_objects(jmsql: Command) -> None:
    assert jmsql("binding", "list").text == "Nothing is bound.\n"
    assert jmsql("binding", "bind", "jms/orders", "orders").text == "Bound 'jms/orders' to queue://orders.\n"
    assert jmsql("binding", "bind", "jms/factory", "--factory").exit_code == 0
    assert jmsql("binding", "bind", "jms/orders").exit_code == 2
    listed = jmsql("binding", "list", "--json").document
    assert listed["jms/orders"] == "queue://orders"
    assert listed["jms/factory"].startswith("ConnectionFactory(")
    assert ["jms/orders", "queue://orders"] in [line.split() for line in jmsql("binding", "list").text.splitlines()]
    assert jmsql("binding", "unbind", "jms/orders").exit_code == 0
    assert jmsql("binding", "unbind", "jms/orders").exit_code == 3
