"""What an administrator sees of topics."""

from __future__ import annotations

from jmsql import AcknowledgeMode, Connection, Session, Topic
from jmsql.testing import wait_for
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts

NAME = "subscription"


def test_subscriptions_are_shown_with_their_messages(
    reader: Connection, others: Session, server: Server, topic: Topic
) -> None:
    holding = reader.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    session = reader.create_session()
    session.create_consumer(topic, "weight > 1", no_local=True)
    durable = holding.create_durable_consumer(topic, NAME)
    for _ in range(2):
        others.create_shared_consumer(topic, NAME)
    others.create_shared_durable_consumer(topic, "all").close()
    with others.create_producer(topic) as producer:
        for text in ("a", "b"):
            producer.send(others.create_text_message(text), time_to_live=60)
    assert receive_texts(durable, 1) == ["a"]
    holding.recover()
    durable.close()
    shown = server.rows(
        """
        select subscription, client_id, durable, shared, selector, no_local, consumers, ready, claimed, redelivered,
               oldest_sent_at is not null
        from jmsql.subscriptions where topic = %s order by durable, subscription nulls first
        """,
        topic.name,
    )
    assert shown == [
        (None, None, False, False, "weight > 1", True, 1, 0, 0, 0, False),
        (NAME, None, False, True, None, False, 2, 2, 0, 0, True),
        ("all", None, True, True, None, False, 0, 2, 0, 0, True),
        (NAME, "reader", True, False, None, False, 0, 2, 0, 1, True),
    ]


def test_messages_are_shown_with_their_subscription(
    reader: Connection, others: Session, server: Server, topic: Topic
) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    session.create_consumer(topic)
    send_texts(others, topic, "published")
    send_texts(others, others.create_queue("orders"), "sent")
    shown = server.rows(
        "select queue, topic, subscription, client_id, body from jmsql.messages order by queue, subscription"
    )
    assert shown == [
        ("orders", None, None, None, "sent"),
        (None, topic.name, NAME, "reader", "published"),
        (None, topic.name, None, None, "published"),
    ]


def test_queues_of_subscriptions_and_of_the_past_are_no_queues(
    reader: Connection, others: Session, server: Server, topic: Topic
) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    temporary, deleted = session.create_temporary_queue(), session.create_temporary_queue()
    send_texts(others, topic, "published")
    for queue in (others.create_queue("orders"), temporary, deleted):
        send_texts(others, queue, "sent")
    with reader.create_session(transacted=True) as holding:
        with holding.create_consumer(deleted) as consumer:
            assert receive_texts(consumer, 1) == ["sent"]
        deleted.delete()
        assert sorted(server.rows("select queue, ready from jmsql.queues")) == [("orders", 1), (temporary.name, 1)]
        assert server.rows("select count(*) from jmsql.messages") == [(3,)], "the messages of the deleted one"


def test_definition_is_readable(reader: Connection, server: Server) -> None:
    """Names and selectors are shown as they were given, whatever they hold."""
    reader.create_session().create_durable_consumer(Topic("größe"), "it's 100%", "s = 'a''b'").close()
    shown = server.rows("select topic, subscription, selector from jmsql.subscriptions")
    assert shown == [("größe", "it's 100%", "s = 'a''b'")]


def test_expired_messages_are_shown_as_such_until_maintenance_removes_them(
    reader: Connection, server: Server, topic: Topic
) -> None:
    session = reader.create_session()
    session.create_durable_consumer(topic, NAME).close()
    producer = session.create_producer(topic)
    producer.send(session.create_text_message("short"), time_to_live=0.01)
    producer.send(session.create_text_message("for ever"))
    wait_for(lambda: server.rows("select ready from jmsql.subscriptions") == [(1,)])
    wait_for(lambda: server.rows("select body from jmsql.messages") == [("for ever",)])
