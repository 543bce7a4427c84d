"""Random messages through the store and back."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from jmsql.messages import PropertyValue, Value
from jmsql.testing import receive_all
from jmsql.types import Byte, Char, Float, Long, Short
from jmsql.values.identifiers import is_identifier
from tests.exactness import contents

texts = st.text(st.characters() | st.sampled_from("\0\ud800\udfff\ufffe'\"\\%"), max_size=50)
names = st.one_of(
    st.sampled_from(("a", "A", "_", "$", "größe", "名前", "a\0", "JMSXGroupID", "JMS_acme")),
    st.text(st.characters(categories=["L", "Nd", "Sc"]), min_size=1, max_size=10).filter(
        lambda name: is_identifier(name) and not name.startswith("JMS")
    ),
)
property_values: st.SearchStrategy[PropertyValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(width=32).map(Float),
    st.floats(),
    texts,
)
values: st.SearchStrategy[Value] = st.one_of(
    property_values, st.binary(max_size=50), st.characters(max_codepoint=0xFFFF).map(Char)
)
objects = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=50)),
        *(st.uuids(), st.decimals(allow_nan=False), st.datetimes(timezones=st.none() | st.just(dt.UTC))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(texts | st.integers() | st.just("$type"), inner, max_size=5),
    ),
    max_leaves=20,
)


def bytes_message(pieces: list[Value]) -> BytesMessage:
    message = BytesMessage()
    for piece in pieces:
        message.write_object(b"null" if piece is None else piece)
    return message


def map_message(members: dict[str, Value]) -> MapMessage:
    message = MapMessage()
    message.update(members)
    return message


def stream_message(fields: list[Value]) -> StreamMessage:
    message = StreamMessage()
    for field in fields:
        message.write_object(field)
    return message


bodies: st.SearchStrategy[Message] = st.one_of(
    st.builds(Message),
    st.builds(TextMessage, st.none() | texts),
    st.lists(values.filter(lambda value: not isinstance(value, str) or value.isascii()), max_size=10).map(
        bytes_message
    ),
    st.dictionaries(texts.filter(bool), values, max_size=10).map(map_message),
    st.lists(values, max_size=10).map(stream_message),
    st.builds(ObjectMessage, objects),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = draw(bodies)
    for name, value in draw(st.dictionaries(names, property_values, max_size=10)).items():
        if name != "JMSXGroupID":
            message.set_object_property(name, value)
        elif isinstance(value, str):
            message.set_string_property(name, value)
    message.jms_type = draw(st.none() | texts)
    if draw(st.booleans()):
        message.jms_correlation_id = draw(st.none() | texts)
    else:
        message.jms_correlation_id_as_bytes = draw(st.binary(max_size=50))
    message.jms_reply_to = draw(st.sampled_from((None, Queue("answers"), Topic("news"), Queue("a://b"))))
    return message


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_a_message_is_received_as_it_was_sent(mode_session: Session, queue: Queue, mode: AcknowledgeMode) -> None:
    producer, consumer = mode_session.create_producer(queue), mode_session.create_consumer(queue)

    @given(st.lists(messages(), min_size=1, max_size=5))
    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
    def check(batch: list[Message]) -> None:
        for message in batch:
            producer.send(message)
        if mode_session.transacted:
            mode_session.commit()
        received = receive_all(consumer)
        if mode is AcknowledgeMode.CLIENT:
            received[-1].acknowledge()
        elif mode_session.transacted:
            mode_session.commit()
        assert [contents(message) for message in received] == [contents(message) for message in batch]

    check()
