"""Asynchronous sends of a JMSProducer and their listeners, sentence by sentence of the text of `JMSProducer.setAsync`,
`CompletionListener` and `JMSContext`: Jakarta Messaging 3.1 chapter 7.3."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    ConnectionFactory,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    JMSContext,
    JMSException,
    MapMessage,
    Message,
    MessageFormatException,
    MessageNotWriteableException,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.compliance.apis import THREADS_ALONE

PATIENCE = 60.0
QUEUE = Queue("compliance")
TRANSACTED = pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])


class Told:
    """A completion listener that notes what it is told, after doing some work.

    Args:
        work: What to do first.
    """

    def __init__(self, work: Callable[[Message], object] = lambda _: None) -> None:
        self._work = work
        self._calls = threading.Lock()
        self.completed: list[Message] = []
        self.failed: list[tuple[Message, JMSException]] = []
        self.errors: list[BaseException] = []
        self.threads: set[threading.Thread] = set()

    def on_completion(self, message: Message) -> None:
        assert self._calls.acquire(blocking=False), "two callbacks at a time"
        try:
            self.threads.add(threading.current_thread())
            self._work(message)
            self.completed.append(message)
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            self._calls.release()

    def on_exception(self, message: Message, exception: JMSException) -> None:
        self.failed.append((message, exception))

    @property
    def number(self) -> int:
        """How often it was called."""
        return len(self.completed) + len(self.failed) + len(self.errors)


class Held(Told):
    """One that is held in its first call until it is released."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.released = threading.Event()
        super().__init__(self._wait)

    def _wait(self, _: Message) -> None:
        self.called.set()
        assert self.released.wait(PATIENCE), "nobody released the listener"


def bodies(context: JMSContext, destination: Destination = QUEUE) -> list[object]:
    return [message.get_body(object) for message in receive_all(context.create_consumer(destination))]


