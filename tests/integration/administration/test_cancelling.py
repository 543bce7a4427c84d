"""Messages that an administrator cancels: waiting ones, received ones, and races with commits."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from datetime import timedelta

import psycopg
import pytest

import jmsql
from jmsql import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
    TransactionRolledBackException,
)
from jmsql.admin import Administration, Cancellation
from jmsql.testing import receive_all, wait_for
from tests.integration.client.server import Server
from tests.texts import messages_left, receive, texts_left

INTERLEAVINGS = int(os.environ.get("JMSQL_INTERLEAVINGS", "100"))
RETRIES = RedeliveryPolicy(maximum_deliveries=5, delay=600.0)


@pytest.fixture(autouse=True)
def queue(administration: Administration, queue: Queue) -> Queue:
    return administration.create_queue(queue.name, history=True)


def send(
    session: Session,
    queue: Queue | Topic,
    text: str = "a",
    *,
    group: str | None = None,
    delay: timedelta = timedelta(0),
) -> str:
    message = session.create_text_message(text)
    if group is not None:
        message.set_string_property("JMSXGroupID", group)
    producer = session.create_producer(queue)
    producer.delivery_delay = delay
    producer.send(message)
    if session.transacted:
        session.commit()
    assert message.jms_message_id is not None
    return message.jms_message_id


def outcomes(administration: Administration, queue: Queue) -> list[str]:
    return [past.entry.outcome for past in administration.history.messages(queue, limit=INTERLEAVINGS + 10)]


def test_a_message_that_waits_is_removed_and_the_history_says_so(
    administration: Administration, session: Session, queue: Queue, jmsql_factory: ConnectionFactory
) -> None:
    cancelled, _ = send(session, queue, "a"), send(session, queue, "b")
    assert administration.cancel(cancelled) is Cancellation.removed
    assert administration.cancel(cancelled) is Cancellation.gone
    assert texts_left(jmsql_factory, queue) == ["b"]
    assert sorted(outcomes(administration, queue)) == ["acknowledged", "cancelled"]


@pytest.mark.parametrize("history", [True, False])
def test_a_message_that_is_delayed_is_removed(
    administration: Administration, session: Session, queue: Queue, server: Server, history: bool
) -> None:
    administration.alter(queue, history=history)
    cancelled = send(session, queue, delay=timedelta(hours=1))
    assert administration.cancel(cancelled) is Cancellation.removed
    assert server.rows("select from jmsql_internal.delayed_message") == []
    assert server.rows("select from jmsql_internal.message") == []
    assert outcomes(administration, queue) == (["cancelled"] if history else [])


def test_a_retry_that_waits_is_removed(
    administration: Administration, session: Session, connection: Connection, queue: Queue, server: Server
) -> None:
    cancelled = send(session, queue)
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    consumer.set_redelivery_policy(RETRIES)
    receive(consumer)
    transacted.rollback("it failed")
    assert administration.cancel(cancelled) is Cancellation.removed
    assert server.rows("select from jmsql_internal.delivery") == []
    assert administration.history.messages(queue).__next__().entry.delivery_count == 1


def test_a_dead_letter_stays_and_an_unknown_identifier_is_gone(
    administration: Administration, session: Session, connection: Connection, queue: Queue
) -> None:
    dead = send(session, queue)
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    consumer.set_redelivery_policy(RedeliveryPolicy(maximum_deliveries=1))
    receive(consumer)
    transacted.rollback("it failed")
    assert wait_for(lambda: administration.count("DLQ")) == 1
    assert administration.cancel(dead) is Cancellation.gone
    assert administration.count("DLQ") == 1
    for unknown in (
        f"ID:{uuid.uuid4()}",
        str(uuid.uuid4()),
        "",
        "ID:",
        "ID:x",
        "'; drop table",
        "\0",
        "ID:" + "0" * 100,
    ):
        assert administration.cancel(unknown) is Cancellation.gone
    with pytest.raises(TypeError):
        administration.cancel(7)  # type: ignore[arg-type]


def test_a_topic_s_message_is_removed_from_each_subscription(
    administration: Administration, session: Session, server: Server
) -> None:
    topic = Topic("news")
    for name in ("desk", "archive"):
        administration.subscribe(topic, name, shared=True)
    cancelled = send(session, topic)
    assert administration.cancel(cancelled.removeprefix("ID:").upper()) is Cancellation.removed
    assert server.rows("select from jmsql_internal.message") == []


@pytest.fixture
def lock_in_one_subscription(
    administration: Administration, connection: Connection, session: Session
) -> tuple[str, Session]:
    """The identifier of a topic's message, of which a session's transaction has locked one copy, of two."""
    topic = Topic("news")
    for name in ("desk", "archive"):
        administration.subscribe(topic, name, shared=True)
    sent = send(session, topic)
    transacted = connection.create_session(transacted=True)
    receive(transacted.create_shared_durable_consumer(topic, "desk"))
    return sent, transacted


def test_a_message_is_cancelled_if_one_of_its_copies_is_acknowledged_meanwhile(
    administration: Administration,
    lock_in_one_subscription: tuple[str, Session],
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled, transacted = lock_in_one_subscription
    monkeypatch.setattr("jmsql.client._sync.administration.administration._CANCEL_PATIENCE", 60.0)

    def commit() -> None:
        wait_for(lambda: len(server.rows("select from jmsql_internal.message")) == 1)
        transacted.commit()

    committing = threading.Thread(target=commit)
    committing.start()
    assert administration.cancel(cancelled) is Cancellation.removed
    committing.join()
    assert server.rows("select from jmsql_internal.message") == []


def test_a_message_of_which_a_copy_stays_is_locked(
    administration: Administration, lock_in_one_subscription: tuple[str, Session], server: Server
) -> None:
    cancelled, transacted = lock_in_one_subscription
    assert administration.cancel(cancelled) is Cancellation.locked
    assert server.rows("select count(*) from jmsql_internal.message") == [(1,)]
    transacted.rollback()
    assert administration.cancel(cancelled) is Cancellation.removed


def test_cancelling_the_head_of_a_group_frees_the_next(
    administration: Administration, connection: Connection, other_connection: Connection, queue: Queue
) -> None:
    holder = connection.create_session(False, AcknowledgeMode.CLIENT)
    cancelled, _ = send(holder, queue, "a", group="g"), send(holder, queue, "b", group="g")
    message = receive(holder.create_consumer(queue))
    other = other_connection.create_session().create_consumer(queue)
    assert other.receive_no_wait() is None
    assert administration.cancel(cancelled) is Cancellation.asked
    assert receive(other).get_body(str) == "b"
    with pytest.raises(JMSException):
        message.acknowledge()


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK])
def test_a_message_that_was_prefetched_is_not_delivered(
    administration: Administration, connection: Connection, queue: Queue, mode: AcknowledgeMode
) -> None:
    session = connection.create_session(False, mode)
    sent = [send(session, queue, str(number)) for number in range(8)]
    consumer = session.create_consumer(queue)
    received = [receive(consumer), receive(consumer)]
    received[-1].acknowledge()
    first = receive(consumer)  # and with it the next ones are claimed
    waiting = [each for each in sent if each not in {m.jms_message_id for m in [*received, first]}]
    outcome = administration.cancel(waiting[0])
    assert outcome in {Cancellation.asked, Cancellation.removed}
    heard = connection._client.control.cancellations.heard
    assert outcome is Cancellation.removed or wait_for(lambda: heard)
    rest = [message.jms_message_id for message in receive_all(consumer)]
    assert rest == waiting[1:]
    first.acknowledge()


def test_an_acknowledgement_of_a_cancelled_message_is_refused(
    administration: Administration, connection: Connection, queue: Queue, jmsql_factory: ConnectionFactory
) -> None:
    session = connection.create_session(False, AcknowledgeMode.CLIENT)
    cancelled = send(session, queue)
    message = receive(session.create_consumer(queue))
    assert administration.cancel(cancelled) is Cancellation.asked
    with pytest.raises(JMSException, match="could not be acknowledged"):
        message.acknowledge()
    session.recover()
    session.close()
    assert messages_left(jmsql_factory, queue) == []
    assert outcomes(administration, queue) == ["cancelled"]


def test_a_cancellation_counts_the_delivery_that_it_ends(
    administration: Administration, connection: Connection, queue: Queue
) -> None:
    session = connection.create_session(False, AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(queue)
    for cancelled, deliveries in ((send(session, queue), 1), (send(session, queue), 2)):
        for _ in range(deliveries - 1):
            receive(consumer)
            session.recover()
        receive(consumer)
        assert administration.cancel(cancelled) is Cancellation.asked
        assert next(iter(administration.history.messages(queue))).entry.delivery_count == deliveries


def test_a_listener_s_message_is_asked_for_and_not_delivered_again(
    administration: Administration, connection: Connection, queue: Queue
) -> None:
    began, goes_on = threading.Event(), threading.Event()
    texts: list[str] = []

    def listen(message: Message) -> None:
        texts.append(str(message.get_body(str)))
        began.set()
        goes_on.wait(60)

    session = connection.create_session(False, AcknowledgeMode.AUTO)
    cancelled = send(connection.create_session(), queue, "a")
    session.create_consumer(queue).message_listener = listen
    assert began.wait(60)
    assert administration.cancel(cancelled) is Cancellation.asked
    goes_on.set()
    send(connection.create_session(), queue, "b")
    wait_for(lambda: texts == ["a", "b"])


def test_a_message_that_a_transaction_has_locked_stays(
    administration: Administration, connection: Connection, session: Session, queue: Queue
) -> None:
    cancelled = send(session, queue)
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    receive(consumer)
    assert administration.cancel(cancelled) is Cancellation.locked
    transacted.rollback()
    assert administration.cancel(cancelled) is Cancellation.removed
    assert outcomes(administration, queue) == ["cancelled"]


def test_a_transaction_that_has_claimed_a_cancelled_message_is_rolled_back(
    administration: Administration, connection: Connection, session: Session, queue: Queue, server: Server
) -> None:
    sent = [send(session, queue, text) for text in "abc"]
    transacted = connection.create_session(transacted=True)
    consumer = transacted.create_consumer(queue)
    consumer.set_redelivery_policy(RedeliveryPolicy(maximum_deliveries=20))
    for _ in sent:
        receive(consumer)
    outcome = administration.cancel(sent[1])
    assert outcome is Cancellation.asked
    with pytest.raises(TransactionRolledBackException):
        transacted.commit()
    transacted.rollback()
    assert [receive(consumer).jms_message_id for _ in range(2)] == [sent[0], sent[2]]
    transacted.commit()
    assert server.rows("select from jmsql_internal.message") == []


def test_cancelling_races_with_commits_and_one_of_them_wins(
    administration: Administration, jmsql_factory: ConnectionFactory, queue: Queue, server: Server
) -> None:
    """A message is handled or cancelled, never both or neither, and the caller of `cancel` knows which.

    The loser of a round starts earlier in the next one: after ten that it has lost, by twice as much each time.
    """
    effects = Queue("effects")
    told: dict[str, Cancellation] = {}
    committed: set[str] = set()
    barrier = threading.Barrier(2)
    current: list[str] = []
    lead, repetitions, has_committed = 0.0, 0, False

    def cancel() -> None:
        with Administration(jmsql_factory) as other:
            for _ in range(INTERLEAVINGS):
                barrier.wait(60)
                time.sleep(max(-lead, 0.0))
                told[current[0]] = other.cancel(current[0])
                barrier.wait(60)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with jmsql_factory.create_connection() as connection:
        connection.start()
        sender, session = connection.create_session(), connection.create_session(transacted=True)
        consumer = session.create_consumer(queue)
        consumer.set_redelivery_policy(RedeliveryPolicy(maximum_deliveries=20))
        for _ in range(INTERLEAVINGS):
            current[:] = [send(sender, queue)]
            message = consumer.receive_no_wait()
            assert message is not None
            session.create_producer(effects).send(session.create_text_message(current[0]))
            barrier.wait(60)
            time.sleep(max(lead, 0.0))
            had_committed = has_committed
            try:
                session.commit()
                committed.add(current[0])
                has_committed = True
            except TransactionRolledBackException:
                session.rollback()
                has_committed = False
            repetitions = repetitions + 1 if has_committed == had_committed else 0
            step = 0.0002 * 2 ** min(max(repetitions - 10, 0), 8)
            lead += step if has_committed else -step
            barrier.wait(60)
    canceller.join()
    assert Counter(texts_left(jmsql_factory, effects)) == Counter(committed)
    assert {each for each, outcome in told.items() if outcome is Cancellation.gone} == committed
    assert set(told.values()) == {Cancellation.gone, Cancellation.asked}
    assert server.rows("select from jmsql_internal.message") == server.rows("select from jmsql_internal.delivery") == []
    counts = Counter(outcomes(administration, queue))
    assert counts == {"acknowledged": len(committed), "cancelled": INTERLEAVINGS - len(committed)}


def test_the_history_tells_the_state_of_a_cancelled_message(
    administration: Administration, session: Session, queue: Queue
) -> None:
    cancelled = send(session, queue)
    administration.cancel(cancelled)
    assert jmsql.status(session, cancelled) == "cancelled"


@pytest.mark.usefixtures("row_security_is_off_again")
def test_administrators_alone_cancel(
    administration: Administration, session: Session, queue: Queue, jmsql_clean_url: str, server: Server
) -> None:
    cancelled = send(session, queue)
    server.rows("insert into jmsql_internal.result_keeping select queue_id, 60 from jmsql_internal.queue")
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute("create role canceller")
        database.execute("select jmsql.grant_access(%s, 'canceller', 'send', 'receive', 'browse')", (queue.name,))
        database.execute("set local role canceller")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.execute("select jmsql.cancel(%s)", (cancelled,))
        database.rollback()
        database.execute("create role canceller")
        database.execute("select jmsql_internal.permit('canceller', '{administer}', null)")
        database.execute("set local role canceller")
        assert database.execute("select jmsql.cancel(%s)", (cancelled,)).fetchall() == [("removed",)]
        assert database.execute("select state from jmsql.results").fetchall() == [("cancelled",)]
        database.rollback()
