"""JMSConsumer, sentence by sentence of its methods' text: Jakarta Messaging 3.1 chapter 8.12."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

import jmsql
from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    Connection,
    Destination,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSConsumer,
    JMSContext,
    Message,
    MessageFormatException,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.compliance.apis import THREADS_ALONE, Api
from tests.compliance.held_listener import HeldListener

pytestmark = pytest.mark.usefixtures("shared_connection")

PATIENCE = 60.0

MODES = list(AcknowledgeMode)
ACKNOWLEDGE_BY_THEMSELVES = [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK]
RETAIN_WHAT_WAS_RECEIVED = [AcknowledgeMode.CLIENT, AcknowledgeMode.TRANSACTED]

QUEUE = Queue("compliance")
TOPIC = Topic("compliance")


def stream() -> StreamMessage:
    message = StreamMessage()
    message.write_int(1)
    return message


def undecodable() -> Message:
    return UNDECODABLE


UNDECODABLE = ObjectMessage([1])
UNDECODABLE._object_json = '{"type": "nobody.knows", "version": 1, "data": 1}'

WRONG: dict[str, tuple[Callable[[], Message], type[object]]] = {
    "another type": (lambda: TextMessage("text"), bytes),
    "no body": (Message, object),
    "no text": (TextMessage, str),
    "no object": (ObjectMessage, object),
    "a stream": (stream, object),
    "an object that cannot be decoded": (undecodable, object),
}


@pytest.fixture
def context(api: Api, connection: Connection, mode: AcknowledgeMode, request: pytest.FixtureRequest) -> JMSContext:
    """A context which closes its connection if the test has one of its own."""
    if request.node.get_closest_marker("own_connection") is not None:
        return api.context(connection.create_session(mode), connection)
    return api.context(connection.create_session(), connection).create_context(mode)


@pytest.fixture
def other(api: Api, connection: Connection, other_shared_connection: Connection) -> Iterator[JMSContext]:
    """The context of another client, which sends, and looks at what is left."""
    with other_shared_connection.create_session() as session:
        yield api.context(session, other_shared_connection)


def as_first_delivered(message: Message | None) -> Message:
    """Make sure that a message is one that comes for the first time."""
    assert message is not None
    assert not message.jms_redelivered
    assert message.properties["JMSXDeliveryCount"] == 1
    return message


def settle(context: JMSContext) -> None:
    if context.transacted:
        context.commit()
    else:
        context.acknowledge()


def bodies_left(context: JMSContext) -> list[object]:
    return [message.get_body(object) for message in receive_all(context.create_consumer(QUEUE))]


class TestReceiveBody:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        ("body", "body_type"), [("text", str), ("text", object), (b"bytes", bytes), ({"a": 1}, dict), ([1, 2], list)]
    )
    def test_it_returns_the_body_of_the_type_or_one_above_it(
        self, context: JMSContext, other: JMSContext, body: object, body_type: type[object]
    ) -> None:
        other.create_producer().send(QUEUE, body)
        assert context.create_consumer(QUEUE).receive_body(body_type, PATIENCE) == body
        settle(context)
        context.close()
        assert bodies_left(other) == []

    @pytest.mark.parametrize("mode", ACKNOWLEDGE_BY_THEMSELVES)
    @pytest.mark.parametrize("wrong", WRONG)
    def test_a_refused_body_is_delivered_next_as_a_first_delivery(
        self, context: JMSContext, other: JMSContext, wrong: str
    ) -> None:
        make_message, body_type = WRONG[wrong]
        message = make_message()
        other.create_producer().send(QUEUE, message).send(QUEUE, "next")
        consumer = context.create_consumer(QUEUE)
        for timeout in (PATIENCE, None):
            with pytest.raises(MessageFormatException):
                consumer.receive_body(body_type, timeout)
        with pytest.raises(MessageFormatException):
            consumer.receive_body_no_wait(body_type)
        assert as_first_delivered(consumer.receive(PATIENCE)).jms_message_id == message.jms_message_id
        assert as_first_delivered(consumer.receive(PATIENCE)).get_body(str) == "next"
        assert consumer.receive_no_wait() is None

    @pytest.mark.own_connection
    @pytest.mark.parametrize("mode", ACKNOWLEDGE_BY_THEMSELVES)
    @pytest.mark.parametrize("ending", ["consumer", "context", "listener"])
    def test_a_body_that_is_refused_is_left_to_others(
        self, context: JMSContext, other: JMSContext, ending: str
    ) -> None:
        others = other.create_consumer(QUEUE)
        assert others.receive_no_wait() is None  # it has passed over what is refused
        context.create_producer().send(QUEUE, "refused").send(QUEUE, "next")
        consumer = context.create_consumer(QUEUE)
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
        if ending == "listener":
            heard: list[Message] = []
            consumer.message_listener = heard.append
            wait_for(lambda: len(heard) == 2)
            assert [as_first_delivered(message).get_body(str) for message in heard] == ["refused", "next"]
            return
        if ending == "consumer":
            consumer.close()
        else:
            context.close()
        received = [as_first_delivered(others.receive(PATIENCE)).get_body(str) for _ in range(2)]
        assert received == ["refused", "next"]

    @pytest.mark.parametrize("mode", ACKNOWLEDGE_BY_THEMSELVES)
    def test_messages_before_a_refused_body_stay_acknowledged(self, context: JMSContext, other: JMSContext) -> None:
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b").send(QUEUE, "c")
        consumer = context.create_consumer(QUEUE)
        assert consumer.receive_body(str, PATIENCE) == "a"
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
        assert consumer.receive_body(str, PATIENCE) == "b"
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
        context.close()
        assert bodies_left(other) == ["c"]

    @pytest.mark.parametrize("mode", ACKNOWLEDGE_BY_THEMSELVES)
    def test_priorities_and_groups_keep_their_order_around_a_body_that_is_refused(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        others = other.create_consumer(QUEUE)
        grouped = other.create_producer(properties={"JMSXGroupID": "group"})
        grouped.send(QUEUE, "a").send(QUEUE, "b")
        other.create_producer(priority=9).send(QUEUE, "urgent")
        consumer = context.create_consumer(QUEUE)
        for expected in ("urgent", "a", "b"):
            with pytest.raises(MessageFormatException):
                consumer.receive_body(bytes, PATIENCE)
            assert as_first_delivered(consumer.receive(PATIENCE)).get_body(str) == expected
        grouped.send(QUEUE, "c").send(QUEUE, "d")
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
        context.close()
        assert [as_first_delivered(others.receive(PATIENCE)).get_body(str) for _ in "cd"] == ["c", "d"]

    @pytest.mark.parametrize("mode", ACKNOWLEDGE_BY_THEMSELVES)
    @pytest.mark.parametrize("durable", [True, False])
    def test_subscriptions_keep_a_body_that_is_refused(
        self, context: JMSContext, other: JMSContext, durable: bool
    ) -> None:
        create_consumer = context.create_durable_consumer if durable else context.create_shared_consumer
        consumer = create_consumer(TOPIC, "subscription")
        other.create_producer().send(TOPIC, "a").send(TOPIC, "b")
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
        if durable:
            consumer.close()
            consumer = create_consumer(TOPIC, "subscription")
        assert [as_first_delivered(consumer.receive(PATIENCE)).get_body(str) for _ in "ab"] == ["a", "b"]

    @pytest.mark.parametrize("mode", ACKNOWLEDGE_BY_THEMSELVES)
    def test_a_message_of_a_consumer_with_a_visibility_timeout_stays_too(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        consumer = context.create_consumer(QUEUE)
        consumer._consumer.visibility_timeout = 1.0
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, PATIENCE)
        assert [as_first_delivered(message).get_body(str) for message in receive_all(other.create_consumer(QUEUE))] == [
            "a",
            "b",
        ]

    @pytest.mark.parametrize("mode", RETAIN_WHAT_WAS_RECEIVED)
    @pytest.mark.parametrize("wrong", WRONG)
    def test_a_body_that_is_refused_counts_as_received_where_the_session_retains_messages(
        self, context: JMSContext, other: JMSContext, wrong: str
    ) -> None:
        make_message, body_type = WRONG[wrong]
        message = make_message()
        other.create_producer().send(QUEUE, message).send(QUEUE, "next")
        consumer = context.create_consumer(QUEUE)
        with pytest.raises(MessageFormatException):
            consumer.receive_body(body_type, PATIENCE)
        assert consumer.receive_body(str, PATIENCE) == "next"
        assert consumer.receive_no_wait() is None
        if context.transacted:
            context.rollback()
        else:
            context.recover()
        again = [consumer.receive(PATIENCE) for _ in range(2)]
        assert all(received is not None and received.jms_redelivered for received in again)
        assert all(received is not None and received.properties["JMSXDeliveryCount"] == 2 for received in again)
        assert again[0] is not None
        assert again[0].jms_message_id == message.jms_message_id
        settle(context)
        context.close()
        assert bodies_left(other) == []

    @THREADS_ALONE
    def test_a_body_that_is_refused_counts_as_received_in_the_transaction_of_the_caller(
        self, other: JMSContext, jmsql_url: str
    ) -> None:
        other.create_producer().send(QUEUE, "refused").send(QUEUE, "next")
        with psycopg.connect(jmsql_url) as transaction:
            consumer = jmsql.enlist(transaction).create_consumer(QUEUE)
            with pytest.raises(MessageFormatException):
                consumer.receive_body(bytes, PATIENCE)
            assert consumer.receive_body(str, PATIENCE) == "next"
            transaction.rollback()
            with pytest.raises(MessageFormatException):
                consumer.receive_body(bytes, PATIENCE)
            transaction.commit()
        assert bodies_left(other) == ["next"]

    def test_it_returns_none_when_the_time_is_over(self, context: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        assert consumer.receive_body(str, 0.01) is None
        assert consumer.receive_body_no_wait(str) is None

    def test_it_waits_until_a_message_comes(self, context: JMSContext, other: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        receiving = Background(lambda: consumer.receive_body(str))
        receiving.wait_until_it_waits()
        other.create_producer().send(QUEUE, "late")
        assert receiving.result() == "late"

    def test_it_ends_with_none_when_the_consumer_is_closed(self, context: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        receiving = Background(lambda: consumer.receive_body(str))
        receiving.wait_until_it_waits()
        consumer.close()
        assert receiving.result() is None

    def test_it_reads_a_bytes_message_from_its_start(self, context: JMSContext) -> None:
        message = BytesMessage()
        message.write_int(1)
        message.write_int(2)
        message.reset()
        assert message.read_int() == 1
        context.create_producer().send(QUEUE, message)
        assert context.create_consumer(QUEUE).receive_body(bytes, PATIENCE) == b"\0\0\0\1\0\0\0\2"


class TestReceive:
    @pytest.mark.parametrize("mode", MODES)
    def test_it_returns_the_next_message(self, context: JMSContext, other: JMSContext) -> None:
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        consumer = context.create_consumer(QUEUE)
        received = [consumer.receive(), consumer.receive(PATIENCE), consumer.receive_no_wait()]
        assert [message and message.get_body(str) for message in received] == ["a", "b", None]

    @pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
    def test_within_a_transaction_messages_are_retained_until_the_commit(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        other.create_producer().send(QUEUE, "a")
        assert context.create_consumer(QUEUE).receive(PATIENCE) is not None
        context.rollback()
        assert bodies_left(other) == ["a"]

    def test_it_waits_until_a_message_comes(self, context: JMSContext, other: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        receiving = Background(consumer.receive)
        receiving.wait_until_it_waits()
        other.create_producer().send(QUEUE, "late")
        message = receiving.result()
        assert message is not None
        assert message.get_body(str) == "late"

    def test_it_returns_none_when_the_time_is_over(self, context: JMSContext) -> None:
        assert context.create_consumer(QUEUE).receive(0.01) is None

    @pytest.mark.parametrize("timeout", [None, 60.0])
    def test_it_ends_with_none_when_the_consumer_is_closed(self, context: JMSContext, timeout: float | None) -> None:
        consumer = context.create_consumer(QUEUE)
        receiving = Background(lambda: consumer.receive(timeout))
        receiving.wait_until_it_waits()
        consumer.close()
        assert receiving.result() is None


class TestSelector:
    @pytest.mark.parametrize("selector", [None, ""])
    def test_none_and_the_empty_text_are_no_selector(self, context: JMSContext, selector: str | None) -> None:
        assert context.create_consumer(QUEUE, selector).message_selector is None

    def test_it_shows_its_selector_and_delivers_matching_messages(self, context: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE, "colour = 'blue'")
        assert consumer.message_selector == "colour = 'blue'"
        context.create_producer(properties={"colour": "red"}).send(QUEUE, "red")
        context.create_producer(properties={"colour": "blue"}).send(QUEUE, "blue")
        assert [message.get_body(str) for message in receive_all(consumer)] == ["blue"]

    def test_an_invalid_one_is_refused(self, context: JMSContext) -> None:
        with pytest.raises(InvalidSelectorException):
            context.create_consumer(QUEUE, "colour =")

    @pytest.mark.parametrize("destination", [None, "jms://compliance"])
    def test_an_invalid_destination_is_refused(self, context: JMSContext, destination: Destination) -> None:
        with pytest.raises(InvalidDestinationException):
            context.create_consumer(destination)


class TestListener:
    @pytest.mark.parametrize("mode", MODES)
    def test_messages_are_given_to_it_as_they_arrive(self, context: JMSContext, other: JMSContext) -> None:
        heard: list[str | None] = []
        consumer = context.create_consumer(QUEUE)
        assert consumer.message_listener is None
        listener = lambda message: heard.append(message.get_body(str))  # noqa: E731 - compared below
        consumer.message_listener = listener
        assert consumer.message_listener is listener
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        wait_for(lambda: heard == ["a", "b"])

    def test_none_unsets_it(self, context: JMSContext, other: JMSContext) -> None:
        heard: list[Message] = []
        consumer = context.create_consumer(QUEUE)
        consumer.message_listener = heard.append
        other.create_producer().send(QUEUE, "a")
        wait_for(lambda: len(heard) == 1)
        consumer.message_listener = None
        assert consumer.message_listener is None
        other.create_producer().send(QUEUE, "b")
        assert consumer.receive_body(str, PATIENCE) == "b"
        assert len(heard) == 1

    def test_once_it_is_unset_messages_are_left_to_receive(self, context: JMSContext, other: JMSContext) -> None:
        queues = Queue("left"), Queue("right")
        consumers = [context.create_consumer(queue) for queue in queues]
        unset: list[JMSConsumer] = []

        def unset_other(called: JMSConsumer) -> None:
            (remaining,) = (consumer for consumer in consumers if consumer is not called)
            remaining.message_listener = None
            unset.append(remaining)

        for consumer in consumers:
            consumer.message_listener = lambda _, called=consumer: unset_other(called)
        sender = other.create_context(AcknowledgeMode.TRANSACTED)
        for queue in queues:
            sender.create_producer().send(queue, "text")
        sender.commit()
        sender.close()
        wait_for(lambda: unset)
        assert unset[0].receive_body(str, PATIENCE) == "text"

    def test_a_consumer_with_one_does_not_receive(self, context: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        consumer.message_listener = lambda _: None
        for call in (consumer.receive, consumer.receive_no_wait, lambda: consumer.receive_body(str)):
            with pytest.raises(IllegalStateException, match="listener"):
                call()


class TestClose:
    def test_it_waits_for_a_receive_in_progress(self, context: JMSContext, other: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        receiving = Background(consumer.receive)
        receiving.wait_until_it_waits()
        consumer.close()
        other.create_producer().send(QUEUE, "late")
        assert receiving.result() is None
        assert bodies_left(other) == ["late"]

    @pytest.mark.parametrize("mode", MODES)
    def test_it_waits_for_a_listener_in_progress(self, context: JMSContext, other: JMSContext) -> None:
        listener = HeldListener()
        consumer = context.create_consumer(QUEUE)
        consumer.message_listener = listener
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        listener.wait_until_called()
        listener.must_return_before(consumer.close)
        assert len(listener.messages) == 1

    @pytest.mark.parametrize("mode", MODES)
    def test_a_listener_may_close_its_own_consumer_and_completes_normally(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        consumer = context.create_consumer(QUEUE)
        completed = threading.Event()

        def listener(message: Message) -> None:
            consumer.close()
            assert message.get_body(str) == "a"
            context.create_producer().send(Queue("answers"), "answer")
            settle(context)
            completed.set()

        consumer.message_listener = listener
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        assert completed.wait(PATIENCE)
        context.close()
        assert bodies_left(other) == ["b"]
        assert other.create_consumer(Queue("answers")).receive_body(str, PATIENCE) == "answer"

    def test_a_closed_consumer_is_of_no_use_and_closing_again_does_nothing(self, context: JMSContext) -> None:
        consumer: JMSConsumer = context.create_consumer(QUEUE)
        consumer.close()
        consumer.close()
        for call in (
            consumer.receive,
            consumer.receive_no_wait,
            lambda: consumer.receive_body(str),
            lambda: consumer.receive_body_no_wait(str),
            lambda: consumer.message_selector,
            lambda: consumer.message_listener,
            lambda: setattr(consumer, "message_listener", print),
        ):
            with pytest.raises(IllegalStateException, match="closed"):
                call()
