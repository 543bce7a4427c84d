"""The command through a pooler."""

from __future__ import annotations

from typing import Any

from jmsql import AcknowledgeMode, Connection, ConnectionFactory, Queue, send
from jmsql.testing import wait_for
from tests.integration.cli.conftest import Command

QUEUE = "orders"


def test_messages_are_sent_browsed_and_received(jmsql: Command, jmsql_factory: ConnectionFactory) -> None:
    url = jmsql_factory.url
    assert jmsql("send", QUEUE, "hello", url=url).exit_code == 0
    assert "hello" in jmsql("browse", QUEUE, url=url).text
    assert "hello" in jmsql("receive", QUEUE, url=url).text
    assert "hello" not in jmsql("browse", QUEUE, url=url).text


def test_doctor_reports_the_pooler_and_maintenance_by_a_client(
    jmsql: Command, connection: Connection, jmsql_factory: ConnectionFactory
) -> None:
    def findings() -> dict[str, Any]:
        document = jmsql("doctor", "--json", url=jmsql_factory.url).document
        return {finding["check"]: finding for finding in document["findings"]}

    assert findings()["pooler"]["health"] == "note"
    assert "1 connected" in findings()["clients"]["says"]
    wait_for(lambda: findings()["maintenance"]["says"] == "a client does it")


def test_messages_are_delivered_now_and_cancelled(jmsql: Command, jmsql_factory: ConnectionFactory) -> None:
    url = jmsql_factory.url
    with jmsql_factory.create_context() as context:
        sent = [send(context, QUEUE, text, delivery_delay=3600.0) for text in ("a", "b")]
    assert jmsql("cancel", sent[0], url=url).text == f"{sent[0]}: removed\n"
    assert jmsql("cancel", *sent[:1], url=url).exit_code == 1
    assert jmsql("deliver", QUEUE, url=url).exit_code == 0
    with jmsql_factory.create_context(session_mode=AcknowledgeMode.CLIENT) as context:
        assert context.create_consumer(Queue(QUEUE)).receive_body(str, timeout=60) == "b"
        assert jmsql("cancel", sent[1], url=url).text == f"{sent[1]}: asked\n"
    assert jmsql("deliver", QUEUE, url=url).exit_code == 1