class TestSetting:
    def test_sends_are_synchronous_until_it_is_set_and_once_it_is_none(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        told = Told()
        producer = context.create_producer()
        producer.send(QUEUE, "a")
        assert bodies(other) == ["a"]
        assert producer.set_async(told) is producer
        assert producer.completion_listener is told
        producer.send(QUEUE, "b")
        wait_for(lambda: told.number == 1)
        assert producer.set_async(None).completion_listener is None
        producer.send(QUEUE, "c")
        assert bodies(other) == ["b", "c"]
        assert told.number == 1


class TestQualityOfService:
    @pytest.mark.parametrize("destination", [QUEUE, Topic("compliance")])
    def test_it_is_told_once_others_can_have_the_message_and_no_sooner(
        self, context: JMSContext, other: JMSContext, destination: Queue | Topic
    ) -> None:
        consumer = other.create_consumer(destination)
        received: list[Message | None] = []
        told = Told(lambda _: received.append(consumer.receive(PATIENCE)))
        message = context.create_text_message("text")
        context.create_producer(completion_listener=told).send(destination, message)
        wait_for(lambda: told.completed)
        assert told.completed == [message]
        assert received[0] is not None
        assert received[0].jms_message_id == message.jms_message_id

    @TRANSACTED
    def test_in_a_transaction_it_is_told_before_the_commit(self, context: JMSContext, other: JMSContext) -> None:
        told = Told()
        context.create_producer(completion_listener=told).send(QUEUE, "text")
        wait_for(lambda: told.number == 1)
        assert bodies(other) == []
        context.commit()
        assert bodies(other) == ["text"]


class TestExceptions:
    @pytest.mark.parametrize(
        ("destination", "body", "error"),
        [
            (None, "text", InvalidDestinationException),
            ("jms://compliance", "text", InvalidDestinationException),
            (QUEUE, {"name": object()}, MessageFormatException),
            (QUEUE, object(), MessageFormatException),
        ],
    )
    def test_errors_that_the_call_raises_do_not_reach_the_listener(
        self, context: JMSContext, destination: Destination, body: object, error: type[Exception]
    ) -> None:
        told = Told()
        producer = context.create_producer(completion_listener=told)
        with pytest.raises(error):
            producer.send(destination, body)
        producer.send(QUEUE, "next")
        context.close()
        assert [message.get_body(str) for message in told.completed] == ["next"]
        assert told.failed == []

    def test_later_errors_reach_the_listener_with_the_message(self, context: JMSContext, other: JMSContext) -> None:
        told = Told()
        temporary = other.create_temporary_queue()
        message = context.create_text_message("text")
        producer = context.create_producer(completion_listener=told)
        producer.send(temporary, "first")
        wait_for(lambda: told.number == 1)
        temporary.delete()
        producer.send(temporary, message)
        wait_for(lambda: told.number == 2)
        assert [each for each, _ in told.failed] == [message]
        assert isinstance(told.failed[0][1], InvalidDestinationException)


class TestMessageOrder:
    @pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
    def test_that_of_the_sends_of_both_kinds_is_kept(self, context: JMSContext, other: JMSContext) -> None:
        told = Told()
        asynchronous, synchronous = context.create_producer(completion_listener=told), context.create_producer()
        for number in range(200):
            (synchronous if number % 50 == 7 else asynchronous).send(QUEUE, number)
        if context.transacted:
            context.commit()
        context.close()
        assert bodies(other) == list(range(200))
        assert [message.get_body(int) for message in told.completed] == [n for n in range(200) if n % 50 != 7]


class TestCloseCommitAndRollback:
    @pytest.mark.parametrize(
        ("mode", "method"),
        [
            (AcknowledgeMode.AUTO, "close"),
            (AcknowledgeMode.TRANSACTED, "close"),
            (AcknowledgeMode.TRANSACTED, "commit"),
            (AcknowledgeMode.TRANSACTED, "rollback"),
        ],
    )
    def test_they_wait_until_all_callbacks_have_returned(
        self, context: JMSContext, other: JMSContext, mode: AcknowledgeMode, method: str
    ) -> None:
        held = Held()
        context.create_producer(completion_listener=held).send(QUEUE, "a").send(QUEUE, "b")
        assert held.called.wait(PATIENCE)

        def end_and_count() -> int:
            getattr(context, method)()
            return held.number

        ending = Background(end_and_count)
        ending.wait_until_it_waits()
        held.released.set()
        assert ending.result() == 2
        expected = ["a", "b"] if mode is AcknowledgeMode.AUTO or method == "commit" else []
        assert bodies(other) == expected

    @pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
    @pytest.mark.parametrize("method", ["close", "commit", "rollback"])
    def test_a_callback_does_not_call_them_on_its_own_context(
        self, context: JMSContext, other: JMSContext, mode: AcknowledgeMode, method: str
    ) -> None:
        told = Told(lambda _: getattr(context, method)())
        context.create_producer(completion_listener=told).send(QUEUE, "text")
        wait_for(lambda: told.number == 1)
        assert [type(error) for error in told.errors] == [IllegalStateException]
        context.create_producer().send(QUEUE, "still open")
        if mode is AcknowledgeMode.TRANSACTED:
            context.commit()
        assert bodies(other) == ["text", "still open"]

    def test_a_callback_may_close_another_context(
        self, context: JMSContext, other: JMSContext, jmsql_factory: ConnectionFactory
    ) -> None:
        sibling, stranger = context.create_context(AcknowledgeMode.AUTO), jmsql_factory.create_context()

        def close_others(_: Message) -> None:
            sibling.close()
            stranger.close()

        told = Told(close_others)
        context.create_producer(completion_listener=told).send(QUEUE, "text")
        wait_for(lambda: told.completed)
        assert bodies(other) == ["text"]


class TestHeaders:
    def test_those_set_by_a_send_are_there_when_it_is_told(self, context: JMSContext, other: JMSContext) -> None:
        told = Told()
        message = context.create_text_message("text")
        context.create_producer(priority=7, time_to_live=60.0, completion_listener=told).send(QUEUE, message)
        wait_for(lambda: told.completed)
        received = other.create_consumer(QUEUE).receive(PATIENCE)
        assert received is not None
        for header in (
            *("jms_destination", "jms_delivery_mode", "jms_expiration", "jms_priority"),
            *("jms_message_id", "jms_timestamp", "jms_delivery_time"),
        ):
            assert getattr(told.completed[0], header) == getattr(received, header)
        assert message.jms_expiration == message.jms_timestamp + 60_000


class TestThreads:
    def test_callbacks_come_one_at_a_time_in_their_order(self, context: JMSContext) -> None:
        told = Told()
        for producer in [context.create_producer(completion_listener=told) for _ in range(4)]:
            for number in range(25):
                producer.send(QUEUE, number)
        wait_for(lambda: told.number == 100)
        assert told.errors == []
        assert [message.get_body(int) for message in told.completed] == 4 * list(range(25))

    @THREADS_ALONE
    def test_callbacks_come_from_one_other_thread(self, context: JMSContext) -> None:
        told = Told()
        for _ in range(2):
            context.create_producer(completion_listener=told).send(QUEUE, "text")
        wait_for(lambda: told.number == 2)
        assert len(told.threads) == 1
        assert threading.current_thread() not in told.threads

    @pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
    def test_the_session_can_be_used_while_a_callback_runs(self, context: JMSContext, other: JMSContext) -> None:
        held = Held()
        other.create_producer().send(Queue("input"), "input")
        consumer = context.create_consumer(Queue("input"))
        context.create_producer(completion_listener=held).send(QUEUE, "a")
        assert held.called.wait(PATIENCE)
        context.create_producer().send(QUEUE, "b")
        assert consumer.receive_body(str, PATIENCE) == "input"
        held.released.set()
        wait_for(lambda: held.number == 1)
        if context.transacted:
            context.commit()
        assert bodies(other) == ["a", "b"]


class TestMessage:
    @pytest.mark.parametrize("make", [TextMessage, MapMessage, ObjectMessage, Message, BytesMessage, StreamMessage])
    def test_it_is_the_one_that_was_sent(self, context: JMSContext, make: Callable[[], Message]) -> None:
        told = Told()
        message = make()
        context.create_producer(completion_listener=told).send(QUEUE, message)
        wait_for(lambda: told.completed)
        assert told.completed[0] is message

    @pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.TRANSACTED])
    @pytest.mark.parametrize("make", [BytesMessage, StreamMessage])
    def test_bytes_and_streams_are_reset_to_be_read(
        self, context: JMSContext, make: type[BytesMessage | StreamMessage]
    ) -> None:
        read: list[tuple[int, str | None]] = []

        def read_it(message: Message) -> None:
            assert isinstance(message, BytesMessage | StreamMessage)
            number = message.read_int()
            read.append((number, message.read_utf() if isinstance(message, BytesMessage) else message.read_string()))
            with pytest.raises(MessageNotWriteableException):
                message.write_int(2)

        told = Told(read_it)
        message = make()
        message.write_int(1)
        if isinstance(message, BytesMessage):
            message.write_utf("text")
        else:
            message.write_string("text")
        producer = context.create_producer(completion_listener=told)
        producer.send(QUEUE, message)
        wait_for(lambda: told.number == 1)
        assert read == [(1, "text")]
        producer.send(QUEUE, message)  # it is at its end, and reset once more
        wait_for(lambda: told.number == 2)
        assert read == 2 * [(1, "text")]
        assert told.errors == []
        message.clear_body()
        message.write_int(2)
        if context.transacted:
            context.commit()
        consumer = context.create_consumer(QUEUE)
        for _ in range(2):
            received = consumer.receive(PATIENCE)
            assert isinstance(received, BytesMessage | StreamMessage)
            assert received.read_int() == 1

    def test_so_they_are_for_the_listeners_of_message_producers(self, jmsql_factory: ConnectionFactory) -> None:
        with jmsql_factory.create_connection() as connection:
            session: Session = connection.create_session()
            message = session.create_bytes_message()
            message.write_int(1)
            told = Told()
            with session.create_producer(QUEUE) as producer:
                producer.send(message, completion_listener=told)
            assert told.completed == [message]
            assert message.read_int() == 1

    @pytest.mark.parametrize("make", [BytesMessage, StreamMessage])
    def test_a_synchronous_send_leaves_them_to_be_written_on(
        self, context: JMSContext, make: type[BytesMessage | StreamMessage]
    ) -> None:
        message = make()
        message.write_int(1)
        context.create_producer().send(QUEUE, message)
        message.write_int(2)
