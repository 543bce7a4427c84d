"""Each subscription gets what its selector chooses of what is published, and nothing else."""

from __future__ import annotations

import uuid
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsql import Connection, Message, Session, Topic
from jmsql.selectors import Selector
from jmsql.store.sending.send import known_selectors
from jmsql.testing import receive_all
from jmsql.values.recently_used import RecentlyUsed
from tests.integration.selectors.generation import SelectorGenerator, random_message
from tests.integration.topics.remote_client import remote_client
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("shared_connection")

MANY = 150


def test_every_subscription_has_its_own_copy(connection: Connection, others: Session, topic: Topic) -> None:
    consumers = [connection.create_session().create_consumer(topic) for _ in range(3)]
    send_texts(others, topic, "a", "b")
    assert [texts_of(receive_all(consumer)) for consumer in consumers] == [["a", "b"]] * 3


def test_topic_and_queue_of_one_name_are_two_destinations(session: Session, topic: Topic) -> None:
    queue = session.create_queue(topic.name)
    subscriber, receiver = session.create_consumer(topic), session.create_consumer(queue)
    send_texts(session, topic, "published")
    send_texts(session, queue, "sent")
    assert texts_of(receive_all(subscriber)) == ["published"]
    assert texts_of(receive_all(receiver)) == ["sent"]


def test_subscription_gets_later_publications(session: Session, topic: Topic) -> None:
    send_texts(session, topic, "before")
    with session.create_consumer(topic) as consumer:
        send_texts(session, topic, "a")
        assert texts_of(receive_all(consumer)) == ["a"]
        send_texts(session, topic, "missed")
    assert receive_all(session.create_consumer(topic)) == []


def test_each_subscription_keeps_order_and_priority(session: Session, topic: Topic) -> None:
    consumer = session.create_consumer(topic)
    send_texts(session, topic, "a", "b")
    send_texts(session, topic, "urgent", priority=9)
    assert texts_of(receive_all(consumer)) == ["urgent", "a", "b"]


def test_many_subscriptions_with_selectors_of_their_own(connection: Connection, session: Session, topic: Topic) -> None:
    consumers = [session.create_consumer(topic, f"number = {number} or number < 2") for number in range(MANY)]
    for transacted in (False, True):
        publishing = connection.create_session(transacted)
        producer = publishing.create_producer(topic)
        for number in (1, 7, MANY - 1, MANY):
            message = publishing.create_text_message(str(number))
            message.set_int_property("number", number)
            producer.send(message)
        if transacted:
            publishing.commit()
        wanted = {number: ["1"] for number in range(MANY)} | {7: ["1", "7"], MANY - 1: ["1", str(MANY - 1)]}
        assert {number: texts_of(receive_all(consumer)) for number, consumer in enumerate(consumers)} == wanted


@pytest.mark.parametrize(
    "value",
    ["it's", "100%", "%(selector_0)s", '"quoted"', "back\\slash", "名前", "{}", "a\0b", "\ufffe", "\ud800", "\n", "--"],
)
def test_selector_may_hold_any_character(session: Session, topic: Topic, value: str) -> None:
    literal = "'" + value.replace("'", "''") + "'"
    plain = session.create_consumer(topic, f"word = {literal}")
    durable = session.create_shared_durable_consumer(topic, "odd", f"word in ({literal}, 'x')")
    for word in (value, "another"):
        message = session.create_text_message(word)
        message.set_string_property("word", word)
        session.create_producer(topic).send(message)
    assert [message.get_body(str) for message in receive_all(plain)] == [value]
    durable.close()
    again = session.create_shared_durable_consumer(topic, "odd", f"word in ({literal}, 'x')")
    assert [message.get_body(str) for message in receive_all(again)] == [value]


@pytest.mark.parametrize("name", ["it's", "%s", "a\0b", "\ud800", "名前", "x" * 1000, " "])
def test_subscription_may_have_any_name(session: Session, topic: Topic, name: str) -> None:
    session.create_shared_durable_consumer(topic, name).close()
    send_texts(session, topic, "a")
    with session.create_shared_durable_consumer(topic, name) as consumer:
        assert texts_of(receive_all(consumer)) == ["a"]
    session.unsubscribe(name)


