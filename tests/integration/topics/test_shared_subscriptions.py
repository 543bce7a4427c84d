"""Consumers that share a subscription divide its messages."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jmsql import Connection, IllegalStateException, Message, MessageConsumer, Session, Topic
from jmsql.admin import SubscriptionChange
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.integration.topics.conftest import Connect
from tests.integration.topics.remote_client import remote_client
from tests.integration.topics.rows import count, wait_until_empty
from tests.texts import receive_texts, send_texts, texts_of

NAME = "shared"
TEXTS = [str(number) for number in range(40)]

Share = Callable[[Session, Topic, str], MessageConsumer]
SHARES = pytest.mark.parametrize(
    "share", [Session.create_shared_consumer, Session.create_shared_durable_consumer], ids=["shared", "shared durable"]
)


@SHARES
def test_consumers_divide_the_messages(connection: Connection, others: Session, topic: Topic, share: Share) -> None:
    """Also those of different connections; while others have copies of their own."""
    consumers = [
        share(connection.create_session(), topic, NAME),
        share(connection.create_session(), topic, NAME),
        share(others, topic, NAME),
    ]
    alone = connection.create_session().create_consumer(topic)
    send_texts(connection.create_session(), topic, *TEXTS)
    received = [[text for _ in range(5) for text in receive_texts(consumer, 1)] for consumer in consumers]
    received.append(texts_of(receive_all(consumers[0])))
    assert sorted(text for texts in received for text in texts) == sorted(TEXTS)
    assert texts_of(receive_all(alone)) == TEXTS


@SHARES
def test_listeners_divide_the_messages(connection: Connection, session: Session, topic: Topic, share: Share) -> None:
    heard: list[Message] = []
    for _ in range(3):
        share(connection.create_session(), topic, NAME).message_listener = heard.append
    send_texts(session, topic, *TEXTS)
    wait_for(lambda: len(heard) >= len(TEXTS))
    assert sorted(texts_of(heard)) == sorted(TEXTS)


def test_subscription_ends_with_its_last_consumer(
    connection: Connection, others: Session, server: Server, topic: Topic
) -> None:
    session = connection.create_session()
    consumers = [session.create_shared_consumer(topic, NAME), others.create_shared_consumer(topic, NAME)]
    consumers.append(session.create_shared_consumer(topic, NAME))
    send_texts(session, topic, "a")
    for consumer in consumers[:2]:
        consumer.close()
        assert count(server, "subscription") == 1
    assert receive_texts(consumers[2], 1) == ["a"]
    send_texts(session, topic, "b")
    consumers[2].close()
    assert count(server, "subscription") == 0
    assert receive_all(session.create_shared_consumer(topic, NAME)) == []
    session.close()
    wait_until_empty(server, "message", "subscriber")


def test_durable_one_stays_and_collects(session: Session, topic: Topic) -> None:
    session.create_shared_durable_consumer(topic, NAME).close()
    send_texts(session, topic, "a")
    assert texts_of(receive_all(session.create_shared_durable_consumer(topic, NAME))) == ["a"]


def send_with_color(session: Session, topic: Topic, *colors: str) -> None:
    for color in colors:
        message = session.create_text_message(color)
        message.set_string_property("color", color)
        session.create_producer(topic).send(message)


@pytest.mark.parametrize(
    ("change", "name", "selector", "difference"),
    [
        (SubscriptionChange.REFUSE, "news", None, "it has the selector \"color = 'red'\", and none is wanted"),
        (SubscriptionChange.REFUSE, "sports", "color = 'red'", "its topic is 'news', and 'sports' is wanted"),
        (SubscriptionChange.KEEP, "sports", "color = 'red'", "its topic is 'news', and 'sports' is wanted"),
    ],
    ids=["selector", "topic", "kept for another topic"],
)
def test_a_refused_change_leaves_collected_messages(
    session: Session, topic: Topic, change: SubscriptionChange, name: str, selector: str | None, difference: str
) -> None:
    session.create_shared_durable_consumer(topic, NAME, "color = 'red'").close()
    send_with_color(session, topic, "red", "blue", "red")
    with pytest.raises(IllegalStateException, match=re.escape(difference)) as refused:
        session.create_shared_durable_consumer(Topic(name), NAME, selector, if_changed=change)
    assert "and holds 2 messages." in str(refused.value)
    assert texts_of(receive_all(session.create_shared_durable_consumer(topic, NAME, "color = 'red'"))) == ["red", "red"]


def test_a_change_may_keep_collected_messages(session: Session, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    """It is delivered whatever the new selector says, which decides about what is published from then on."""
    session.create_shared_durable_consumer(topic, NAME, "color = 'red'").close()
    send_with_color(session, topic, "red", "blue")
    consumer = session.create_shared_durable_consumer(topic, NAME, "color = 'blue'", if_changed=SubscriptionChange.KEEP)
    send_with_color(session, topic, "red", "blue")
    assert texts_of(receive_all(consumer)) == ["red", "blue"]
    assert caplog.messages == []


@SHARES
@pytest.mark.parametrize(("name", "selector"), [("sports", None), ("news", "urgent")], ids=["topic", "selector"])
def test_consumers_must_want_the_same(session: Session, share: Share, name: str, selector: str | None) -> None:
    with share(session, Topic("news"), NAME), pytest.raises(IllegalStateException, match="wants something else"):
        share(session, Topic(name), NAME, selector)  # type: ignore[call-arg]
    share(session, Topic(name), NAME, selector).close()  # type: ignore[call-arg]


def test_name_belongs_to_the_client(connect: Connect, topic: Topic) -> None:
    sessions = [connect(client_id).create_session() for client_id in ("anna", "otto", None, None)]
    consumers = [session.create_shared_durable_consumer(topic, NAME) for session in sessions]
    consumers += [session.create_shared_consumer(topic, NAME) for session in sessions]
    send_texts(sessions[0], topic, "a")
    received = [texts_of(receive_all(consumer)) for consumer in consumers]
    # The two clients without an identifier share.
    assert received == [["a"], ["a"], ["a"], []] * 2
    for consumer in consumers:
        consumer.close()
    for session in sessions[:3]:
        session.unsubscribe(NAME)


@pytest.mark.parametrize("first_is_shared", [False, True])
def test_durable_subscription_is_shared_or_not_for_good(
    reader: Connection, topic: Topic, first_is_shared: bool
) -> None:
    """Or else a consumer of the other sort would lose what was collected (Jakarta Messaging 3.1, chapter 8.3)."""
    session = reader.create_session()
    sorts: list[Share] = [Session.create_durable_consumer, Session.create_shared_durable_consumer]
    first, second = reversed(sorts) if first_is_shared else sorts
    first(session, topic, NAME).close()
    send_texts(session, topic, "a")
    with pytest.raises(IllegalStateException, match="unsubscribe"):
        second(session, topic, NAME)
    with first(session, topic, NAME) as consumer:
        assert texts_of(receive_all(consumer)) == ["a"]
    session.unsubscribe(NAME)
    assert receive_all(second(session, topic, NAME)) == []


def test_durable_and_other_subscriptions_have_names_of_their_own(session: Session, topic: Topic) -> None:
    durable = session.create_shared_durable_consumer(topic, NAME)
    shared = session.create_shared_consumer(topic, NAME)
    send_texts(session, topic, "a")
    assert texts_of(receive_all(durable)) == texts_of(receive_all(shared)) == ["a"]


def test_messages_of_a_killed_consumer_go_to_the_others(jmsql_clean_url: str, session: Session, topic: Topic) -> None:
    with remote_client(jmsql_clean_url) as other:
        other.share(topic, NAME)
        send_texts(session, topic, *TEXTS)
        taken = other.receive(3)
        consumer = session.create_shared_consumer(topic, NAME)
        other.kill()
        assert sorted(receive_texts(consumer, len(TEXTS))) == sorted(TEXTS)
        assert set(taken) <= set(TEXTS)
        assert receive_all(consumer) == []
