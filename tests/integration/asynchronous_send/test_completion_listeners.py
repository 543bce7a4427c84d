"""Sends that do not wait, the listeners that are told of them, and who waits for those."""

from __future__ import annotations

import threading

import pytest

import jmsql
from jmsql import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    Message,
    MessageProducer,
    Queue,
    Session,
    TextMessage,
    Topic,
)
from jmsql.testing import wait_for
from tests.integration.asynchronous_send.completions import PATIENCE, Completions, Gate, numbers, send_numbers, stored
from tests.integration.client.server import Server


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

    @pytest.mark.parametrize("kind", [RuntimeError, SystemExit, KeyboardInterrupt])
    def test_its_error_is_logged_and_harms_no_other_listener(
        self,
        producer: MessageProducer,
        completions: Completions,
        caplog: pytest.LogCaptureFixture,
        kind: type[BaseException],
    ) -> None:
        def failing(*_: object) -> None:
            raise kind("no luck")

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
    def test_synchronous_sends_come_after_earlier_sends(
        self, producer: MessageProducer, completions: Completions, server: Server
    ) -> None:
        for text in numbers(300):
            producer.send(TextMessage(text), completion_listener=completions if int(text) % 7 else None)
        producer.close()
        assert stored(server) == numbers(300)

    def test_asynchronous_sends_of_a_transaction_keep_their_order(
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
    def test_a_listener_does_not_close_a_session_that_waits_for_it(
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
