"""The ways in which messages of a batch end, and the counts that follow from them."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

import jmsql
from jmsql import BatchProgress, Connection, Queue, RedeliveryPolicy, Session
from jmsql.admin import Administration
from jmsql.testing import receive_all, wait_for
from tests.integration.batches.test_batches import callbacks, counts, end_next, progress

PARTS = Queue("parts")
End = Callable[[Administration, Connection, str], object]


def fail(connection: Connection, queue: str = "parts") -> None:
    """Have the next message of a queue become a dead letter."""
    with connection.create_session(transacted=True) as session:
        consumer = session.create_consumer(queue)
        consumer.redelivery_policy = RedeliveryPolicy(maximum_deliveries=1, dead_letter_queue="DLQ")
        assert consumer.receive(60) is not None
        session.rollback("It is broken.")


ENDS: dict[str, tuple[str, End]] = {
    "failure": ("failed", lambda _, connection, _id: fail(connection)),
    "cancel": ("cancelled", lambda administration, _, message_id: administration.cancel(message_id)),
    "purge": ("cancelled", lambda administration, *_: administration.purge(PARTS)),
    "deletion": ("cancelled", lambda administration, *_: administration.delete(PARTS, force=True)),
}


@pytest.mark.parametrize(
    ("end", "is_delayed"), [*((end, False) for end in ENDS), *((end, True) for end in ENDS if end != "failure")]
)
def test_each_end_is_counted(
    administration: Administration, connection: Connection, end: str, is_delayed: bool
) -> None:
    kind, work = ENDS[end]
    with jmsql.batch(connection, "import", on_end="ends", on_failure="failures", on_success="successes") as batch:
        message_id = batch.send("parts", "one", delivery_delay=1000.0 if is_delayed else 0.0)
        batch.send("others", "two")
    work(administration, connection, message_id)
    with connection.create_session() as session:
        end_next(session, "others")
    wait_for(lambda: progress(connection, batch).is_ended)
    assert callbacks(connection) == callbacks(connection, "failures") == [counts(total=2, done=1, **{kind: 1})]
    assert callbacks(connection, "successes") == []


@pytest.mark.parametrize("expiry_queue", [None, "expired parts"])
def test_expired_messages_are_counted(
    administration: Administration, connection: Connection, expiry_queue: str | None
) -> None:
    if expiry_queue is None:
        administration.create_queue("parts")
    else:
        administration.create_queue(expiry_queue)
        administration.create_queue("parts", expiry_queue=expiry_queue)
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one", time_to_live=0.001)
        batch.send("parts", "two", time_to_live=0.001, delivery_delay=100.0)
    wait_for(lambda: progress(connection, batch).is_ended)
    assert callbacks(connection) == [counts(total=2, expired=2)]


def test_a_retried_dead_letter_corrects_the_counts_and_sends_no_second_callback(
    administration: Administration, connection: Connection, sql: psycopg.Connection
) -> None:
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one")
    fail(connection)
    wait_for(lambda: progress(connection, batch).is_ended)
    assert callbacks(connection) == [counts(total=1, failed=1)]
    administration.retry()
    sql.execute("select jmsql_internal.remove_batches(1000)")
    assert progress(connection, batch) == BatchProgress(1, 0, 0, 0, 0, 1, False, True)
    fail(connection)
    wait_for(lambda: progress(connection, batch) == BatchProgress(1, 0, 1, 0, 0, 0, False, True))
    administration.retry()
    with connection.create_session() as session:
        end_next(session)
    assert progress(connection, batch) == BatchProgress(1, 1, 0, 0, 0, 0, False, True)
    assert callbacks(connection) == []


def test_a_dead_letter_that_is_retried_before_the_end_is_waited_for(
    administration: Administration, connection: Connection
) -> None:
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one")
        batch.send("others", "two")
    fail(connection)
    wait_for(lambda: administration.retry().returned)
    with connection.create_session() as session:
        end_next(session, "others")
        assert callbacks(connection) == []
        end_next(session)
    assert callbacks(connection) == [counts(total=2, done=2)]
    assert progress(connection, batch).fraction == 1


def test_a_message_that_moves_stays_in_its_batch(administration: Administration, connection: Connection) -> None:
    administration.create_queue("target")
    with jmsql.batch(connection, "import", on_end="ends"):
        pass
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one")
        batch.send("parts", "two", delivery_delay=1000.0)
    administration.move(PARTS, Queue("target"))
    assert progress(connection, batch).waiting == 2
    administration.deliver(Queue("target"))
    assert callbacks(connection) == [counts()]
    assert callbacks(connection, "target") == ["one", "two"]
    assert callbacks(connection) == [counts(total=2, done=2)]


def test_a_message_that_is_due_stays_in_its_batch(connection: Connection) -> None:
    with jmsql.batch(connection, "import", on_end="ends"):
        pass
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one", delivery_delay=0.01)
    with connection.create_session() as session:
        end_next(session)
    assert callbacks(connection) == [counts(), counts(total=1, done=1)]
    assert progress(connection, batch).done == 1


def test_a_message_to_a_topic_has_ended_with_its_last_copy(connection: Connection) -> None:
    topic = "topic://news"
    with connection.create_session() as session:
        consumers = [session.create_shared_consumer(topic, name) for name in ("one", "two")]
        with jmsql.batch(connection, "import", on_end="ends") as batch:
            batch.send(topic, "hello")
            batch.send("topic://nobody hears", "hello")
        assert [message.get_body(str) for message in receive_all(consumers[0])] == ["hello"]
        assert callbacks(connection) == []
        assert [message.get_body(str) for message in receive_all(consumers[1])] == ["hello"]
        assert callbacks(connection) == [counts(total=1, done=1)]
    assert progress(connection, batch).done == 1


def test_a_send_that_is_dropped_is_no_message_of_the_batch(connection: Connection) -> None:
    jmsql.send(connection, "parts", "none", coalesce="customer 5")
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one", deduplication_id="one")
        batch.send("parts", "two", deduplication_id="one")
        batch.send("parts", "three", coalesce="customer 5")
        batch.send("others", "four", coalesce="customer 6")
        batch.send("others", "five", coalesce="customer 6", coalesce_body="latest")
    assert callbacks(connection, "parts") == ["none", "one"]
    assert callbacks(connection, "others") == ["five"]
    assert callbacks(connection) == [counts(total=3, done=2, cancelled=1)]
    assert progress(connection, batch).total == 3


def test_replayed_messages_belong_to_no_batch(
    administration: Administration, connection: Connection, sql: psycopg.Connection
) -> None:
    administration.create_queue("parts", history=True)
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one")
    assert callbacks(connection, "parts") == ["one"]
    assert callbacks(connection) == [counts(total=1, done=1)]
    sql.execute("select jmsql.replay('parts', 'parts', '-infinity')")
    assert callbacks(connection, "parts") == ["one"]
    assert progress(connection, batch) == BatchProgress(1, 1, 0, 0, 0, 0, False, True)


def test_a_message_that_is_received_and_sent_again_is_in_no_batch(connection: Connection, sender: Session) -> None:
    with jmsql.batch(connection, "import", on_end="ends"):
        jmsql.send(connection, "others", "apart")
    with jmsql.batch(connection, "import", on_end="ends") as batch:
        batch.send("parts", "one")
    message = sender.create_consumer("parts").receive(60)
    assert message is not None
    sender.create_producer("others").send(message)
    sender.commit()
    assert callbacks(connection) == [counts(), counts(total=1, done=1)]
    assert callbacks(connection, "others") == ["apart", "one"]


def test_the_callbacks_queue_is_made_again(administration: Administration, connection: Connection) -> None:
    with jmsql.batch(connection, "import", on_end="ends", body="It is over.") as batch:
        batch.send("parts", "one")
    administration.delete(Queue("ends"), force=True)
    assert callbacks(connection, "parts") == ["one"]
    with connection.create_session() as session:
        [message] = receive_all(session.create_consumer("ends"))
    assert message.get_body(str) == "It is over."
    assert message.jms_correlation_id == f"batch {batch.id}"
