"""`jmsql deliver` and `jmsql cancel`: messages that wait are delivered now, or not at all."""

from __future__ import annotations

import jmsql as library
from tests.integration.cli.conftest import Command

UNKNOWN = "ID:00000000-0000-4000-8000-000000000000"


def send(factory: library.ConnectionFactory, *texts: str, delay: float = 0.0) -> list[str]:
    with factory.create_context() as context:
        return [
            library.send(context, "orders", text, delivery_delay=delay, properties={"text": text}) for text in texts
        ]


def test_messages_that_wait_are_delivered_now(jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
    send(jmsql_factory, "a", "b", "c", delay=3600.0)
    chosen = jmsql("deliver", "orders", "--selector", "text <> 'a'", "--limit", "1", "--json")
    assert (chosen.exit_code, chosen.document) == (0, {"queue": "orders", "delivered": 1})
    assert jmsql("deliver", "orders").text == "Delivered 2 messages of the queue 'orders' now.\n"
    none = jmsql("deliver", "orders")
    assert (none.exit_code, none.text) == (1, "Delivered 0 messages of the queue 'orders' now.\n")
    assert [message["body"] for message in jmsql("receive", "orders", "--all", "--json").lines] == ["b", "a", "c"]
    assert jmsql("deliver", "nowhere").exit_code == 3
    assert jmsql("deliver", "orders", "--selector", "1 +").exit_code == 2


def test_cancelling_says_by_its_exit_code_if_a_message_may_still_be_handled(
    jmsql: Command, jmsql_factory: library.ConnectionFactory
) -> None:
    waiting, delayed = send(jmsql_factory, "a") + send(jmsql_factory, "b", delay=3600.0)
    removed = jmsql("cancel", waiting, delayed.removeprefix("ID:"), waiting)
    assert (removed.exit_code, removed.text) == (0, f"{waiting}: removed\n{delayed.removeprefix('ID:')}: removed\n")
    [held, locked, alone] = send(jmsql_factory, "c", "d", "e")
    claiming = library.AcknowledgeMode.CLIENT
    transacted = library.AcknowledgeMode.TRANSACTED
    with (
        jmsql_factory.create_context(session_mode=claiming) as holder,
        jmsql_factory.create_context(session_mode=transacted) as locker,
    ):
        assert holder.create_consumer(library.Queue("orders"), "text = 'c'").receive(timeout=60) is not None
        assert locker.create_consumer(library.Queue("orders"), "text = 'd'").receive(timeout=60) is not None
        asked = jmsql("cancel", held, "--json")
        assert (asked.exit_code, asked.document) == (0, {held: "asked"})
        partly = jmsql("cancel", alone, locked, UNKNOWN, "--json")
        assert (partly.exit_code, partly.document) == (1, {alone: "removed", locked: "locked", UNKNOWN: "gone"})
        locker.rollback()
    assert jmsql("cancel", "no identifier").exit_code == 1
    assert jmsql("cancel", locked).exit_code == 0
    assert jmsql("cancel", locked).text == f"{locked}: gone\n"
