"""A second send of a deduplication id sends nothing, by every way there is to send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import jmsql
from jmsql import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    MessageFormatException,
    TransactionRolledBackException,
)
from jmsql.admin import Administration
from jmsql.client import send_buffer
from jmsql.client.process_counters import ProcessCounters
from jmsql.store.sending.conditional import forget_ids
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.asynchronous_send.completions import Completions
from tests.integration.client.server import Server
from tests.texts import texts_of

ID = "JMS_jmsql_DeduplicationID"
DeleteOnce = Callable[..., list[int]]


def texts(connection: Connection, queue: str) -> list[str]:
    """Receive all there is."""
    with connection.create_session() as session:
        return texts_of(receive_all(session.create_consumer(queue)))


def test_a_second_send_returns_the_identifier_of_the_first(connection: Connection) -> None:
    first = jmsql.send(connection, "orders", "one", deduplication_id="payment 17")
    assert jmsql.send(connection, "orders", "two", deduplication_id="payment 17", delivery_delay=60) == first
    assert jmsql.send(connection, "orders", "three", deduplication_id="payment 18") != first
    assert jmsql.send(connection, "others", "four", deduplication_id="payment 17") != first
    assert texts(connection, "orders") == ["one", "three"]
    assert jmsql.send(connection, "orders", "five", deduplication_id="payment 17") == first, "it was handled"


def test_a_batch_is_copied_without_duplicates(connection: Connection) -> None:
    with connection.create_session(transacted=True) as session:
        producer = session.create_producer("orders")
        for number in range(120):
            message = session.create_text_message(str(number))
            if number % 3:
                message.properties[ID] = str(number // 6)
            producer.send(message)
        session.commit()
    expected = [str(number) for number in range(120) if number % 3 == 0 or number % 6 == 1]
    assert texts(connection, "orders") == expected


def test_a_rollback_frees_the_id(connection: Connection) -> None:
    with connection.create_session(transacted=True) as session:
        jmsql.send(session, "orders", "one", deduplication_id="payment 17")
        session.rollback()
        jmsql.send(session, "orders", "two", deduplication_id="payment 17")
        session.commit()
    assert texts(connection, "orders") == ["two"]


def test_the_id_counts_for_the_window(connection: Connection, jmsql_factory: ConnectionFactory, server: Server) -> None:
    with Administration(jmsql_factory.url) as administration:
        administration.create_queue("orders", deduplication_window=timedelta(minutes=5))
        administration.create_queue("others", deduplication_window=0)
    for age in (299, 301, 302):
        server.rows("update jmsql_internal.deduplication set sent_at = clock_timestamp() - %s * interval '1 s'", age)
        for queue in ("orders", "others"):
            jmsql.send(connection, queue, str(age), deduplication_id="payment 17")
    assert texts(connection, "orders") == ["299", "301", "302"]
    assert texts(connection, "others") == ["299", "301", "302"]


def test_the_id_counts_on_a_topic_before_the_copies(connection: Connection) -> None:
    with connection.create_session() as session:
        topic = session.create_topic("prices")
        consumers = [session.create_consumer(topic, selector) for selector in (None, None, "colour = 'blue'")]
        for number in range(3):
            jmsql.send(
                connection,
                topic,
                str(number),
                deduplication_id="price 5",
                properties={"colour": "blue" if number else ""},
            )
        assert [texts_of(receive_all(consumer)) for consumer in consumers] == [["0"], ["0"], []]


def test_a_restricted_role_drops_duplicates_where_it_may_send(url_of: Any, connection: Connection) -> None:
    with psycopg.connect(url_of("sender"), autocommit=True) as database:
        first = jmsql.send(database, "orders", "one", deduplication_id="payment 17")
        assert jmsql.send(database, "orders", "two", deduplication_id="payment 17") == first
        with pytest.raises(JMSException):
            jmsql.send(database, "secrets", "one", deduplication_id="payment 17")
        for statement in (
            "select from jmsql_internal.deduplication",
            "insert into jmsql_internal.admission (queues, role) values ('{orders}', 'postgres')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                database.execute(statement)
    assert texts(connection, "orders") == ["one"]


def test_ids_in_different_orders_are_a_deadlock_that_ends(connection: Connection, server: Server) -> None:
    with connection.create_session(transacted=True) as one, connection.create_session(transacted=True) as other:
        jmsql.send(one, "orders", "1", deduplication_id="a")
        jmsql.send(other, "orders", "2", deduplication_id="b")
        waiting = Background(lambda: jmsql.send(one, "orders", "3", deduplication_id="b"))
        server.wait_until_someone_waits()
        # PostgreSQL ends the transaction that has noticed it, which may be either.
        codes = []
        try:
            jmsql.send(other, "orders", "4", deduplication_id="a")
        except TransactionRolledBackException as error:
            codes.append(error.error_code)
            other.rollback()
        try:
            waiting.result()
        except TransactionRolledBackException as error:
            codes.append(error.error_code)
        assert codes == ["40P01"]


def test_a_message_sent_again_takes_no_id(connection: Connection, jmsql_factory: ConnectionFactory) -> None:
    jmsql.send(connection, "orders", "one", deduplication_id="payment 17")
    with connection.create_session(transacted=True) as session, Administration(jmsql_factory.url) as administration:
        consumer = session.create_consumer("orders")
        message = consumer.receive(timeout=60)
        assert message is not None
        assert not message.property_exists(ID)
        session.create_producer("orders").send(message)
        session.commit()
        administration.create_queue("aside")
        assert administration.move("orders", "aside") == 1
        assert administration.move("aside", "orders") == 1
    assert texts(connection, "orders") == ["one"]


def test_sql_drops_duplicates(server: Server, connection: Connection) -> None:
    for queue in ("orders", "orders", "topic://prices", "topic://prices"):
        server.rows("select jmsql.send(%s, 'text', jsonb_build_object(%s::text, 'payment 17'))", queue, ID)
    assert server.rows("select count(*) from jmsql_internal.message") == [(1,)]
    assert server.rows("select count(distinct destination_id) from jmsql_internal.deduplication") == [(2,)]
    assert texts(connection, "orders") == ["text"]


@pytest.mark.parametrize("value", ["", "x" * 256, 5])
def test_another_value_than_an_id_is_refused(connection: Connection, server: Server, value: Any) -> None:
    with pytest.raises(MessageFormatException):
        jmsql.send(connection, "orders", "one", deduplication_id=value)
    with pytest.raises(psycopg.DatabaseError, match="cannot be"):
        server.rows("select jmsql.send('orders', 'x', %s)", Jsonb({ID: value}))


@pytest.mark.parametrize("name", ["\0", "\ud800", "'; drop table x --", "🪁" * 255, "%s"])
def test_any_text_is_an_id(connection: Connection, name: str) -> None:
    first = jmsql.send(connection, "orders", "one", deduplication_id=name)
    assert jmsql.send(connection, "orders", "two", deduplication_id=name) == first


def test_maintenance_forgets_ids_whose_window_is_over(
    connection: Connection, server: Server, jmsql_clean_url: str
) -> None:
    for number in range(4):
        jmsql.send(connection, "orders" if number % 2 else "topic://prices", "one", deduplication_id=str(number))
    server.rows(
        "update jmsql_internal.deduplication set sent_at = sent_at - interval '25 h' where deduplication_id > '1'"
    )
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        PsycopgRunner(database, "jmsql").run(forget_ids.bind(limit=10))
    # The client's own maintenance may be at them, too.
    wait_for(lambda: server.rows("select count(*) from jmsql_internal.deduplication") == [(2,)])


@pytest.mark.parametrize("kind", ["a queue", "a topic", "a temporary queue", "a temporary topic"])
def test_ids_of_a_deleted_destination_are_forgotten(connection: Connection, server: Server, kind: str) -> None:
    ids = "select count(*) from jmsql_internal.deduplication"
    with connection.create_session() as session:
        if kind in ("a queue", "a topic"):
            name = "orders" if kind == "a queue" else "topic://prices"
            jmsql.send(connection, name, "one", deduplication_id="payment 17")
            assert server.rows(ids) == [(1,)]
            server.rows("select jmsql.delete_destination(%s)", name)
        else:
            is_queue = kind == "a temporary queue"
            temporary = session.create_temporary_queue() if is_queue else session.create_temporary_topic()
            jmsql.send(session, temporary, "one", deduplication_id="payment 17")
            assert server.rows(ids) == [(1,)]
            temporary.delete()
    wait_for(lambda: server.rows(ids) == [(0,)])  # a temporary queue goes with the maintenance


def test_duplicates_and_coalesced_messages_are_counted(connection: Connection, jmsql_clean_url: str) -> None:
    counters = ProcessCounters()
    try:
        for _ in range(3):
            jmsql.send(connection, "orders", "one", deduplication_id="payment 17")
        with psycopg.connect(jmsql_clean_url) as database:
            for _ in range(3):
                jmsql.send(database, "orders", "one", coalesce="order 5")
        counts = counters.counts()["queue://orders"]
    finally:
        counters.close()
    assert (counts.sent, counts.duplicates, counts.coalesced) == (2, 2, 2)


@pytest.fixture
def others_deleted_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> DeleteOnce:
    """Has the queue of others deleted between the next admission and its insertion, and something done after that.

    It returns the sizes of the insertions, as they are tried.
    """

    def delete_once(then: Callable[[], object] = lambda: None) -> list[int]:
        insert, attempts = send_buffer.send, list[int]()  # type: ignore[attr-defined]  # imported there

        def send_without_the_queue(messages: Any, **options: Any) -> Any:
            attempts.append(len(messages))
            if len(attempts) > 1:
                yield from insert(messages, **options)
                return
            server.rows("select jmsql.delete_destination('others')")
            with pytest.raises(InvalidDestinationException) as error:
                yield from insert(messages, **options)
            then()
            raise error.value

        server.rows("select jmsql.create_queue('others')")
        monkeypatch.setattr(send_buffer, "send", send_without_the_queue)
        return attempts

    return delete_once


def test_a_queue_deleted_between_admission_and_insertion_loses_no_message_with_a_key(
    connection: Connection, others_deleted_once: DeleteOnce
) -> None:
    others_deleted_once()
    with connection.create_session(transacted=True) as session:
        producer = session.create_producer(None)
        for text in ("first", "last"):
            for queue in ("orders", "others"):
                message = session.create_text_message(text)
                message.properties["JMS_jmsql_Coalesce"] = "order 5"
                producer.send(message, destination=jmsql.Queue(queue))
        session.commit()
    assert [texts(connection, queue) for queue in ("orders", "others")] == [["first"], ["first"]]


@pytest.mark.parametrize("ids", ["-b", "a-", "ab"])
@pytest.mark.parametrize("body", ["first", "latest"])
def test_a_queue_deleted_between_admission_and_insertion_leaves_ids_with_keys_that_were_sent(
    connection: Connection, server: Server, others_deleted_once: DeleteOnce, ids: str, body: str
) -> None:
    others_deleted_once()
    with connection.create_session(transacted=True) as session:
        producer = session.create_producer(None)
        for identifier, text in zip(ids, ("first", "latest"), strict=True):
            for queue in ("orders", "others"):
                message = session.create_text_message(text)
                message.properties.update({"JMS_jmsql_Coalesce": "order 5", "JMS_jmsql_CoalesceBody": body})
                if identifier != "-":
                    message.properties[ID] = identifier
                producer.send(message, destination=jmsql.Queue(queue))
        session.commit()
    for queue in ("orders", "others"):
        with connection.create_session() as session, session.create_browser(session.create_queue(queue)) as browser:
            (waiting,) = browser
        assert waiting.get_body(str) == body
        for identifier in set(ids) - {"-"}:
            assert jmsql.send(connection, queue, "again", deduplication_id=identifier) == waiting.jms_message_id


@pytest.mark.parametrize("transacted", [True, False])
def test_an_id_that_another_sender_has_got_between_two_attempts_is_sent_once(
    connection: Connection,
    jmsql_clean_url: str,
    others_deleted_once: DeleteOnce,
    transacted: bool,
) -> None:
    def send_first() -> None:
        with psycopg.connect(jmsql_clean_url) as database:
            jmsql.send(database, "others", "of another", deduplication_id="payment 17")

    others_deleted_once(send_first)
    with connection.create_session(transacted=transacted) as session:
        jmsql.send(session, "others", "own", deduplication_id="payment 17")
        if transacted:
            session.commit()
    assert texts(connection, "others") == ["of another"]


@pytest.mark.parametrize("disabled", [False, True], ids=["with identifiers", "without"])
@pytest.mark.parametrize("count", [1, 120])
def test_a_queue_deleted_between_admission_and_insertion_loses_no_message_of_the_others(
    connection: Connection, others_deleted_once: DeleteOnce, count: int, disabled: bool
) -> None:
    attempts = others_deleted_once()
    with connection.create_session(transacted=True) as session:
        producer = session.create_producer(None)
        producer.disable_message_id = disabled
        for number in range(count):
            for queue in ("orders", "others", "orders"):  # the last one is a duplicate
                message = session.create_text_message(str(number))
                message.properties[ID] = str(number)
                producer.send(message, destination=jmsql.Queue(queue))
        session.commit()
    assert len(attempts) == 2
    for queue in ("orders", "others"):
        assert texts(connection, queue) == [str(number) for number in range(count)]


def test_an_error_of_another_kind_leaves_no_id_behind_for_the_next_asynchronous_send(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert, attempts = send_buffer.send, list[int]()  # type: ignore[attr-defined]  # imported there

    def fail_once(messages: Any, **options: Any) -> Any:
        attempts.append(len(messages))
        if len(attempts) == 1:
            raise KeyError("as after the admission")
        return insert(messages, **options)

    monkeypatch.setattr(send_buffer, "send", fail_once)
    outcomes = Completions()
    with connection.create_session() as session:
        producer = session.create_producer("orders")
        for number, text in enumerate(("first", "again"), start=1):
            message = session.create_text_message(text)
            message.properties[ID] = "payment 17"
            producer.send(message, completion_listener=outcomes)
            wait_for(lambda number=number: len(outcomes.told) == number)  # type: ignore[misc]
    assert (outcomes.failed, outcomes.sent) == (["first"], ["again"])
    assert texts(connection, "orders") == ["again"]
