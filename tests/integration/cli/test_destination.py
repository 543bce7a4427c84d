"""`jmsql destination`."""

from __future__ import annotations

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
