"""Sends that do not wait, and the listeners that are told of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageProducer,
    Queue,
    Session,
    TextMessage,
    Topic,
    TransactionRolledBackException,
)
from jmsql.testing import wait_for
from tests.integration.client.sending_process import SendingProcess
from tests.integration.client.server import SESSIONS, Server

PATIENCE = 10.0


class Completions:
    """A completion listener that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Message, JMSException | None]] = []
        self.threads: set[threading.Thread] = set()

    def on_completion(self, message: Message) -> None:
        self._note(message, None)

    def on_exception(self, message: Message, exception: JMSException) -> None:
        self._note(message, exception)

    def _note(self, message: Message, exception: JMSException | None) -> None:
        self.told.append((message, exception))
        self.threads.add(threading.current_thread())

    @property
    def sent(self) -> list[str | None]:
        """The texts of the messages that were sent."""
        return [message.get_body(str) for message, error in self.told if error is None]

    @property
    def failed(self) -> list[str | None]:
        """The texts of the messages that were not."""
        return [message.get_body(str) for message, error in self.told if error is not None]

    @property
    def errors(self) -> list[JMSException]:
        """Why."""
        return [error for _, error in self.told if error is not None]


class Gate:
    """A completion listener that waits until it is let go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.passed: list[str | None] = []

    def __call__(self, message: Message, _: JMSException | None) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE)
        self.passed.append(message.get_body(str))


@pytest.fixture
def completions() -> Completions:
    return Completions()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def producer(session: Session, queue: Queue) -> MessageProducer:
    return session.create_producer(queue)


@pytest.fixture
def transacted(connection: Connection) -> Session:
    return connection.create_session(transacted=True)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def send_numbers(producer: MessageProducer, count: int, listener: Any) -> None:
    for text in numbers(count):
        producer.send(TextMessage(text), completion_listener=listener)


def stored(server: Server) -> list[str]:
    """The texts of the messages in the store, in their order."""
    return [row[0] for row in server.rows("select body from jmsql.messages order by priority desc, sequence")]


class TestListener:
    def test_it_is_told_once_the_message_is_in_the_store(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        def listener(message: Message, error: JMSException | None) -> None:
            assert stored(server) == ["hello"]
            completions._note(message, error)

        message = TextMessage("hello")
        producer.send(message, completion_listener=listener)
        wait_for(lambda: completions.told)
        assert completions.told == [(message, None)]
        assert completions.threads.isdisjoint({threading.current_thread()})

    def test_it_is_a_callable_too(self, producer: MessageProducer) -> None:
        told: list[tuple[Message, JMSException | None]] = []
        message = TextMessage("hello")
        producer.send(message, completion_listener=lambda message, error: told.append((message, error)))
        producer.close()
        assert told == [(message, None)]

    def test_nothing_else_is_one(self, producer: MessageProducer, server: Server) -> None:
        with pytest.raises(TypeError, match="on_completion"):
            producer.send(TextMessage("hello"), completion_listener="listener")  # type: ignore[arg-type]
        assert stored(server) == []

    def test_it_is_told_of_each_message_in_the_order_of_the_sends(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        send_numbers(producer, 3000, completions)
        producer.close()
        assert completions.sent == numbers(3000)
        assert stored(server) == numbers(3000)
        assert len(completions.threads) == 1

    def test_headers_are_set(self, producer: MessageProducer, completions: Completions, queue: Queue) -> None:
        message = TextMessage("hello")
        producer.send(message, priority=7, time_to_live=60.0, completion_listener=completions)
        producer.close()
        assert message.jms_message_id is not None
        assert (message.jms_destination, message.jms_priority) == (queue, 7)
        assert message.jms_expiration == message.jms_timestamp + 60_000

    def test_message_may_be_changed_and_sent_again(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        message = TextMessage()
        for text in numbers(10):
            message.text = text
            producer.send(message, completion_listener=completions)
        producer.close()
        assert stored(server) == numbers(10)

    def test_what_it_raises_is_logged_and_harms_nobody(
        self, producer: MessageProducer, completions: Completions, caplog: pytest.LogCaptureFixture
    ) -> None:
        def failing(*_: object) -> None:
            raise RuntimeError("no luck")

        producer.send(TextMessage("first"), completion_listener=failing)
        producer.send(TextMessage("second"), completion_listener=completions)
        producer.close()
        assert completions.sent == ["second"]
        assert "no luck" in caplog.text

    def test_it_may_send(
        self, session: Session, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        def forward(message: Message, _: JMSException | None) -> None:
            assert isinstance(message, TextMessage)
            producer.send(TextMessage(f"{message.text}, then"), completion_listener=completions)
            producer.send(TextMessage(f"{message.text}, at last"))

        producer.send(TextMessage("first"), completion_listener=forward)
        wait_for(lambda: len(stored(server)) == 3)
        session.close()
        assert stored(server) == ["first", "first, then", "first, at last"]
        assert completions.sent == ["first, then"]

    def test_refusals_at_once_are_raised_and_not_told(
        self, session: Session, queue: Queue, completions: Completions
    ) -> None:
        with pytest.raises(jmsql.UnsupportedOperationException):
            session.create_producer().send(TextMessage("x"), completion_listener=completions)
        session.create_producer(queue).close()
        assert completions.told == []

    def test_contexts_have_one(self, factory: ConnectionFactory, queue: Queue, completions: Completions) -> None:
        with factory.create_context() as context:
            context.create_producer(completion_listener=completions).send(queue, "first").send(queue, "second")
        assert completions.sent == ["first", "second"]


class TestOrder:
    def test_synchronous_sends_come_after_what_was_sent_before(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        for text in numbers(300):
            producer.send(TextMessage(text), completion_listener=completions if int(text) % 7 else None)
        producer.close()
        assert stored(server) == numbers(300)

    def test_so_they_do_in_a_transaction(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        producer = transacted.create_producer(queue)
        for text in numbers(1500):
            producer.send(TextMessage(text), completion_listener=completions if int(text) % 7 else None)
        transacted.commit()
        assert stored(server) == numbers(1500)

    def test_destinations_and_delays_may_alternate(
        self, session: Session, completions: Completions, server: Server
    ) -> None:
        topic = Topic("news")
        subscriber = session.create_consumer(topic)
        sender = session.create_producer()
        sender.send(TextMessage("queued"), Queue("a"), completion_listener=completions)
        sender.send(TextMessage("published"), topic, completion_listener=completions)
        sender.delivery_delay = 3600
        sender.send(TextMessage("delayed"), Queue("b"), completion_listener=completions)
        sender.close()
        assert completions.sent == ["queued", "published", "delayed"]
        received = subscriber.receive(timeout=PATIENCE)
        assert received is not None
        assert received.get_body(str) == "published"
        assert server.rows("select queue, ready, delayed from jmsql.queues order by queue") == [
            ("a", 1, 0),
            ("b", 0, 1),
        ]


class TestWaiting:
    @pytest.mark.parametrize("what", ["producer", "session", "connection"])
    def test_close_waits_for_the_listeners(
        self, connection: Connection, session: Session, producer: MessageProducer, gate: Gate, what: str
    ) -> None:
        close = {"producer": producer.close, "session": session.close, "connection": connection.close}[what]
        send_numbers(producer, 20, gate)
        assert gate.reached.wait(PATIENCE)
        closing = threading.Thread(target=close)
        closing.start()
        closing.join(0.1)
        assert closing.is_alive()
        gate.open.set()
        closing.join(PATIENCE)
        assert gate.passed == numbers(20)

    @pytest.mark.parametrize("method", ["commit", "rollback"])
    def test_the_end_of_a_transaction_waits_for_the_listeners(
        self, transacted: Session, queue: Queue, gate: Gate, server: Server, method: str
    ) -> None:
        send_numbers(transacted.create_producer(queue), 5, gate)
        ending = threading.Thread(target=getattr(transacted, method))
        ending.start()
        assert gate.reached.wait(PATIENCE)
        ending.join(0.1)
        assert ending.is_alive()
        assert stored(server) == []
        gate.open.set()
        ending.join(PATIENCE)
        assert gate.passed == numbers(5)
        assert stored(server) == (numbers(5) if method == "commit" else [])

    @pytest.mark.parametrize("what", ["producer", "session", "connection"])
    def test_a_listener_does_not_close_what_waits_for_it(
        self, connection: Connection, session: Session, producer: MessageProducer, what: str
    ) -> None:
        close = {"producer": producer.close, "session": session.close, "connection": connection.close}[what]
        refused: list[Exception] = []

        def listener(*_: object) -> None:
            try:
                close()
            except IllegalStateException as error:
                refused.append(error)

        producer.send(TextMessage("hello"), completion_listener=listener)
        wait_for(lambda: refused)
        producer.send(TextMessage("still open"))

    @pytest.mark.parametrize("method", ["commit", "rollback"])
    def test_a_listener_does_not_end_the_transaction(
        self, transacted: Session, queue: Queue, server: Server, method: str
    ) -> None:
        refused: list[Exception] = []

        def listener(*_: object) -> None:
            try:
                getattr(transacted, method)()
            except IllegalStateException as error:
                refused.append(error)

        transacted.create_producer(queue).send(TextMessage("hello"), completion_listener=listener)
        wait_for(lambda: refused)
        assert stored(server) == []
        transacted.commit()
        assert stored(server) == ["hello"]

    def test_a_listener_may_close_another_session(
        self, connection: Connection, producer: MessageProducer, completions: Completions
    ) -> None:
        other = connection.create_session()

        def listener(message: Message, error: JMSException | None) -> None:
            other.close()
            completions._note(message, error)

        producer.send(TextMessage("hello"), completion_listener=listener)
        wait_for(lambda: completions.told)

    def test_sends_wait_while_too_much_is_on_its_way(self, producer: MessageProducer, gate: Gate) -> None:
        def send_all() -> None:
            for _ in range(3):
                producer.send(TextMessage("x" * 40_000_000), completion_listener=gate)
            finished.set()

        finished = threading.Event()
        sending = threading.Thread(target=send_all)
        sending.start()
        assert gate.reached.wait(PATIENCE)
        assert not finished.wait(0.3)
        gate.open.set()
        assert finished.wait(PATIENCE)
        sending.join()


class TestTransactions:
    def test_listener_is_told_before_the_commit(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        transacted.create_producer(queue).send(TextMessage("hello"), completion_listener=completions)
        wait_for(lambda: completions.told)
        assert stored(server) == []
        transacted.commit()
        assert stored(server) == ["hello"]

    def test_messages_belong_to_the_applications_transaction(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        database = transacted.database
        producer = transacted.create_producer(queue)
        with database.begin_nested() as savepoint:
            producer.send(TextMessage("undone"), completion_listener=completions)
            savepoint.rollback()
        producer.send(TextMessage("done"), completion_listener=completions)
        count = database.scalar(sqlalchemy.text("select count(*) from jmsql.message"))
        transacted.commit()
        assert count == 1
        assert completions.sent == ["undone", "done"]
        assert stored(server) == ["done"]

    def test_message_listener_can_wait_for_its_sends(
        self, connection: Connection, transacted: Session, queue: Queue, others: Session
    ) -> None:
        def forward(message: Message) -> None:
            told = threading.Event()
            replies.send(message, completion_listener=lambda *_: told.set())
            assert told.wait(PATIENCE)
            transacted.commit()

        replies = transacted.create_producer(Queue("replies"))
        transacted.create_consumer(queue).message_listener = forward
        others.create_producer(queue).send(TextMessage("hello"))
        reply = others.create_consumer(Queue("replies")).receive(timeout=PATIENCE)
        assert reply is not None
        assert reply.get_body(str) == "hello"

    def test_removed_queue_fails_the_messages_and_the_transaction(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        producer = transacted.create_producer(queue)
        server.rows("delete from jmsql.queue")
        producer.send(TextMessage("hello"), completion_listener=completions)
        with pytest.raises(TransactionRolledBackException):
            transacted.commit()
        assert completions.failed == ["hello"]
        assert isinstance(completions.errors[0], InvalidDestinationException)

    def test_lost_connection_fails_the_messages_and_the_transaction(
        self, transacted: Session, queue: Queue, completions: Completions, server: Server
    ) -> None:
        producer = transacted.create_producer(queue)
        producer.send(TextMessage("first"), completion_listener=completions)
        wait_for(lambda: completions.told)
        server.terminate(SESSIONS)
        producer.send(TextMessage("second"), completion_listener=completions)
        with pytest.raises(TransactionRolledBackException):
            transacted.commit()
        assert completions.failed == ["second"]
        producer.send(TextMessage("third"), completion_listener=completions)
        transacted.commit()
        assert stored(server) == ["third"]

    def test_transactions_of_others_have_no_listeners(
        self, jmsql_clean_url: str, queue: Queue, completions: Completions
    ) -> None:
        with psycopg.connect(jmsql_clean_url) as database:
            producer = jmsql.enlist(database).create_producer(completion_listener=completions)
            with pytest.raises(IllegalStateException, match="completion listener"):
                producer.send(queue, "hello")


class TestFailures:
    def test_removed_queue_fails_its_messages_alone(
        self, session: Session, completions: Completions, server: Server, gate: Gate
    ) -> None:
        gone, there = (session.create_producer(Queue(name)) for name in ("gone", "there"))
        there.send(TextMessage("held"), completion_listener=gate)
        assert gate.reached.wait(PATIENCE)
        server.rows("delete from jmsql.queue where name = 'gone'")
        for text in numbers(4):
            (gone if int(text) % 2 else there).send(TextMessage(text), completion_listener=completions)
        gate.open.set()
        there.close()
        assert (completions.sent, completions.failed) == (["0", "2"], ["1", "3"])
        assert all(isinstance(error, InvalidDestinationException) for error in completions.errors)
        assert stored(server) == ["held", "0", "2"]

    def test_connection_that_was_lost_while_idle_is_replaced(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        producer.send(TextMessage("first"), completion_listener=completions)
        wait_for(lambda: completions.told)
        server.terminate(SESSIONS)
        producer.send(TextMessage("second"), completion_listener=completions)
        producer.close()
        assert completions.sent == ["first", "second"]
        assert stored(server) == ["first", "second"]

    def test_each_message_is_told_of_once_however_often_connections_are_lost(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        count = 20_000
        sending = threading.Thread(target=send_numbers, args=(producer, count, completions))
        sending.start()
        while sending.is_alive():
            server.terminate(SESSIONS)
            sending.join(0.1)
        producer.close()
        assert [message.get_body(str) for message, _ in completions.told] == numbers(count)
        in_store = stored(server)
        assert len(set(in_store)) == len(in_store)
        assert set(completions.sent) <= set(in_store)
        unknown = {
            message.get_body(str) for message, error in completions.told if error and error.error_code == "08007"
        }
        assert set(in_store) <= {*completions.sent, *unknown}

    def test_what_was_told_outlives_its_client(self, jmsql_clean_url: str, queue: Queue, server: Server) -> None:
        with SendingProcess(jmsql_clean_url, queue.name) as process:
            complete = process.completed(2000)
            complete += process.kill()
        wait_for(lambda: server.connections("jmsql") == 0)
        in_store = stored(server)
        assert complete == numbers(len(complete))
        assert in_store == numbers(len(in_store))
        assert len(in_store) >= len(complete)

    def test_what_the_server_refuses_is_told(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        producer.send(TextMessage("first"), completion_listener=completions)
        wait_for(lambda: completions.told)
        server.rows("alter table jmsql.message rename to elsewhere")
        try:
            send_numbers(producer, 3, completions)
            producer.close()
        finally:
            server.rows("alter table jmsql.elsewhere rename to message")
        assert completions.failed == numbers(3)

    def test_closed_session_sends_nothing(
        self, session: Session, producer: MessageProducer, completions: Completions
    ) -> None:
        session.close()
        with pytest.raises(IllegalStateException):
            producer.send(TextMessage("late"), completion_listener=completions)
        assert completions.told == []


def test_many_sessions_send_at_once(connection: Connection, queue: Queue, server: Server) -> None:
    count, sessions = 500, 6
    all_completions = [Completions() for _ in range(sessions)]

    def work(completions: Completions) -> None:
        with connection.create_session() as session:
            send_numbers(session.create_producer(queue), count, completions)

    threads = [threading.Thread(target=work, args=(completions,)) for completions in all_completions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [completions.sent for completions in all_completions] == [numbers(count)] * sessions
    assert server.rows("select count(*) from jmsql.message") == [(count * sessions,)]
