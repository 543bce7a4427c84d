"""Queues that take messages and deliver none."""

from __future__ import annotations

import dataclasses
import queue as standard_queue
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from jmsql import AcknowledgeMode, Connection, Message, Queue, Session, Timings, Topic, enlist
from jmsql.admin import Administration
from jmsql.testing import FAST_TIMINGS, receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import receive_texts, send_texts, texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))
POLL_INTERVAL = 60.0
WOKEN_WITHIN = 50.0
"""Seconds that are less than a consumer's pause between two looks at its queue."""


@pytest.fixture
def jmsql_timings() -> Timings:
    """Only notifications wake consumers that wait."""
    return dataclasses.replace(
        FAST_TIMINGS,
        minimum_poll_interval=POLL_INTERVAL,
        maximum_poll_interval=POLL_INTERVAL,
        shared_poll_interval=POLL_INTERVAL,
    )


@MODES
def test_a_paused_queue_takes_messages_and_delivers_none(
    administration: Administration, others: Session, mode_session: Session, queue: Queue
) -> None:
    administration.create(queue, paused=True)
    send_texts(others, queue, "a", "b")
    consumer = mode_session.create_consumer(queue)
    assert receive_all(consumer) == []
    assert texts_of(others.create_browser(queue)) == ["a", "b"]
    administration.resume(queue)
    assert receive_texts(consumer, 2) == ["a", "b"]


@MODES
def test_open_consumers_do_not_return_messages_fetched_before_the_pause(
    administration: Administration, others: Session, mode_session: Session, queue: Queue
) -> None:
    send_texts(others, queue, *(str(number) for number in range(100)))
    consumer = mode_session.create_consumer(queue)
    received = receive_texts(consumer, 20)
    changes = consumer._state.buffer.source.changes.count
    administration.pause(queue)
    wait_for(lambda: consumer._state.buffer.source.changes.count > changes)
    assert consumer.receive_no_wait() is None
    administration.resume(queue)
    assert received + receive_texts(consumer, 80) == [str(number) for number in range(100)]


@MODES
@pytest.mark.parametrize("selector", [None, "number >= 0"])
def test_resuming_wakes_waiting_consumers(
    administration: Administration,
    others: Session,
    mode_session: Session,
    queue: Queue,
    selector: str | None,
) -> None:
    administration.create(queue, paused=True)
    message = others.create_text_message("a")
    message.set_int_property("number", 1)
    others.create_producer(queue).send(message)
    consumer = mode_session.create_consumer(queue, selector)
    received: standard_queue.SimpleQueue[Message | None] = standard_queue.SimpleQueue()
    thread = threading.Thread(target=lambda: received.put(consumer.receive(timeout=60)))
    thread.start()
    with pytest.raises(standard_queue.Empty):
        received.get(timeout=1.5)  # by now it waits for a notification
    administration.resume(queue)
    assert received.get(timeout=WOKEN_WITHIN) is not None
    thread.join()


@MODES
def test_a_listener_gets_nothing_while_the_queue_is_paused(
    administration: Administration, others: Session, mode_session: Session, queue: Queue
) -> None:
    send_texts(others, queue, "a", "b", "c")
    got: list[str] = []
    paused = threading.Event()

    def listen(message: Message) -> None:
        got.extend(texts_of([message]))
        if not paused.is_set():
            changes = consumer._state.buffer.source.changes.count
            administration.pause(queue)
            wait_for(lambda: consumer._state.buffer.source.changes.count > changes)
            paused.set()

    consumer = mode_session.create_consumer(queue)
    consumer.message_listener = listen
    assert paused.wait(60)
    send_texts(others, Queue("elsewhere"), "x")
    assert receive_texts(others.create_consumer(Queue("elsewhere")), 1) == ["x"]
    assert got == ["a"]
    administration.resume(queue)
    wait_for(lambda: got == ["a", "b", "c"])


def test_earlier_deliveries_can_be_settled(
    administration: Administration, connection: Connection, others: Session, queue: Queue, server: Server
) -> None:
    send_texts(others, queue, "a", "b", "c")
    transacted = connection.create_session(transacted=True)
    claiming = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    assert receive_texts(transacted.create_consumer(queue), 1) == ["a"]
    message = claiming.create_consumer(queue).receive(timeout=60)
    assert message is not None
    administration.pause(queue)
    message.acknowledge()
    transacted.rollback()
    assert server.rows("select body from jmsql.messages order by sequence") == [("a",), ("c",)]


def test_a_transaction_of_the_callers_gets_nothing(
    administration: Administration, others: Session, queue: Queue, jmsql_transaction: psycopg.Connection
) -> None:
    send_texts(others, queue, "a")
    administration.pause(queue)
    assert enlist(jmsql_transaction).create_consumer(queue).receive(timeout=0) is None


def test_a_paused_topic_pauses_its_subscriptions_now_and_later(
    administration: Administration, session: Session, others: Session
) -> None:
    topic = Topic("prices")
    early = session.create_consumer(topic)
    administration.pause(topic)
    late = session.create_consumer(topic)
    send_texts(others, topic, "a")
    assert receive_all(early) == []
    assert receive_all(late) == []
    administration.resume(topic)
    assert receive_texts(early, 1) == receive_texts(late, 1) == ["a"]


@pytest.mark.parametrize("subscription_commits", [True, False])
def test_a_topic_is_paused_for_a_subscription_that_is_made_meanwhile(
    administration: Administration, server: Server, jmsql_url: str, *, subscription_commits: bool
) -> None:
    """The pause waits for it: it would keep the settings from before."""
    topic = administration.create_topic("prices", history=False)
    with psycopg.connect(jmsql_url) as subscribing, ThreadPoolExecutor(1) as thread:
        subscribing.execute(
            "insert into jmsql_internal.subscription (topic_id, name, durable, shared, no_local) "
            "select topic_id, 'risk', true, true, false from jmsql_internal.topic"
        )
        pausing = thread.submit(administration.pause, topic)
        try:
            server.wait_until_someone_waits()
        finally:
            (subscribing.commit if subscription_commits else subscribing.rollback)()
        pausing.result()
    of_subscriptions = "select q.paused from jmsql_internal.subscription s join jmsql_internal.queue q using (queue_id)"
    assert server.rows(of_subscriptions) == [(True,)] * subscription_commits


def test_by_sql(session: Session, queue: Queue, server: Server) -> None:
    send_texts(session, queue, "a")
    server.rows("select jmsql.pause('orders')")
    consumer = session.create_consumer(queue)
    assert receive_all(consumer) == []
    assert server.rows("select settings from jmsql.destinations") == [({"paused": True},)]
    server.rows("select jmsql.resume('orders')")
    assert receive_texts(consumer, 1) == ["a"]
