"""Values at the edges of their types, through the store and back, and as SQL shows them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial

import pytest

from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    MapMessage,
    Message,
    MessageFormatException,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
)
from jmsql.messages import PropertyValue, Value
from jmsql.testing import receive_all
from jmsql.types import Byte, Char, Float, Long, Short
from tests.exactness import contents, exact
from tests.exchange import exchange
from tests.integration.client.server import Server

pytestmark = pytest.mark.usefixtures("shared_connection")

MODES = pytest.mark.parametrize("mode", list(AcknowledgeMode))

TEXTS = (
    *("", " ", "\0", "a\0b", "\0" * 1000, "\ud800", "\udfff\ud800", "x\udc00y", "\ufffe", "\ufffe0", "\ufffe\ufffe"),
    *("\uffff", "\U0010ffff", "😀", "e\u0301", "\r\n\t\f\v\x1b\x7f\x85\u2028", "'\"\\`$%_{}[]", "%s %(a)s :b $1 ?"),
    *("null", "NULL", "\\x00", "\\u0000", '["NaN"]', "NaN", "日本語", "\u202eright to left"),
)
INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63))
DOUBLES = (
    *(0.0, -0.0, 1.0, 0.1, 1e-7, 1e16, 1e22, 1e23, math.pi, 2.0**53, 2.0**63, 1e300, -1e-300),
    *(math.nan, math.inf, -math.inf, sys.float_info.max, -sys.float_info.max, sys.float_info.min, 5e-324, -5e-324),
)
FLOATS = (
    *(0.0, -0.0, 0.1, 1.0, 3.4028234663852886e38, -3.4028234663852886e38, 1.1754943508222875e-38, 1e-45, -1e-45),
    *(math.nan, math.inf, -math.inf, 16777216.0),
)
PROPERTIES: tuple[PropertyValue, ...] = (
    *(None, True, False, Byte(-128), Byte(127), Short(-(2**15)), Short(2**15 - 1), Long(0), Long(-1)),
    *TEXTS,
    *INTEGERS,
    *DOUBLES,
    *map(Float, FLOATS),
)
VALUES: tuple[Value, ...] = (
    *PROPERTIES,
    *(b"", b"\0", bytes(range(256)), Char("\0"), Char("a"), Char("\ud800"), Char("\ufffe"), Char("\uffff")),
)
OBJECTS: tuple[object, ...] = (None, "", [], {}, (), 0, False, "\0", -0.0, math.nan, 10**100)
NAMES = (*(text for text in TEXTS if text), "$type", "0", "a.b", "NULL", "Name", "name")


def with_text(text: str | None) -> TextMessage:
    message = TextMessage(text)
    if text is not None:
        message.jms_type = message.jms_correlation_id = text
        message.set_string_property("text", text)
    return message


def with_bytes(body: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(body)
    return message


def with_names() -> MapMessage:
    message = MapMessage()
    for name in NAMES:
        message[name] = name
    return message


def with_map_of_values() -> MapMessage:
    message = MapMessage()
    for number, value in enumerate(VALUES):
        message.set_object(f"v{number}", value)
    return message


def with_stream_of_values() -> StreamMessage:
    message = StreamMessage()
    for value in VALUES:
        message.write_object(value)
    return message


def with_object_of_values() -> ObjectMessage:
    return ObjectMessage({"list": [*TEXTS, *INTEGERS, *DOUBLES, 2**100, None, True], **{name: name for name in NAMES}})


def with_properties() -> Message:
    message = Message()
    for number, value in enumerate(PROPERTIES):
        message.set_object_property(f"v{number}", value)
    return message


MAKERS: list[Callable[[], Message]] = [
    *(partial(with_text, text) for text in (None, *TEXTS)),
    *(partial(with_bytes, body) for body in (b"", b"\0", bytes(range(256)), b"\\x00", b"\xff" * 10_000)),
    *(partial(ObjectMessage, value) for value in OBJECTS),
    *(Message, MapMessage, StreamMessage, with_names, with_properties),
    *(with_map_of_values, with_stream_of_values, with_object_of_values),
]
"""Each makes a message that is hard to carry; empty ones of every type are among them."""


@MODES
def test_a_message_is_received_as_it_was_sent(mode_session: Session, queue: Queue) -> None:
    producer, consumer = mode_session.create_producer(queue), mode_session.create_consumer(queue)
    sent = [make() for make in MAKERS]
    for message in sent:
        producer.send(message)
    if mode_session.transacted:
        mode_session.commit()
    received = receive_all(consumer)
    assert len(received) == len(sent)
    for was, now in zip(sent, received, strict=True):
        assert contents(now) == contents(was)


def test_a_forwarded_message_has_the_original_contents(session: Session, queue: Queue) -> None:
    """Contents that were never read are passed on as they came; those that were read, from what was read."""
    for make in MAKERS:
        message = make()
        unread = exchange(session, queue, exchange(session, queue, message))
        assert contents(unread) == contents(message)
        assert contents(exchange(session, queue, unread)) == contents(message)


def test_browser_shows_messages_as_they_were_sent(session: Session, queue: Queue) -> None:
    producer = session.create_producer(queue)
    sent = [make() for make in MAKERS]
    for message in sent:
        producer.send(message)
    assert [contents(message) for message in session.create_browser(queue)] == [contents(message) for message in sent]


@pytest.mark.parametrize("name", ["a\0", "a\x7f", "\ufdfb", "ª", "\U0001d4b3", "_\u200b", "n" * 50_000])
def test_property_of_an_unusual_name_travels_and_can_be_selected(session: Session, queue: Queue, name: str) -> None:
    message = Message()
    message.set_int_property(name, 1)
    assert contents(exchange(session, queue, message)) == contents(message)
    session.create_producer(queue).send(message)
    assert len(receive_all(session.create_consumer(queue, f"{name} = 1"))) == 1


@pytest.mark.parametrize("name", ["\0", "\ud800", "a\udfff", "\ufffe", "a\uffff"])
def test_property_has_no_name_that_is_no_identifier(name: str) -> None:
    with pytest.raises(MessageFormatException, match="cannot name a property"):
        Message().set_int_property(name, 1)


def test_ten_thousand_properties_travel_and_can_be_selected(session: Session, queue: Queue) -> None:
    message = Message()
    for number in range(10_000):
        message.set_object_property(f"p{number}", PROPERTIES[number % len(PROPERTIES)])
    message.set_int_property("p5000", 4711)
    session.create_producer(queue).send(message)
    assert session.create_consumer(queue, "p5000 = 4712").receive(timeout=0) is None
    (received,) = receive_all(session.create_consumer(queue, "p5000 = 4711 and p9999 is null or p5000 = 4711"))
    assert contents(received) == contents(message)


@pytest.mark.parametrize("value", [*DOUBLES, *map(Float, FLOATS)], ids=repr)
def test_number_that_was_sent_is_selected_as_itself(session: Session, queue: Queue, value: float) -> None:
    message = Message()
    message.set_object_property("x", value)
    message.set_object_property("y", value)
    session.create_producer(queue).send(message)
    received = receive_all(session.create_consumer(queue, "x <> y" if math.isnan(value) else "x = y"))
    assert [exact(message.get_object_property("x")) for message in received] == [exact(value)]


def test_view_shows_all_of_them(session: Session, queue: Queue, server: Server) -> None:
    producer = session.create_producer(queue)
    for make in MAKERS:
        producer.send(make())
    rows = server.rows("select * from jmsql.messages where queue = %s order by sequence", queue.name)
    assert len(rows) == len(MAKERS)
    kinds = server.rows("select type, count(*) from jmsql.messages where state = 'ready' group by type")
    assert dict(kinds).keys() == {
        *("Message", "TextMessage", "BytesMessage", "MapMessage", "StreamMessage", "ObjectMessage")
    }
    assert server.rows("select ready from jmsql.queues where queue = %s", queue.name) == [(len(MAKERS),)]


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (TextMessage("Grüße, 日本語 😀"), "Grüße, 日本語 😀"),
        (TextMessage("a\0b"), "a\ufffe0b"),
        (TextMessage(""), ""),
        (TextMessage(None), None),
        (with_bytes(b"\0\xff"), "\\x00ff"),
        (with_bytes(b""), "\\x"),
        (MapMessage(), "{}"),
        (StreamMessage(), "[]"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_view_shows_bodies_that_can_be_read(
    session: Session, queue: Queue, server: Server, message: Message, body: str | None
) -> None:
    session.create_producer(queue).send(message)
    assert server.rows("select body from jmsql.messages") == [(body,)]


def test_sql_reads_properties_and_bodies_as_json(session: Session, queue: Queue, server: Server) -> None:
    message = MapMessage()
    message.set_long("order", 2**63 - 1)
    message.set_double("price", 1e22)
    message.set_float("weight", 0.5)
    message.set_double("ratio", math.nan)
    message.set_bytes("picture", b"\0\1")
    message.set_string("note", "it's\0")
    message.properties.update({"color": "blue", "weight": 2600, "share": 0.25, "flag": True, "nothing": None})
    session.create_producer(queue).send(message)
    assert server.rows("""
        select properties ->> 'color', (properties -> 'weight')::int, (properties -> 'share')::float8,
               (properties -> 'flag')::boolean, properties ? 'nothing'
        from jmsql.messages where properties @> '{"color": "blue"}' and (properties -> 'weight')::int > 2500
        """) == [("blue", 2600, 0.25, True, False)]
    assert server.rows("""
        select (body::jsonb -> 'order')::bigint, (body::jsonb -> 'price')::float8, (body::jsonb -> 'weight')::float8,
               body::jsonb #>> '{ratio,0}', decode(body::jsonb ->> 'picture', 'base64'), body::jsonb ->> 'note'
        from jmsql.messages
        """) == [(2**63 - 1, 1e22, 0.5, "NaN", b"\0\1", "it's\ufffe0")]
