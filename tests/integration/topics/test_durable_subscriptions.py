"""Durable subscriptions outlive consumers, connections, clients and the server; one consumer at a time has them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Session,
    Topic,
)
from jmsql.admin import Administration
from jmsql.embedded import start_server
from jmsql.store.destinations.subscriptions import SubscriptionDefinition, attach
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.topics.conftest import Connect
from tests.integration.topics.remote_client import remote_client
from tests.integration.topics.rows import count, wait_until_empty
from tests.prepared_data import prepare_data
from tests.texts import receive, receive_texts, send_texts, texts_of

NAME = "subscription"
CONNECTED = """
    select count(*) from jmsql_internal.connection
    where client_id = %s and jmsql_internal.is_connected(connection_id)"""
ATTACH = """
    insert into jmsql_internal.subscriber (queue_id, connection_id, consumers)
    select s.queue_id, c.connection_id, 1 from jmsql_internal.subscription s, jmsql_internal.connection c
    where c.client_id = 'reader'
    """


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="jmsql-durable-") as directory:
        Path(directory).chmod(0o711)  # for root: the server's account must pass through
        yield Path(directory)


def test_collects_while_its_connection_is_closed(connect: Connect, others: Session, topic: Topic) -> None:
    for expected in ([], ["a", "b"], ["a", "b"]):
        with connect("reader") as reader:
            assert texts_of(receive_all(reader.create_session().create_durable_consumer(topic, NAME))) == expected
        send_texts(others, topic, "a", "b")


def test_survives_a_restart_of_the_server(directory: Path, topic: Topic) -> None:
    prepare_data(directory / "server")
    for expected in ([], ["a", "b"]):
        with (
            start_server(directory / "server") as server,
            ConnectionFactory(server.url, client_id="reader").create_connection() as connection,
        ):
            connection.start()
            session = connection.create_session()
            with session.create_durable_consumer(topic, NAME) as consumer:
                assert texts_of(receive_all(consumer)) == expected
            send_texts(session, topic, "a", "b")


def test_no_local_concerns_the_client_whatever_its_connection(connect: Connect, others: Session, topic: Topic) -> None:
    with connect("reader") as reader:
        reader.create_session().create_durable_consumer(topic, NAME, no_local=True).close()
    reader = connect("reader")
    send_texts(reader.create_session(), topic, "own")
    send_texts(others, topic, "theirs")
    assert texts_of(receive_all(reader.create_session().create_durable_consumer(topic, NAME, no_local=True))) == [
        "theirs"
    ]


def test_messages_of_another_definition_are_gone_from_the_tables(
    reader: Connection, server: Server, topic: Topic
) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    send_texts(session, topic, "a", "b")
    session.create_durable_consumer(topic, NAME, "urgent").close()
    assert count(server, "subscription") == 1
    wait_until_empty(server, "message")


def test_the_log_says_how_many_messages_another_definition_drops(
    reader: Connection, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    send_texts(session, topic, "a", "b")
    producer = session.create_producer(topic)
    producer.delivery_delay = 600
    producer.send(session.create_text_message("delayed"))
    session.create_durable_consumer(topic, NAME).close()
    assert caplog.messages == []
    session.create_durable_consumer(topic, NAME, no_local=True).close()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("Subscription made again, since ")
    assert "the durable subscription 'subscription'" in record.getMessage()
    assert "Dropped: 3 messages." in record.getMessage()


def test_is_not_defined_again_while_its_messages_are_held(reader: Connection, topic: Topic) -> None:
    holding = reader.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    session = reader.create_session()
    with holding.create_durable_consumer(topic, NAME) as consumer:
        send_texts(session, topic, "a")
        message = receive(consumer)
    with pytest.raises(IllegalStateException, match="not acknowledged"):
        session.create_durable_consumer(topic, NAME, "urgent")
    message.acknowledge()
    session.create_durable_consumer(topic, NAME, "urgent")


def test_unsubscribing_leaves_nothing(reader: Connection, server: Server, topic: Topic) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    send_texts(session, topic, *"abcde")
    session.unsubscribe(NAME)
    wait_until_empty(server, "message", "subscription", "subscriber", "queue")


def test_one_consumer_at_a_time_across_processes(
    jmsql_clean_url: str, connect: Connect, others: Session, topic: Topic, server: Server
) -> None:
    """A client identifier has one connection. When its process dies, both are free as soon as the server sees it."""
    with remote_client(jmsql_clean_url, "reader") as first:
        assert first.subscribe_durably(topic, NAME) is None
        assert first.subscribe_durably(topic, NAME) == "IllegalStateException"
        with pytest.raises(JMSException, match="in use"):
            connect("reader")
        send_texts(others, topic, "a", "b", "c")
        assert first.receive(2) == ["a", "b"]
        first.kill()
        wait_for(lambda: server.rows(CONNECTED, "reader") == [(0,)])
        consumer = connect("reader").create_session().create_durable_consumer(topic, NAME)
        received = sorted((receive(consumer) for _ in range(3)), key=lambda message: str(message.get_body(str)))
    assert texts_of(received) == ["a", "b", "c"]
    assert [message.jms_redelivered for message in received[:2]] == [True, True]


@pytest.mark.parametrize("client_id", ["it's", "%s", "a\0b", "\ud800", "名前"])
def test_client_identifier_may_be_any_text(connect: Connect, others: Session, topic: Topic, client_id: str) -> None:
    with connect(client_id) as reader:
        session = reader.create_session()
        session.create_durable_consumer(topic, NAME, no_local=True).close()
        send_texts(session, topic, "own")
        send_texts(others, topic, "theirs")
    session = connect(client_id).create_session()
    with session.create_durable_consumer(topic, NAME, no_local=True) as consumer:
        assert texts_of(receive_all(consumer)) == ["theirs"]
    session.unsubscribe(NAME)


def test_consumer_that_comes_while_another_unsubscribes_keeps_its_subscription(
    connect: Connect, blocker: psycopg.Connection, server: Server, topic: Topic
) -> None:
    """The administrator's transaction does what that of a client does that joins at the same time."""
    session = connect("reader").create_session()
    session.create_durable_consumer(topic, NAME).close()
    blocker.execute("select from jmsql_internal.subscription for update")
    blocker.execute(ATTACH)
    unsubscribing = Background(lambda: session.unsubscribe(NAME))
    server.wait_until_someone_waits()
    blocker.commit()
    with pytest.raises(IllegalStateException, match="active consumer"):
        unsubscribing.result()


