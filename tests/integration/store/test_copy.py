"""Batches of messages are copied into their tables, and are there as if they had been inserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, NoReturn

import psycopg
import psycopg.sql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsql.exceptions import InvalidDestinationException, JMSException, TransactionRolledBackException
from jmsql.store.destinations import lookup
from jmsql.store.rows.columns import DELAYED_COLUMNS
from jmsql.store.rows.message_rows import OutgoingMessage
from jmsql.store.sending.send import insertion, send
from jmsql.store.statement import Result
from jmsql.store.wire._sync.runner import PsycopgRunner
from tests.integration.store.conftest import text_message

BATCH = 60
"""So many messages are copied."""


class CountingRunner(PsycopgRunner):
    """Counts the bytes that it copies."""

    copied = 0

    def copy(self, statement: bytes, data: bytes) -> Result:
        result = super().copy(statement, data)
        self.copied += len(data)
        return result


@pytest.fixture
def runner(jmsql_clean_url: str) -> Iterator[CountingRunner]:
    """A runner in a transaction that is rolled back. There are the queues "orders" and "invoices"."""
    with psycopg.connect(jmsql_clean_url) as connection:
        runner = CountingRunner(connection, "jmsql")
        for name in ("orders", "invoices"):
            runner.run(lookup.queue_id(name))
        connection.commit()
        yield runner
        connection.rollback()


def batch(*messages: OutgoingMessage) -> list[OutgoingMessage]:
    """Repeat messages until there are enough to be copied."""
    return list(islice(cycle(messages), BATCH))


def stored(runner: PsycopgRunner, table: str = "message") -> list[tuple[Any, ...]]:
    """Return the messages of the open transaction, in their order."""
    names = ", ".join(f"m.{name}" for name, _ in DELAYED_COLUMNS[1:])
    return runner.connection.execute(
        f"select q.name, {names} from jmsql_internal.{table} m join jmsql_internal.queue q using (queue_id) "
        "where m.transaction_id = pg_current_xact_id() order by m.sequence".encode()
    ).fetchall()


difficult_text = st.text(st.sampled_from("\\\t\n\r\b\f\v.Nx0'\"{},é\x7f\x85\u2028😀")) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0")
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | difficult_text,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(difficult_text, values, max_size=3),
    max_leaves=5,
)
json_text = st.builds(json.dumps, json_values, ensure_ascii=st.booleans())
json_object = st.builds(
    json.dumps, st.dictionaries(difficult_text, json_values, max_size=3), ensure_ascii=st.booleans()
)
times = st.integers(0, 253402214399999)
outgoing = st.builds(
    OutgoingMessage,
    destination=st.sampled_from(["orders", "invoices"]),
    inverse_priority=st.integers(0, 9),
    jms_message_id=st.none() | st.builds(str, st.uuids()),
    jms_timestamp=st.none() | times,
    jms_expiration=st.none() | times,
    jms_delivery_mode=st.sampled_from([1, 2]),
    message_type=st.sampled_from(["Message", "TextMessage", "BytesMessage", "ObjectMessage"]),
    jms_correlation_id=st.none() | difficult_text,
    jms_reply_to=st.none() | difficult_text,
    jms_type=st.none() | difficult_text,
    properties=st.none() | json_object,
    property_types=st.none() | json_object,
    text_body=st.none() | difficult_text,
    json_body=st.none() | json_text,
    body_types=st.none() | json_text,
    bytes_body=st.none() | st.binary(),
    jms_delivery_time=st.none(),
)


@pytest.mark.parametrize("table", ["message", "delayed_message"])
def test_copied_rows_equal_inserted_ones(runner: CountingRunner, table: str) -> None:
    @given(st.lists(outgoing, min_size=1, max_size=4))
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    def check(messages: list[OutgoingMessage]) -> None:
        runner.connection.rollback()  # what an example has left that failed
        if table == "delayed_message":
            messages = [message._replace(jms_delivery_time=253402214399999) for message in messages]
        before = runner.copied
        runner.run(send(batch(*messages)))
        assert runner.copied > before
        copied = stored(runner, table)
        runner.connection.rollback()
        assert runner.run(insertion(batch(*messages))) == BATCH
        assert copied == stored(runner, table)

    check()


def test_texts_that_the_format_gives_a_meaning(runner: CountingRunner) -> None:
    texts = ["", "\\N", "\\.", "\\", "\\\\", "a\tb", "a\nb", "a\r\nb", "\n\\.\n", "\\x41", "\\101", "null", "é\u2028😀"]
    runner.run(send([text_message(text) for text in texts] + batch(text_message("end"))))
    assert [row[12] for row in stored(runner)[: len(texts)]] == texts


def test_bytes_are_copied_as_they_are(runner: CountingRunner) -> None:
    values = [b"", bytes(range(256)), b"\\x", b"\\000"]
    messages = [text_message("")._replace(text_body=None, bytes_body=value) for value in values]
    runner.run(send(batch(*messages)))
    assert [row[15] for row in stored(runner)] == [message.bytes_body for message in batch(*messages)]


def test_messages_of_several_queues_keep_their_order(runner: CountingRunner) -> None:
    messages = [text_message(str(number), queue=("orders", "invoices")[number % 2]) for number in range(BATCH)]
    runner.run(send(messages))
    assert [(row[0], row[12]) for row in stored(runner)] == [(each.destination, each.text_body) for each in messages]


def test_a_few_messages_are_inserted(runner: CountingRunner) -> None:
    runner.run(send([text_message("a"), text_message("b")]))
    assert len(stored(runner)) == 2
    assert runner.copied == 0


def test_nothing_is_sent_if_a_queue_is_missing(runner: CountingRunner) -> None:
    messages = batch(text_message("a"))
    with pytest.raises(InvalidDestinationException, match="nowhere, orders"):
        runner.run(send([*messages, text_message("b", queue="nowhere")]))
    runner.run(send(messages))  # the transaction goes on
    assert len(stored(runner)) == BATCH


def test_queue_that_was_removed_gets_nothing(runner: CountingRunner) -> None:
    runner.connection.execute("delete from jmsql_internal.queue where name = 'orders'")
    with pytest.raises(InvalidDestinationException):
        runner.run(send(batch(text_message("a"))))


@pytest.mark.parametrize(
    "change",
    [
        {"inverse_priority": 10},
        {"inverse_priority": 100_000},
        {"jms_timestamp": -1},
        {"jms_message_id": "no uuid"},
        {"message_type": "no type"},
        {"properties": "[]"},
        {"properties": "{"},
        {"jms_delivery_mode": 3},
    ],
    ids=str,
)
def test_refusals_are_those_of_an_insertion(runner: CountingRunner, change: dict[str, Any]) -> None:
    messages = [*batch(text_message("a")), text_message("b")._replace(**change)]
    errors = []
    for sending in (send(messages), insertion(messages)):
        runner.connection.execute("savepoint before")
        with pytest.raises(JMSException) as raised:
            runner.run(sending)
        with pytest.raises(TransactionRolledBackException):
            runner.run(lookup.find_queue("orders"))
        runner.connection.execute("rollback to savepoint before")
        errors.append((type(raised.value), raised.value.error_code, str(raised.value).partition(":")[0]))
    assert errors[0] == errors[1]
    runner.run(send(batch(text_message("c"))))
    assert {row[12] for row in stored(runner)} == {"c"}


def test_pipelines_insert(runner: CountingRunner) -> None:
    with runner.connection.pipeline():
        runner.run(send(batch(text_message("a"))))
    assert len(stored(runner)) == BATCH
    assert runner.copied == 0


@pytest.mark.parametrize("flush", [True, False])
def test_flush_decides_the_synchronous_commit(runner: CountingRunner, flush: bool) -> None:
    runner.run(send(batch(text_message("a")), flush=flush))
    assert runner.connection.execute("show synchronous_commit").fetchone() == ("on" if flush else "off",)
    assert runner.copied


def test_schema_whose_name_looks_like_a_placeholder(runner: CountingRunner) -> None:
    schema = '%s "%(a)s"'
    internal = psycopg.sql.Identifier(f"{schema}_internal")
    runner.connection.execute(psycopg.sql.SQL("create schema {}").format(internal))
    for table in ("queue", "message"):
        runner.connection.execute(
            psycopg.sql.SQL("create table {}.{table} (like jmsql_internal.{table} including all)").format(
                internal, table=psycopg.sql.Identifier(table)
            )
        )
    runner.connection.execute(psycopg.sql.SQL("insert into {}.queue (name) values ('orders')").format(internal))
    elsewhere = CountingRunner(runner.connection, schema)
    elsewhere.run(send(batch(text_message("100 % \\"))))
    assert elsewhere.copied
    assert not stored(runner)


@pytest.mark.usefixtures("runner")  # it makes the queue
def test_a_server_that_leaves_after_an_error_is_a_lost_connection(
    jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg expects one answer to a COPY."""

    def two_answers(*_: object) -> NoReturn:
        raise ValueError("too many values to unpack (expected 1)")

    monkeypatch.setattr("psycopg._copy.copy_end", two_answers)
    with psycopg.connect(jmsql_clean_url) as connection:
        with pytest.raises(JMSException, match="connection to PostgreSQL was lost") as failure:
            PsycopgRunner(connection, "jmsql").run(send(batch(text_message("a lantern"))))
        assert failure.value.error_code == "08006"
        assert connection.closed
