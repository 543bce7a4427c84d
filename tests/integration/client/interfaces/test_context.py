"""JMSContext, JMSProducer and JMSConsumer: the short form (Jakarta Messaging 3.1 chapter 2.8)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import psycopg
import pytest

import jmsql
from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateException,
    JMSContext,
    JMSException,
    MapMessage,
    Message,
    MessageFormatException,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from jmsql.testing import receive_all, wait_for
from jmsql.types import Short
from tests.background import Background
from tests.integration.client.server import CONTROL, SESSIONS, Server


@pytest.fixture
def context(factory: ConnectionFactory) -> Iterator[JMSContext]:
    with factory.create_context() as context:
        yield context


def test_bodies_travel_as_the_messages_that_fit(context: JMSContext, queue: Queue) -> None:
    bodies: list[tuple[object, type[Message], type[object]]] = [
        ("text", TextMessage, str),
        (b"bytes", BytesMessage, bytes),
        ({"name": "value", "number": 1}, MapMessage, dict),
        ([1, 2, [3]], ObjectMessage, list),
        (None, Message, object),
    ]
    producer = context.create_producer()
    for body, _, _ in bodies:
        assert producer.send(queue, body) is producer
    consumer = context.create_consumer(queue)
    for body, message_type, body_type in bodies:
        message = consumer.receive(timeout=60)
        assert type(message) is message_type
        assert message.get_body(body_type) == body


@pytest.mark.parametrize(
    "body",
    [
        {"lines": [1, 2]},
        {"customer": {"name": "Ada", "address": {"city": "London"}}},
        {"placed": datetime(2026, 1, 5, 12, 30, tzinfo=UTC)},
        {"number": UUID(int=7)},
        {"price": Decimal("9.50")},
        {"large": 2**64},
        {1: "one", None: "none"},
        {"": "no name"},
        {"first": "simple", "then": ("not", "simple")},
    ],
    ids=str,
)
def test_dict_of_other_than_simple_values_travels_too(
    context: JMSContext, queue: Queue, body: dict[object, object]
) -> None:
    context.create_producer().send(queue, MappingProxyType(body)).send(queue, body)
    consumer = context.create_consumer(queue)
    for _ in range(2):
        message = consumer.receive(timeout=60)
        assert type(message) is ObjectMessage
        assert message.get_body(dict) == body


def test_body_that_cannot_be_sent_is_named_with_its_place(context: JMSContext, queue: Queue) -> None:
    producer = context.create_producer()
    with pytest.raises(MessageFormatException, match=r"^At \['lines'\]\[1\]\['kite'\]: .*register_type"):
        producer.send(queue, {"number": 1, "lines": [{}, {"kite": object()}]})
    with pytest.raises(MessageFormatException, match=r"The property 'due': A message does not hold a datetime"):
        producer.set_property("due", datetime(2026, 1, 5, tzinfo=UTC))  # type: ignore[arg-type]
    with pytest.raises(MessageFormatException, match=r"The entry 'lines': A message does not hold a list"):
        context.create_map_message()["lines"] = [1]  # type: ignore[assignment]
    assert receive_all(context.create_consumer(queue)) == []


def test_messages_of_every_type_are_sent_as_they_are(context: JMSContext, queue: Queue) -> None:
    made = [
        context.create_message(),
        context.create_text_message("text"),
        context.create_bytes_message(),
        context.create_map_message(),
        context.create_stream_message(),
        context.create_object_message([1]),
    ]
    for message in made:
        context.create_producer().send(queue, message)
    received = list(context.create_browser(queue))
    assert [type(message) for message in received] == [type(message) for message in made]
    assert StreamMessage in map(type, received)


def test_producer_adds_its_properties_to_each_message(context: JMSContext, queue: Queue) -> None:
    producer = context.create_producer(
        delivery_mode=DeliveryMode.NON_PERSISTENT,
        priority=7,
        time_to_live=timedelta(minutes=1),
        properties={"colour": "blue", "weight": 2600},
        jms_correlation_id="correlated",
        jms_type="order",
        jms_reply_to=Queue("answers"),
    )
    producer.send(queue, "first").send(queue, "second")
    messages = receive_all(context.create_consumer(queue, "colour = 'blue' and weight > 2500"))
    assert [message.get_body(str) for message in messages] == ["first", "second"]
    for message in messages:
        assert message.jms_delivery_mode is DeliveryMode.NON_PERSISTENT
        assert message.jms_priority == 7
        assert message.jms_expiration == message.jms_timestamp + 60_000
        assert message.jms_correlation_id == "correlated"
        assert message.jms_type == "order"
        assert message.jms_reply_to == Queue("answers")


def test_settings_chain_and_are_attributes_too(context: JMSContext, queue: Queue) -> None:
    producer = (
        context.create_producer()
        .set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        .set_priority(7)
        .set_time_to_live(60)
        .set_delivery_delay(timedelta(milliseconds=1))
        .set_disable_message_id(True)
        .set_disable_message_timestamp(True)
        .set_property("gone", 1)
        .clear_properties()
        .set_property("colour", "blue")
        .set_property("weight", Short(2600))
        .set_jms_correlation_id("text")
        .set_jms_correlation_id_as_bytes(b"\xff")
        .set_jms_type("order")
        .set_jms_reply_to(Queue("answers"))
    )
    assert producer.delivery_mode is DeliveryMode.NON_PERSISTENT
    assert (producer.priority, producer.time_to_live, producer.delivery_delay) == (7, 60.0, 0.001)
    assert producer.disable_message_id
    assert producer.disable_message_timestamp
    assert dict(producer.properties) == {"colour": "blue", "weight": 2600}
    assert producer.get_string_property("weight") == "2600"
    assert producer.jms_correlation_id_as_bytes == b"\xff"
    assert (producer.jms_type, producer.jms_reply_to) == ("order", Queue("answers"))
    producer.send(queue, "text")
    received = context.create_consumer(queue).receive(timeout=60)
    assert received is not None
    assert (received.jms_message_id, received.jms_timestamp) == (None, 0)
    assert received.jms_expiration > 0
    assert received.jms_correlation_id_as_bytes == b"\xff"
    assert received.get_short_property("weight") == 2600
    assert not received.property_exists("gone")


def test_the_producers_properties_replace_those_of_a_message(context: JMSContext, queue: Queue) -> None:
    message = context.create_text_message("text")
    message.properties.update({"colour": "red", "size": 1})
    message.jms_type, message.jms_correlation_id = "draft", "kept"
    context.create_producer().set_property("colour", "blue").set_jms_type("order").send(queue, message)
    received = context.create_consumer(queue).receive(timeout=60)
    assert received is not None
    assert (received.properties["colour"], received.properties["size"]) == ("blue", 1)
    assert (received.jms_type, received.jms_correlation_id) == ("order", "kept")


def test_asynchronous_sends_tell_the_listener(context: JMSContext, queue: Queue) -> None:
    told: list[tuple[Message, JMSException | None]] = []
    producer = context.create_producer().set_async(lambda message, error: told.append((message, error)))
    assert producer.completion_listener is not None
    producer.send(queue, "text")
    wait_for(lambda: [(message.get_body(str), error) for message, error in told] == [("text", None)])
    with pytest.raises(TypeError, match="completion listener"):
        producer.set_async(7)  # type: ignore[arg-type]


def test_contexts_share_a_connection_until_the_last_one_closes(
    context: JMSContext, queue: Queue, server: Server
) -> None:
    with context.create_context(AcknowledgeMode.TRANSACTED) as second:
        assert second.transacted
        third = second.create_context(AcknowledgeMode.CLIENT)
        second.create_producer().send(queue, "text")
        second.commit()
        assert server.connections(CONTROL) == 1
    context.close()
    assert third.create_consumer(queue).receive_body(str, timeout=60) == "text"
    third.acknowledge()
    third.close()
    wait_for(lambda: server.connections(SESSIONS) + server.connections(CONTROL) == 0)


def test_the_client_identifier_is_set_once(context: JMSContext) -> None:
    context.client_id = "desk"
    assert context.client_id == "desk"
    with pytest.raises(IllegalStateException, match="already"):
        context.client_id = "other"


def test_a_context_in_use_takes_no_client_identifier(context: JMSContext, queue: Queue) -> None:
    context.create_producer().send(queue, "text")
    with pytest.raises(IllegalStateException, match="before anything else"):
        context.client_id = "late"


def test_it_shows_its_connection(context: JMSContext) -> None:
    told: list[JMSException] = []
    assert context.metadata.jms_provider_name == "jmsql"
    assert context.exception_listener is None
    context.exception_listener = told.append
    assert context.exception_listener == told.append


def test_a_context_inside_a_transaction_has_no_connection(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as transaction:
        context = jmsql.enlist(transaction)
        for look in (lambda: context.client_id, lambda: context.metadata, lambda: context.exception_listener):
            with pytest.raises(IllegalStateException, match="no connection"):
                look()
        with pytest.raises(IllegalStateException, match="no connection"):
            context.create_context(AcknowledgeMode.AUTO)


def test_it_starts_with_its_first_consumer_unless_told_not_to(context: JMSContext, queue: Queue) -> None:
    context.create_producer().send(queue, "text")
    context.auto_start = False
    consumer = context.create_consumer(queue)
    assert consumer.receive(timeout=0) is None
    context.start()
    context.stop()
    assert consumer.receive_no_wait() is None
    context.auto_start = True
    assert context.create_consumer(queue).receive_body(str, timeout=60) == "text"


def test_consumer_gives_bodies(context: JMSContext, queue: Queue) -> None:
    context.create_producer().send(queue, "text").send(queue, "no bytes").send(queue, b"bytes")
    consumer = context.create_consumer(queue)
    assert consumer.receive_body(str, timeout=60) == "text"
    with pytest.raises(MessageFormatException, match="bytes"):
        consumer.receive_body(bytes, timeout=60)
    assert consumer.receive_body(str, timeout=60) == "no bytes"
    assert consumer.receive_body_no_wait(bytes) == b"bytes"
    assert consumer.receive_body(bytes, timeout=0) is None


def test_consumer_listens_selects_iterates_and_closes(context: JMSContext, queue: Queue) -> None:
    heard: list[Message] = []
    with context.create_consumer(queue, "JMSPriority = 9") as consumer:
        assert consumer.message_selector == "JMSPriority = 9"
        assert consumer.message_listener is None
        consumer.message_listener = heard.append
        context.create_producer(priority=9).send(queue, "heard")
        wait_for(lambda: heard)
    context.create_producer().send(queue, "iterated")
    rest = context.create_consumer(queue)
    iterating = Background(lambda: [message.get_body(str) for message in rest])
    iterating.wait_until_it_waits()
    rest.close()
    assert iterating.result() == ["iterated"]
    assert [message.get_body(str) for message in heard] == ["heard"]


def test_transacted_context_commits_and_rolls_back(factory: ConnectionFactory, queue: Queue) -> None:
    with factory.create_context(session_mode=AcknowledgeMode.TRANSACTED) as context:
        assert context.transacted
        producer = context.create_producer()
        producer.send(queue, "forgotten")
        context.rollback()
        producer.send(queue, "kept")
        context.commit()
        consumer = context.create_consumer(queue)
        assert consumer.receive_body(str, timeout=60) == "kept"
        context.rollback()
        message = consumer.receive(timeout=60)
        assert message is not None
        assert message.jms_redelivered
        with pytest.raises(IllegalStateException):
            context.recover()
        context.commit()
        assert consumer.receive(timeout=0) is None


def test_client_acknowledge_context_acknowledges_and_recovers(factory: ConnectionFactory, queue: Queue) -> None:
    with factory.create_context(session_mode=AcknowledgeMode.CLIENT) as context:
        assert context.session_mode is AcknowledgeMode.CLIENT
        assert not context.transacted
        context.create_producer().send(queue, "a").send(queue, "b")
        consumer = context.create_consumer(queue)
        assert consumer.receive_body(str, timeout=60) == "a"
        context.acknowledge()
        assert consumer.receive_body(str, timeout=60) == "b"
        context.recover()
        assert consumer.receive_body(str, timeout=60) == "b"
        for call in (context.commit, context.rollback):
            with pytest.raises(IllegalStateException):
                call()


def test_close_ends_its_connection(factory: ConnectionFactory, queue: Queue, server: Server) -> None:
    with factory.create_context() as context:
        consumer = context.create_consumer(queue)
        assert consumer.receive(timeout=0) is None
    context.close()
    wait_for(lambda: server.connections(SESSIONS) + server.connections(CONTROL) == 0)
    for call in (context.create_message, context.create_producer, context.start, lambda: consumer.receive(timeout=0)):
        with pytest.raises(IllegalStateException, match="closed"):
            call()


def test_wrong_mode_is_refused_and_leaves_no_connection(factory: ConnectionFactory, server: Server) -> None:
    with pytest.raises(JMSException, match="AcknowledgeMode"):
        factory.create_context(session_mode=7)  # type: ignore[arg-type]
    wait_for(lambda: server.connections(SESSIONS) + server.connections(CONTROL) == 0)


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [("priority", 10, JMSException), ("delivery_mode", 3, JMSException), ("time_to_live", -1, ValueError)],
)
def test_producer_refuses_wrong_settings(context: JMSContext, setting: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=setting.replace("_", ".")):
        context.create_producer(**{setting: value})


def test_destinations_are_made_by_name(context: JMSContext) -> None:
    assert context.create_queue("orders") == Queue("orders")
    assert context.create_topic("news") == Topic("news")
