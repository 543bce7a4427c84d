"""A body with more levels of brackets than Python can handle stops no command."""

from __future__ import annotations

import json

import psycopg
import pytest

from jmsql import Connection, ObjectMessage, Queue
from tests.integration.cli.conftest import Command

LEVELS = 5_000
NESTED = "[" * LEVELS + "]" * LEVELS


@pytest.fixture
def _sent(connection: Connection, jmsql_clean_url: str) -> None:
    with connection.create_session() as session, session.create_producer(Queue("orders")) as producer:
        for number in range(2):
            producer.send(ObjectMessage([number]))
    with psycopg.connect(jmsql_clean_url) as database:  # as somebody has sent it with a higher limit
        database.execute(
            "update jmsql_internal.message set json_body = jsonb_set(json_body, '{data}', %s::jsonb) "
            "where sequence = (select min(sequence) from jmsql_internal.message)",
            [NESTED],
        )


@pytest.mark.usefixtures("_sent")
def test_it_is_shown_as_text_and_the_next_message_too(jmsql: Command) -> None:
    shown = jmsql("browse", "orders")
    assert shown.exit_code == 0
    assert "[[[[" in shown.text
    lines = [json.loads(line) for line in jmsql("browse", "orders", "--json").text.splitlines()]
    assert [type(line["body"]) for line in lines] == [str, dict]
    assert NESTED in lines[0]["body"].replace(" ", "")
    received = jmsql("receive", "orders", "--all")
    assert received.exit_code == 0
    assert len(received.text.splitlines()) == 2
