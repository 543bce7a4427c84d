"""jmsql as an application uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.database import BODY, BenchmarkDatabase
from benchmarks.measurement import Work
from jmsql import AcknowledgeMode, DeliveryMode, JMSException, Message, MessageConsumer


@contextmanager
def send_in_transactions(database: BenchmarkDatabase, queue: str, batch: int) -> Iterator[Work]:
    """Send `batch` messages with each commit."""
    with database.factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        producer = session.create_producer(session.create_queue(queue))

        def work(count: int) -> None:
            for _ in range(count // batch):
                for _ in range(batch):
                    producer.send(session.create_text_message(BODY))
                session.commit()

        yield work


@contextmanager
def send(database: BenchmarkDatabase, queue: str, *, persistent: bool = True) -> Iterator[Work]:
    """Send each message by itself."""
    with database.factory.create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue(queue))
        producer.delivery_mode = DeliveryMode.PERSISTENT if persistent else DeliveryMode.NON_PERSISTENT

        def work(count: int) -> None:
            for _ in range(count):
                producer.send(session.create_text_message(BODY))

        yield work


@contextmanager
def send_asynchronously(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    """Send messages with a completion listener, and wait until it was told of all of them."""
    with database.factory.create_connection() as connection, connection.create_session() as session:
        destination = session.create_queue(queue)

        def work(count: int) -> None:
            failures: list[JMSException] = []

            def listener(_: Message, error: JMSException | None) -> None:
                if error is not None:
                    failures.append(error)

            with session.create_producer(destination) as producer:
                for _ in range(count):
                    producer.send(session.create_text_message(BODY), completion_listener=listener)
            if failures:
                raise SystemExit(f"{len(failures)} messages were not sent: {failures[0]}")

        yield work


@contextmanager
def receive_in_transactions(
    database: BenchmarkDatabase, queue: str, batch: int, selector: str | None = None
) -> Iterator[Work]:
    """Receive `batch` messages with each commit."""
    with database.factory.create_connection() as connection, connection.create_session(transacted=True) as session:
        consumer = session.create_consumer(session.create_queue(queue), selector)
        connection.start()

        def work(count: int) -> None:
            for number in range(1, count + 1):
                _received(consumer)
                if number % batch == 0:
                    session.commit()

        yield work


@contextmanager
def receive(database: BenchmarkDatabase, queue: str) -> Iterator[Work]:
    """Receive in an AUTO session."""
    with database.factory.create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(queue))
        connection.start()

        def work(count: int) -> None:
            for _ in range(count):
                _received(consumer)

        yield work


@contextmanager
def receive_in_batches(database: BenchmarkDatabase, queue: str, mode: AcknowledgeMode, batch: int) -> Iterator[Work]:
    """Receive in a CLIENT session that acknowledges every `batch` messages, or in a DUPS_OK session."""
    with (
        database.factory.create_connection() as connection,
        connection.create_session(mode) as session,
    ):
        consumer = session.create_consumer(session.create_queue(queue))
        connection.start()

        def work(count: int) -> None:
            for number in range(1, count + 1):
                message = _received(consumer)
                if number % batch == 0:
                    message.acknowledge()

        yield work


def _received(consumer: MessageConsumer) -> Message:
    message = consumer.receive(timeout=10.0)
    if message is None:
        raise SystemExit(f"{consumer.destination} ran out of messages.")
    return message
