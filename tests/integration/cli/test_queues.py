"""`jmsql migrate`, `queues`, `clients` and `purge`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psycopg
import pytest

import jmsql as library
from jmsql.admin import Administration
from jmsql.testing import wait_for
from jmsql.values.destinations import AnyQueue
from tests.integration.cli.conftest import Asked, Command
from tests.integration.client.client_process import Order, client_process

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

ORDERS = library.Queue("orders")


@pytest.fixture
def empty_schema(database: psycopg.Connection) -> Iterator[str]:
    yield "jmsql_other"
    database.execute("drop schema if exists jmsql_other, jmsql_other_internal cascade")


class TestMigrate:
    def test_the_schema_is_made_and_then_left_alone(self, jmsql: Command, empty_schema: str) -> None:
        assert jmsql("queues", "--schema", empty_schema).exit_code == 3
        made = jmsql("migrate", "--schema", empty_schema, "--json").document
        assert made["from"] is None
        again = jmsql("migrate", "--schema", empty_schema, "--json").document
        assert again == made | {"from": made["to"]}
        assert "already" in jmsql("migrate", "--schema", empty_schema).text
        [queue] = jmsql("queues", "--schema", empty_schema, "--json").document
        assert queue["queue"] == "DLQ"

    def test_the_schema_can_come_from_the_environment(
        self, jmsql: Command, empty_schema: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JMSQL_SCHEMA", empty_schema)
        assert empty_schema in jmsql("migrate").text


class TestQueues:
    def test_messages_are_counted_by_state(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        jmsql("send", "orders", "x", "--count", "1200")
        jmsql("send", "answers", "x")
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
            connection.start()
            assert session.create_consumer(library.Queue("answers")).receive(timeout=60) is not None
            answers, orders = jmsql("queues", "--json").document
            lines = jmsql("queues").text.splitlines()
        assert (answers["queue"], answers["claimed"], answers["ready"]) == ("answers", 1, 0)
        exactly = jmsql("queues", "orders", "--exact", "--json").document
        [line] = jmsql("queues", "ord%", "--exact").text.splitlines()[1:]
        assert (orders["queue"], orders["claimed"], orders["ready"], orders["more"]) == ("orders", 0, 1000, True)
        assert (answers["more"], [(each["ready"], each["more"]) for each in exactly]) == (False, [(1200, False)])
        assert [line.split()[:3] for line in lines[1:]] == [["answers", "0", "1"], ["orders", "1,000+", "0"]]
        assert line.split()[:3] == ["orders", "1,200", "0"]

    def test_those_that_need_a_look_come_first(self, jmsql: Command) -> None:
        for queue, count in (("b", "1"), ("c", "3"), ("a", "2")):
            jmsql("send", queue, "x", "--count", count)

        def listed(*words: str) -> list[str]:
            return [each["queue"] for each in jmsql("queues", "--json", *words).document]

        assert listed() == ["a", "b", "c"]
        assert listed("--sort", "age") == ["b", "c", "a"]
        assert listed("--sort", "depth") == ["c", "a", "b"]
        outcome = jmsql("queues", "--sort", "depth", "--limit", "2")
        assert [line.split()[0] for line in outcome.text.splitlines()[1:]] == ["c", "a"]
        assert outcome.errors.startswith("There are more than 2: --limit")
        assert jmsql("queues", "d%").text == "No queue has a name like 'd%'; % stands for any text.\n"

    @pytest.mark.parametrize("command", [("queues",), ("top", "--once")])
    def test_a_pattern_that_cannot_be_one_is_refused(self, jmsql: Command, command: tuple[str, ...]) -> None:
        outcome = jmsql(*command, "a\\")
        assert outcome.exit_code == 2
        assert "ends with a backslash that escapes nothing" in outcome.errors

    def test_no_queue_yet(self, jmsql: Command) -> None:
        assert "no queue yet" in jmsql("queues").text
        assert jmsql("queues", "--json").document == []


class TestClients:
    def test_connections_and_their_claims_are_listed(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        jmsql("send", "orders", "x")
        with jmsql_factory.create_connection() as connection:
            connection.client_id = "warehouse"
            session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
            connection.start()
            assert session.create_consumer(ORDERS).receive(timeout=60) is not None
            [client] = jmsql("clients", "--json").document
            listing = jmsql("clients").text
        assert (client["client_id"], client["process_id"]) == ("warehouse", os.getpid())
        assert (client["connected"], client["claimed"]) == (True, 1)
        assert "warehouse" in listing

    def test_no_client(self, jmsql: Command) -> None:
        assert "No client" in jmsql("clients").text
        assert jmsql("clients", "--json").document == []


class TestPurge:
    def test_all_messages_are_deleted(self, jmsql: Command) -> None:
        jmsql("send", "orders", "x", "--count", "12000")
        outcome = jmsql("purge", "orders", "--yes")
        assert (outcome.exit_code, outcome.text) == (0, "Deleted 12,000 messages from the queue 'orders'.\n")
        assert jmsql("queues", "--json").document[0]["ready"] == 0

    def test_a_selector_chooses(self, jmsql: Command) -> None:
        jmsql("send", "orders", "red", "-p", "color=red")
        jmsql("send", "orders", "blue", "-p", "color=blue")
        assert jmsql("purge", "orders", "--selector", "color = 'blue'", "--yes", "--json").document["deleted"] == 1
        assert jmsql("receive", "orders", "--all").text == "red\n"

    def test_messages_that_wait_or_were_delivered_before_are_deleted_too(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory, database: psycopg.Connection
    ) -> None:
        jmsql("send", "orders", "x", "--count", "3")
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
            connection.start()
            session.create_consumer(ORDERS).receive(timeout=60)
            session.recover()
        assert jmsql("purge", "orders", "--yes", "--json").document["deleted"] == 3
        assert database.execute("select count(*) from jmsql_internal.delivery").fetchone() == (0,)

    def test_delayed_messages_are_counted_and_deleted_too(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        jmsql("send", "orders", "red", "-p", "color=red")
        with jmsql_factory.create_context() as context:
            for color in ("red", "blue", "blue"):
                producer = context.create_producer(delivery_delay=3600, properties={"color": color})
                producer.send(ORDERS, "later")
        [orders] = jmsql("queues", "--json").document
        assert (orders["ready"], orders["delayed"]) == (1, 3)
        assert jmsql("purge", "orders", "--selector", "color = 'blue'", "--yes", "--json").document["deleted"] == 2
        assert jmsql("purge", "orders", "--yes", "--json").document["deleted"] == 2
        assert jmsql("queues", "--json").document[0]["delayed"] == 0

    @pytest.mark.parametrize("transacted", [True, False])
    def test_messages_that_a_client_holds_stay(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory, transacted: bool
    ) -> None:
        jmsql("send", "orders", "held", "--priority", "9")
        jmsql("send", "orders", "free")
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session(transacted, library.AcknowledgeMode.CLIENT)
            connection.start()
            held = session.create_consumer(ORDERS).receive(timeout=60)
            assert held is not None
            assert jmsql("purge", "orders", "--yes", "--json").document["deleted"] == 1
        assert jmsql("receive", "orders", "--all").text == "held\n"

    def test_without_a_terminal_it_does_not_ask_but_refuse(self, jmsql: Command) -> None:
        jmsql("send", "orders", "x")
        outcome = jmsql("purge", "orders", stdin=b"y\n")
        assert outcome.exit_code == 2
        assert "--yes" in outcome.errors
        assert jmsql("queues", "--json").document[0]["ready"] == 1

    @pytest.mark.parametrize(("answer", "exit_code", "left"), [(b"n\n", 1, 4), (b"y\n", 0, 2)])
    def test_on_a_terminal_it_asks_and_deletes_none_that_comes_before_the_answer(
        self, jmsql: Command, jmsql_asked: Asked, answer: bytes, exit_code: int, left: int
    ) -> None:
        jmsql("send", "orders", "counted")
        jmsql("send", "orders", "counted", "--delivery-delay", "3600")

        def send_more() -> None:
            jmsql("send", "orders", "later", "--priority", "9")
            jmsql("send", "orders", "later", "--delivery-delay", "3600")

        outcome = jmsql_asked("purge", "orders", meanwhile=send_more, answer=answer)
        assert "Delete 2 messages from the queue 'orders' for good?" in outcome.errors
        assert outcome.exit_code == exit_code
        left_ones = [line["body"] for line in jmsql("browse", "orders", "--json").lines]
        assert (left_ones.count("later"), len(left_ones)) == (2, left)

    def test_an_empty_queue_needs_no_answer(self, jmsql: Command) -> None:
        jmsql("send", "orders", "x")
        jmsql("receive", "orders")
        assert jmsql("purge", "orders", "--json").document["deleted"] == 0

    def test_without_a_question_none_is_deleted_that_comes_after_the_count(
        self, jmsql: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jmsql("send", "orders", "x")
        jmsql("receive", "orders")
        counting = Administration.count

        def count_and_send(self: Administration, queue: AnyQueue, selector: str | None = None) -> int:
            found = counting(self, queue, selector)
            jmsql("send", "orders", "later")
            return found

        monkeypatch.setattr(Administration, "count", count_and_send)
        assert jmsql("purge", "orders", "--json").document["deleted"] == 0
        assert jmsql("receive", "orders").text == "later\n"


def test_a_dead_clients_messages_show_as_such(
    jmsql: Command, jmsql_clean_url: str, database: psycopg.Connection
) -> None:
    jmsql("send", "orders", "x")
    with client_process(jmsql_clean_url, Order("orders", "CLIENT", receives=1)) as client:
        client.wait_until_ready()
        client.received(1)
    wait_for(lambda: not any(client["connected"] for client in jmsql("clients", "--json").document))
    [dead] = jmsql("clients", "--json").document
    assert (dead["process_id"], dead["claimed"]) == (client.process_id, 1)


def test_a_long_list_has_the_columns_of_a_short_one(jmsql: Command, database: psycopg.Connection) -> None:
    database.execute("insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, 499) as n")
    short = jmsql("queues", "--limit", "1000").text.splitlines()
    database.execute("insert into jmsql_internal.queue (name) values ('[bold]é'), ('queue 500')")

    long = jmsql("queues", "--limit", "1000").text.splitlines()

    assert len(short) == 500
    assert len(long) == 502
    assert long[0].split() == short[0].split()
    assert long[1].startswith("[bold]é        0 ")
    assert {line.rstrip() for line in short[1:]} < set(long)
