"""Publishers and subscribers that come and go, all at the same time."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from functools import partial
from random import Random

from jmsql import Connection, Topic
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.integration.client.server import Server
from tests.integration.topics.conftest import Connect
from tests.integration.topics.rows import count, wait_until_empty
from tests.texts import texts_of

MESSAGES = 60


def publish(connection: Connection, topic: Topic, *, transacted: bool) -> list[str]:
    texts = [str(uuid.uuid4()) for _ in range(MESSAGES)]
    with connection.create_session(transacted) as session:
        producer = session.create_producer(topic)
        for number, text in enumerate(texts):
            message = session.create_text_message(text)
            message.set_int_property("number", number)
            producer.send(message)
            if transacted and number % 7 == 6:
                session.commit()
        if transacted:
            session.commit()
    return texts


def come_and_go(connection: Connection, topic: Topic, random: Random, is_over: Callable[[], bool]) -> None:
    name = str(random.random())
    while not is_over():
        selector = f"number > {random.randrange(MESSAGES)}"
        transacted = random.random() < 0.5
        with connection.create_session(transacted) as session:
            consumers = [
                session.create_consumer(topic, selector, no_local=random.random() < 0.5),
                session.create_shared_consumer(topic, "everyone's"),
                session.create_durable_consumer(topic, name, random.choice((None, selector))),
            ]
            for consumer in consumers:
                consumer.receive(timeout=random.choice((0, 0.01)))
                if random.random() < 0.5:
                    consumer.close()
            if transacted:
                random.choice((session.commit, session.rollback))()
    with connection.create_session() as session:
        session.unsubscribe(name)


def test_stable_subscription_misses_nothing_and_nothing_is_left_of_the_others(
    connect: Connect, server: Server, topic: Topic
) -> None:
    stable = connect("stable").create_session()
    subscriber = stable.create_durable_consumer(topic, "stable")
    over = threading.Event()
    # Two threads share each connection, with sessions of their own.
    comers = [
        Background(partial(come_and_go, connection, topic, Random(f"{connection.client_id} {number}"), over.is_set))
        for connection in (connect("first"), connect("second"))
        for number in range(2)
    ]
    publishing = connect(None)
    publishers = [
        Background(partial(publish, publishing, topic, transacted=transacted)) for transacted in (False, True, True)
    ]
    published = [publisher.result(timeout=180) for publisher in publishers]
    over.set()
    for comer in comers:
        comer.result(timeout=180)

    received = texts_of(receive_all(subscriber))
    assert sorted(received) == sorted(text for texts in published for text in texts)
    for texts in published:
        assert [text for text in received if text in texts] == texts, "in the order of their session"
    wait_for(lambda: count(server, "subscription") == 1)  # maintenance may have to remove one
    subscriber.close()
    stable.unsubscribe("stable")
    wait_until_empty(server, "message", "delivery", "subscription", "subscriber", "queue")