def test_selector_that_another_process_brings_is_heeded_at_once(
    jmsql_clean_url: str, connection: Connection, topic: Topic
) -> None:
    """The publisher has a statement already, made for the selectors that there were before."""
    session, transacted = connection.create_session(), connection.create_session(transacted=True)
    mine = session.create_consumer(topic, "number = 0")
    with remote_client(jmsql_clean_url) as other:
        for number in range(1, 5):
            publishing = transacted if number % 2 else session
            other.subscribe(topic, f"number = {number}")
            for value in (0, number, number + 1):
                message = publishing.create_text_message(str(value))
                message.set_int_property("number", value)
                publishing.create_producer(topic).send(message)
            if publishing is transacted:
                transacted.commit()
            assert other.receive(1) == [str(number)]
            assert receive_texts(mine, 1) == ["0"]
    assert receive_all(mine) == []


def test_statement_of_a_transaction_is_made_again_for_a_subscription_that_comes_between(
    connection: Connection, session: Session, topic: Topic
) -> None:
    publishing = connection.create_session(transacted=True)
    producer = publishing.create_producer(topic)
    early = session.create_consumer(topic, "number = 1 or number = 2")
    late = None
    for number in (1, 2):
        message = publishing.create_text_message(str(number))
        message.set_int_property("number", number)
        producer.send(message)
        assert publishing.database is not None  # sends what waits
        late = late or session.create_consumer(topic, "number > 0")
    publishing.commit()
    assert texts_of(receive_all(early)) == ["1", "2"]
    assert late is not None
    assert texts_of(receive_all(late)) == ["2"]


def test_subscriptions_get_selected_messages(connection: Connection) -> None:
    session, publishing = connection.create_session(), connection.create_session(transacted=True)

    @given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 8))
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    def check(seed: int, subscriptions: int, messages: int) -> None:
        random = Random(seed)
        generator = SelectorGenerator(random)
        topic = Topic(str(uuid.uuid4()))
        texts = [None, *(generator.selector() for _ in range(subscriptions))]
        consumers = [session.create_consumer(topic, text) for text in texts]
        published = [random_message(random) for _ in range(messages)]
        producer = publishing.create_producer(topic)
        for message in published:
            producer.send(message)
        publishing.commit()
        for text, consumer in zip(texts, consumers, strict=True):
            selector = Selector.parse(text)
            wanted = [message for message in published if selector is None or selector.matches(message)]
            assert identifiers(receive_all(consumer)) == identifiers(wanted), text
            consumer.close()

    def identifiers(messages: list[Message]) -> list[str | None]:
        ordered = sorted(messages, key=lambda message: -message.jms_priority)
        return [message.jms_message_id for message in ordered]

    check()


def test_selectors_that_no_local_leaves_out_for_one_publisher_stay_known_for_the_others(
    connection: Connection, other_connection: Connection, topic: Topic
) -> None:
    clients = {"red": connection.create_session(), "blue": other_connection.create_session()}
    consumers = {
        color: session.create_consumer(topic, f"color = '{color}'", no_local=True) for color, session in clients.items()
    }
    for session in clients.values():
        message = session.create_text_message("a")
        message.set_string_property("color", "red")
        session.create_producer(topic).send(message)
        known = known_selectors.get(topic.name)
        assert known == ("color = 'blue'", "color = 'red'")
    assert {color: texts_of(receive_all(consumer)) for color, consumer in consumers.items()} == {
        "red": ["a"],
        "blue": [],
    }


def test_selectors_of_topics_that_were_not_used_for_long_are_forgotten_and_asked_for_again(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = RecentlyUsed[str, tuple[str, ...]](2)
    monkeypatch.setattr("jmsql.store.sending.send.known_selectors", known)
    session = connection.create_session()
    topics = [Topic(f"topic {number}") for number in range(4)]
    consumers = [session.create_consumer(topic, "color = 'red'") for topic in topics]
    for _ in range(2):
        for topic, consumer in zip(topics, consumers, strict=True):
            for color in ("red", "blue"):
                message = session.create_text_message(color)
                message.set_string_property("color", color)
                session.create_producer(topic).send(message)
            assert receive_texts(consumer, 1) == ["red"]
    assert len(known) == 2
