"""JMSProducer, sentence by sentence of its methods' text: Jakarta Messaging 3.1 chapter 7.1."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    Connection,
    DeliveryMode,
    InvalidDestinationException,
    JMSContext,
    JMSException,
    JMSProducer,
    MapMessage,
    Message,
    MessageFormatException,
    MessageNotWriteableException,
    ObjectMessage,
    Queue,
    TextMessage,
    Topic,
)
from jmsql.testing import receive_all, wait_for
from jmsql.types import Short
from tests.compliance.apis import Api

pytestmark = pytest.mark.usefixtures("shared_connection")

PATIENCE = 60.0

QUEUE = Queue("compliance")


@pytest.fixture
def context(api: Api, connection: Connection) -> JMSContext:
    return api.context(connection.create_session(), connection)


@pytest.fixture
def producer(context: JMSContext) -> JMSProducer:
    return context.create_producer()


def sent(context: JMSContext, producer: JMSProducer, body: object = "text", destination: Queue = QUEUE) -> Message:
    """Send a body and receive it."""
    with context.create_consumer(destination) as consumer:
        producer.send(destination, body)
        message = consumer.receive(PATIENCE)
    assert message is not None
    return message


class TestSend:
    @pytest.mark.parametrize(
        ("body", "kind"),
        [
            ("text", TextMessage),
            ({"number": 1, "name": "value"}, MapMessage),
            (b"bytes", BytesMessage),
            ([1, "two"], ObjectMessage),
            (None, Message),
        ],
    )
    def test_a_body_is_sent_as_the_message_that_fits(
        self, context: JMSContext, producer: JMSProducer, body: object, kind: type[Message]
    ) -> None:
        message = sent(context, producer, body)
        assert type(message) is kind
        assert message.get_body(object) == body

    @pytest.mark.parametrize("kind", [TextMessage, MapMessage, BytesMessage, ObjectMessage])
    def test_a_message_without_a_body_is_sent_as_one(
        self, context: JMSContext, producer: JMSProducer, kind: type[Message]
    ) -> None:
        message = sent(context, producer, kind())
        assert type(message) is kind
        assert message.get_body(object) is None

    def test_it_returns_the_producer(self, context: JMSContext, producer: JMSProducer) -> None:
        assert producer.send(QUEUE, "a").send(QUEUE, context.create_text_message("b")) is producer
        assert [message.get_body(str) for message in receive_all(context.create_consumer(QUEUE))] == ["a", "b"]

    def test_it_sends_to_topics(self, context: JMSContext, producer: JMSProducer) -> None:
        subscriber = context.create_consumer(Topic("compliance"))
        producer.send(Topic("compliance"), "text")
        assert subscriber.receive_body(str, PATIENCE) == "text"

    @pytest.mark.parametrize("destination", [None, "jms://compliance", 7, object()])
    @pytest.mark.parametrize("body", ["text", None, TextMessage, b"", {}, [1]])
    def test_an_invalid_destination_is_refused_and_leaves_the_message_alone(
        self, context: JMSContext, producer: JMSProducer, destination: Any, body: object
    ) -> None:
        if body is TextMessage:
            body = TextMessage("text")
        producer.set_property("colour", "blue").set_jms_type("order")
        with pytest.raises(InvalidDestinationException):
            producer.send(destination, body)
        if destination is None and isinstance(body, Message):
            assert not body.property_exists("colour")
        assert receive_all(context.create_consumer(QUEUE)) == []

    def test_an_invalid_message_is_refused(self, context: JMSContext, producer: JMSProducer) -> None:
        for body in ({"name": object()}, object()):
            with pytest.raises((MessageFormatException, ValueError)):
                producer.send(QUEUE, body)
        assert receive_all(context.create_consumer(QUEUE)) == []

    def test_properties_are_not_set_on_a_received_message(self, context: JMSContext, producer: JMSProducer) -> None:
        received = sent(context, producer)
        with pytest.raises(MessageNotWriteableException):
            context.create_producer().set_property("colour", "blue").send(QUEUE, received)
        producer.send(QUEUE, received)
        assert [message.get_body(str) for message in receive_all(context.create_consumer(QUEUE))] == ["text"]


@pytest.mark.maintained
class TestSettings:
    def test_there_are_defaults(self, producer: JMSProducer) -> None:
        assert producer.delivery_mode is DeliveryMode.PERSISTENT
        assert (producer.priority, producer.time_to_live, producer.delivery_delay) == (4, 0, 0)
        assert not producer.disable_message_id
        assert not producer.disable_message_timestamp
        assert producer.completion_listener is None
        assert (producer.jms_correlation_id, producer.jms_correlation_id_as_bytes) == (None, None)
        assert (producer.jms_type, producer.jms_reply_to) == (None, None)
        assert set(producer.property_names) == set()

    @pytest.mark.parametrize(
        ("name", "value", "other"),
        [
            ("delivery_mode", DeliveryMode.NON_PERSISTENT, DeliveryMode.PERSISTENT),
            ("priority", 9, 0),
            ("time_to_live", 60.0, 0.0),
            ("delivery_delay", 60.0, 0.0),
            ("disable_message_id", True, False),
            ("disable_message_timestamp", True, False),
            ("jms_correlation_id", "correlated", None),
            ("jms_correlation_id_as_bytes", b"\xff\0", None),
            ("jms_type", "order", None),
            ("jms_reply_to", QUEUE, None),
            ("jms_reply_to", Topic("answers"), QUEUE),
        ],
    )
    def test_methods_set_them_and_return_the_producer(
        self, producer: JMSProducer, name: str, value: object, other: object
    ) -> None:
        assert getattr(producer, f"set_{name}")(value) is producer
        assert getattr(producer, name) == value
        setattr(producer, name, other)
        assert getattr(producer, name) == other

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("delivery_mode", 0),
            ("delivery_mode", 3),
            ("priority", -1),
            ("priority", 10),
            ("time_to_live", -1),
            ("delivery_delay", -1),
        ],
    )
    def test_illegal_values_are_refused(self, producer: JMSProducer, name: str, value: int) -> None:
        before = getattr(producer, name)
        with pytest.raises((JMSException, ValueError)):
            getattr(producer, f"set_{name}")(value)
        assert getattr(producer, name) == before

    def test_delivery_mode_and_priority_are_those_of_the_messages(
        self, context: JMSContext, producer: JMSProducer
    ) -> None:
        message = sent(context, producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT).set_priority(9))
        assert (message.jms_delivery_mode, message.jms_priority) == (DeliveryMode.NON_PERSISTENT, 9)

    def test_priorities_go_first(self, context: JMSContext, producer: JMSProducer) -> None:
        for priority in range(10):
            producer.set_priority(priority).send(QUEUE, priority)
        received = [message.get_body(int) for message in receive_all(context.create_consumer(QUEUE))]
        assert received == list(range(9, -1, -1))

    def test_message_ids_are_unique_unless_they_are_disabled(self, context: JMSContext, producer: JMSProducer) -> None:
        ids = {sent(context, producer).jms_message_id for _ in range(3)}
        assert len(ids) == 3
        assert all(message_id is not None and message_id.startswith("ID:") for message_id in ids)
        assert sent(context, producer.set_disable_message_id(True)).jms_message_id is None

    def test_timestamps_are_set_unless_they_are_disabled(self, context: JMSContext, producer: JMSProducer) -> None:
        assert sent(context, producer).jms_timestamp > 0
        assert sent(context, producer.set_disable_message_timestamp(True)).jms_timestamp == 0

    def test_messages_expire_a_time_to_live_after_the_send(self, context: JMSContext, producer: JMSProducer) -> None:
        assert sent(context, producer).jms_expiration == 0
        message = sent(context, producer.set_time_to_live(60))
        assert message.jms_expiration == message.jms_timestamp + 60_000
        producer.set_time_to_live(0.001).send(QUEUE, "expired")
        wait_for(lambda: not list(context.create_browser(QUEUE)))
        assert receive_all(context.create_consumer(QUEUE)) == []

    @pytest.mark.parametrize("time_to_live", [(2**63 - 1) / 1000, math.inf, timedelta.max])
    def test_the_longest_time_to_live_is_for_ever(
        self, context: JMSContext, producer: JMSProducer, time_to_live: float | timedelta
    ) -> None:
        assert sent(context, producer.set_time_to_live(time_to_live)).jms_expiration == 0
        assert context.create_producer(time_to_live=time_to_live).time_to_live == producer.time_to_live

    def test_messages_are_delivered_a_delay_after_the_send(self, context: JMSContext, producer: JMSProducer) -> None:
        message = context.create_text_message("text")
        producer.set_delivery_delay(0.3).send(QUEUE, message)
        consumer = context.create_consumer(QUEUE)
        assert consumer.receive_no_wait() is None
        received = consumer.receive(PATIENCE)
        assert received is not None
        assert received.jms_delivery_time == message.jms_delivery_time == message.jms_timestamp + 300

    @pytest.mark.parametrize("delay", [0.0, 0.0001, 0.05])
    @pytest.mark.parametrize("disable", [True, False])
    @pytest.mark.parametrize("destination", [QUEUE, Topic("compliance")])
    def test_the_delivery_time_is_the_same_at_both_ends(
        self, context: JMSContext, producer: JMSProducer, delay: float, disable: bool, destination: Queue | Topic
    ) -> None:
        consumer = context.create_consumer(destination)
        message = context.create_text_message("text")
        producer.set_delivery_delay(delay).set_disable_message_timestamp(disable).send(destination, message)
        received = consumer.receive(PATIENCE)
        assert received is not None
        assert received.jms_delivery_time == message.jms_delivery_time
        assert received.jms_timestamp == message.jms_timestamp
        assert (message.jms_delivery_time > 0) is (not disable or delay == 0.05)

    @pytest.mark.parametrize("what", ["time_to_live", "delivery_delay"])
    def test_in_a_transaction_times_count_from_the_send(self, api: Api, connection: Connection, what: str) -> None:
        session = connection.create_session(AcknowledgeMode.TRANSACTED)
        context = api.context(session, connection)
        message = context.create_text_message("text")
        context.create_producer(**{what: 0.2}).send(QUEUE, message)  # type: ignore[arg-type]
        until = message.jms_expiration or message.jms_delivery_time
        assert until == message.jms_timestamp + 200
        server_time = context._own_session._transaction.server_time
        wait_for(lambda: server_time() > until)
        context.commit()
        received = context.create_consumer(QUEUE).receive(0 if what == "time_to_live" else PATIENCE)
        assert (received is None) is (what == "time_to_live")
        context.commit()


class TestProperties:
    @pytest.mark.parametrize(
        ("value", "getter"),
        [
            (True, "get_boolean_property"),
            (Short(7), "get_short_property"),
            (7, "get_int_property"),
            (2**40, "get_long_property"),
            (1.5, "get_double_property"),
            ("blue", "get_string_property"),
            ("blue", "get_object_property"),
        ],
    )
    def test_they_are_set_on_each_message_and_read_back(
        self, context: JMSContext, producer: JMSProducer, value: Any, getter: str
    ) -> None:
        assert producer.set_property("name", value) is producer
        assert producer.property_exists("name")
        assert getattr(producer, getter)("name") == value
        for _ in range(2):
            assert getattr(sent(context, producer), getter)("name") == value

    def test_they_are_converted_as_those_of_messages_are(self, producer: JMSProducer) -> None:
        producer.set_property("number", 7).set_property("text", "seven")
        assert producer.get_string_property("number") == "7"
        assert producer.get_long_property("number") == 7
        with pytest.raises(MessageFormatException):
            producer.get_boolean_property("number")
        with pytest.raises(ValueError, match="seven"):
            producer.get_int_property("text")

    def test_unset_properties_are_none_as_text_and_as_an_object(self, producer: JMSProducer) -> None:
        assert producer.get_string_property("name") is None
        assert producer.get_object_property("name") is None
        assert not producer.property_exists("name")

    @pytest.mark.parametrize("name", [None, ""])
    def test_they_have_names(self, producer: JMSProducer, name: Any) -> None:
        with pytest.raises(ValueError, match="name"):
            producer.set_property(name, "value")

    @pytest.mark.parametrize("value", [object(), [1], {"a": 1}, b"bytes"])
    def test_a_value_that_no_property_has_is_refused(self, producer: JMSProducer, value: Any) -> None:
        with pytest.raises(MessageFormatException):
            producer.set_property("name", value)

    def test_they_replace_those_of_the_message(self, context: JMSContext, producer: JMSProducer) -> None:
        message = context.create_text_message("text")
        message.set_string_property("colour", "red")
        message.set_int_property("size", 1)
        received = sent(context, producer.set_property("colour", "blue"), message)
        assert (received.properties["colour"], received.properties["size"]) == ("blue", 1)

    def test_clearing_removes_them_all_and_returns_the_producer(
        self, context: JMSContext, producer: JMSProducer
    ) -> None:
        producer.set_property("colour", "blue").set_property("size", 1)
        assert producer.clear_properties() is producer
        assert list(producer.property_names) == []
        assert not sent(context, producer).property_exists("colour")

    def test_their_names_are_a_view_that_cannot_be_changed(self, producer: JMSProducer) -> None:
        producer.set_property("colour", "blue").set_jms_type("order")
        names = producer.property_names
        assert set(names) == {"colour"}
        for change in ("add", "remove", "clear", "discard", "append", "pop"):
            assert not hasattr(names, change)


HEADERS: list[tuple[str, Any, Callable[[Message], object]]] = [
    ("jms_correlation_id", "correlated", lambda message: message.jms_correlation_id),
    ("jms_correlation_id_as_bytes", b"\xff\0", lambda message: message.jms_correlation_id_as_bytes),
    ("jms_type", "order", lambda message: message.jms_type),
    ("jms_reply_to", Queue("answers"), lambda message: message.jms_reply_to),
]


class TestHeaders:
    @pytest.mark.parametrize(("name", "value", "read"), HEADERS)
    def test_they_are_set_on_each_message_instead_of_its_own(
        self, context: JMSContext, producer: JMSProducer, name: str, value: Any, read: Callable[[Message], object]
    ) -> None:
        message = context.create_text_message("text")
        message.jms_correlation_id, message.jms_type, message.jms_reply_to = "own", "own", Queue("own")
        getattr(producer, f"set_{name}")(value)
        assert read(sent(context, producer, message)) == value
        assert read(sent(context, producer)) == value

    def test_those_not_set_stay_as_they_are(self, context: JMSContext, producer: JMSProducer) -> None:
        message = context.create_text_message("text")
        message.jms_correlation_id, message.jms_type, message.jms_reply_to = "own", "own", Queue("own")
        received = sent(context, producer, message)
        assert (received.jms_correlation_id, received.jms_type) == ("own", "own")
        assert received.jms_reply_to == Queue("own")

    def test_bytes_are_copied_when_they_are_set(self, producer: JMSProducer) -> None:
        correlation_id = bytearray(b"first")
        producer.set_jms_correlation_id_as_bytes(correlation_id)  # type: ignore[arg-type]
        correlation_id[:] = b"other"
        assert producer.jms_correlation_id_as_bytes == b"first"

    def test_a_reply_destination_is_a_queue_or_a_topic(self, producer: JMSProducer) -> None:
        with pytest.raises(InvalidDestinationException):
            producer.set_jms_reply_to("answers")  # type: ignore[arg-type]
