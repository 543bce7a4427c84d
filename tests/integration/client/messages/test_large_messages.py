"""Large messages, and those that are too large."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from jmsql import AcknowledgeMode, BytesMessage, Connection, JMSException, Message, Queue, Session, TextMessage
from jmsql.store.rows.message_rows import LARGEST_MESSAGE, LARGEST_PROPERTIES
from jmsql.testing import receive_all
from tests.exchange import exchange
from tests.texts import texts_of

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

LARGE = 100_000_000
PIECE = bytes(range(256))


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO])
def test_text_of_100_megabytes_arrives(mode_session: Session, queue: Queue) -> None:
    text = "0123456789" * (LARGE // 10)
    received = exchange(mode_session, queue, TextMessage(text))
    assert received.text == text  # the comparison takes no copy


@pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
def test_bytes_of_100_megabytes_arrive(mode_session: Session, queue: Queue) -> None:
    message = BytesMessage()
    for _ in range(LARGE // len(PIECE)):
        message.write_bytes(PIECE)
    received = exchange(mode_session, queue, message)
    assert received.body_length == LARGE // len(PIECE) * len(PIECE)
    buffer = bytearray(len(PIECE))
    while received.read_bytes(buffer) > 0:
        assert buffer == PIECE


def too_long_text() -> Message:
    return TextMessage("x" * (LARGEST_MESSAGE + 1))


def too_many_bytes_of_text() -> Message:
    return TextMessage("é" * (LARGEST_MESSAGE // 2 + 1))


def too_many_bytes() -> Message:
    message = BytesMessage()
    message.write_bytes(bytes(LARGEST_MESSAGE + 1))
    return message


def too_much_in_headers() -> Message:
    message = TextMessage("x" * (LARGEST_MESSAGE // 2))
    message.jms_type = message.jms_correlation_id = "x" * (LARGEST_MESSAGE // 4 + 1)
    return message


def too_much_in_properties() -> Message:
    message = TextMessage("x")
    message.set_string_property("picture", "x" * LARGEST_PROPERTIES)
    return message


@pytest.mark.parametrize(
    "make", [too_long_text, too_many_bytes_of_text, too_many_bytes, too_much_in_headers, too_much_in_properties]
)
@pytest.mark.parametrize("transacted", [False, True])
def test_message_that_is_too_large_is_refused_and_no_other(
    connection: Connection, queue: Queue, make: Callable[[], Message], transacted: bool
) -> None:
    session = connection.create_session(transacted)
    producer = session.create_producer(queue)
    producer.send(session.create_text_message("before"))
    message = make()
    with pytest.raises(JMSException, match=r"bytes; at most 26(8,435,456|2,144,000) are allowed") as raised:
        producer.send(message)
    assert raised.value.error_code == "54000"
    assert message.jms_message_id is None
    producer.send(session.create_text_message("after"))
    if transacted:
        session.commit()
    assert texts_of(receive_all(session.create_consumer(queue))) == ["before", "after"]


def test_properties_that_fill_what_postgresql_can_hold_keep_no_dead_letter_from_its_queue(jmsql_clean_url: str) -> None:
    """SQL sends more than clients do. A dead letter that could not be written would hold up all others."""
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        database.execute("insert into jmsql_internal.queue (name) values ('large')")
        found = database.execute(
            "select array(select jsonb_object_keys(d)), d ->> 'small' from jmsql_internal.queue q "
            "cross join jmsql_internal.dead_letter_properties("
            "jsonb_build_object('small', 'x', 'large', repeat('x', 268435000)), q.queue_id, 'rejected', 1, now(), "
            "repeat('e', 100000), null) d where q.name = 'large'"
        ).fetchall()
    names = ["JMS_jmsql_DeadLetterReason", "JMS_jmsql_DeadLetterTime", "JMS_jmsql_Deliveries", "JMS_jmsql_FirstFailure"]
    names += ["JMS_jmsql_LastError", "JMS_jmsql_OriginalDestination", "small"]
    assert [(sorted(keys), small) for keys, small in found] == [(names, "x")]