def test_consumers_that_want_another_topic_at_the_same_time_do_not_both_get_it(
    connect: Connect, blocker: psycopg.Connection, server: Server, topic: Topic
) -> None:
    session = connect("reader").create_session()
    session.create_durable_consumer(topic, NAME).close()
    blocker.execute("select from jmsql_internal.subscription for update")
    blocker.execute(ATTACH)
    joining = Background(lambda: session.create_durable_consumer(Topic("sports"), NAME))
    server.wait_until_someone_waits()
    blocker.commit()
    with pytest.raises(IllegalStateException):
        joining.result()


def test_two_that_make_one_on_different_topics_at_the_same_time_do_not_both_get_it(
    jmsql_clean_url: str, connect: Connect, blocker: psycopg.Connection, server: Server, topic: Topic
) -> None:
    session = connect("reader").create_session()
    definition = SubscriptionDefinition(topic.name, name=NAME, client_id="reader", durable=True)
    other = connect(None)
    PsycopgRunner(blocker, "jmsql").run(attach(definition, other._control.connection_id))
    joining = Background(lambda: session.create_durable_consumer(Topic("sports"), NAME))
    server.wait_until_someone_waits()
    blocker.commit()
    with pytest.raises(IllegalStateException, match="wants something else"):
        joining.result()
    assert server.rows(
        "select t.name from jmsql_internal.subscription join jmsql_internal.topic t using (topic_id)"
    ) == [(topic.name,)]


def test_locks_of_others_keep_no_client_from_making_one(
    connect: Connect, blocker: psycopg.Connection, server: Server, topic: Topic
) -> None:
    """Any role can take an advisory lock, with whatever key jmsql would take."""
    session = connect("reader").create_session()
    for identity in (("jmsql", True, "reader", NAME), ("jmsql", False, None, NAME)):
        blocker.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [repr(identity)])
    creating = Background(lambda: session.create_durable_consumer(topic, NAME))
    creating.result().close()
    Background(lambda: session.create_shared_consumer(topic, NAME)).result().close()


def test_unsubscribing_in_use_changes_nothing(reader: Connection, topic: Topic) -> None:
    session, transacted = reader.create_session(), reader.create_session(transacted=True)
    with transacted.create_durable_consumer(topic, NAME) as consumer:
        send_texts(session, topic, "a", "b")
        assert receive_texts(consumer, 1) == ["a"]
    with pytest.raises(IllegalStateException):
        session.unsubscribe(NAME)
    transacted.rollback()
    assert texts_of(receive_all(session.create_durable_consumer(topic, NAME))) == ["a", "b"]


def test_temporary_topic_has_none(reader: Connection) -> None:
    session = reader.create_session()
    with pytest.raises(InvalidDestinationException, match="temporary"):
        session.create_durable_consumer(session.create_temporary_topic(), NAME)


class TestAdministration:
    """Durable subscriptions that an administrator makes before a consumer comes."""

    def test_collects_before_its_first_consumer_comes(
        self, jmsql_clean_url: str, connect: Connect, others: Session, topic: Topic
    ) -> None:
        with Administration(jmsql_clean_url) as administration:
            assert administration.subscribe(topic, NAME, "JMSPriority > 4", client_id="reader") is True
            assert administration.subscribe("news", NAME, "JMSPriority > 4", client_id="reader") is False
            send_texts(others, topic, "a", priority=3)
            send_texts(others, topic, "b", priority=7)
            [browsed] = administration.browse_subscription(NAME, client_id="reader")
            assert browsed.message.jms_destination == topic
            summary = administration.subscription(NAME, "reader")
            assert summary is not None
            assert (summary.ready, summary.consumers) == (1, 0)
            consumer = connect("reader").create_session().create_durable_consumer(topic, NAME, "JMSPriority > 4")
            assert receive_texts(consumer, 1) == ["b"]
            assert administration.subscription(NAME) is None

    def test_another_one_of_its_name_is_left_as_it_is(self, jmsql_clean_url: str, server: Server, topic: Topic) -> None:
        with Administration(jmsql_clean_url) as administration:
            administration.subscribe(topic, NAME, client_id="reader")
            others: list[Callable[[], object]] = [
                lambda: administration.subscribe(topic, NAME, "JMSPriority > 4", client_id="reader"),
                lambda: administration.subscribe(topic, NAME, client_id="reader", no_local=True),
                lambda: administration.subscribe(topic, NAME, client_id="reader", shared=True),
                lambda: administration.subscribe("sports", NAME, client_id="reader"),
            ]
            for make_another in others:
                with pytest.raises(IllegalStateException, match="unsubscribe it first"):
                    make_another()
            with pytest.raises(IllegalStateException, match="client identifier, unless it is shared"):
                administration.subscribe(topic, NAME)
            with pytest.raises(InvalidDestinationException):
                administration.subscribe("queue://orders", NAME, shared=True)
            with pytest.raises(InvalidDestinationException, match="no durable subscription"):
                list(administration.browse_subscription(NAME))
        assert count(server, "subscription") == 1
