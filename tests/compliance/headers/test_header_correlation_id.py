"""JMSCorrelationID: JMS 1.1 chapters 2.10, 3.4.5 and 3.4.11."""

from __future__ import annotations

import pytest

from jmsql import Message, MessageFormatException, Queue, Session
from jmsql.testing import receive_all
from tests.compliance.filled_messages import CLASSES, filled
from tests.exchange import exchange

pytestmark = pytest.mark.usefixtures("shared_connection")

IDENTIFIERS = ("order 7", "", " ", "ID:", "it's", "名前 😀", "\0", "\ud800", "\ufffe0", "x" * 100_000)
NATIVE = (b"", b"abc", b"\0\1\2", bytes(range(256)), b"\xff\xfe", b"\xed\xa0\x80", "名前".encode())


@pytest.mark.requirement("message.correlation")
@pytest.mark.case("header-correlation-id-01")
@pytest.mark.parametrize("kind", CLASSES)
def test_it_arrives_unchanged(session: Session, queue: Queue, kind: type[Message]) -> None:
    for identifier in IDENTIFIERS:
        message = filled(kind)
        message.jms_correlation_id = identifier
        received = exchange(session, queue, message)
        assert received.jms_correlation_id == message.jms_correlation_id == identifier


@pytest.mark.requirement("message.correlation")
@pytest.mark.case("header-correlation-id-01")
def test_it_links_an_answer_to_the_identifier_of_a_message(session: Session, queue: Queue) -> None:
    request = exchange(session, queue, Message())
    answer = Message()
    answer.jms_correlation_id = request.jms_message_id
    assert exchange(session, queue, answer).jms_correlation_id == request.jms_message_id


@pytest.mark.requirement("message.correlation.bytes", "message.correlation")
@pytest.mark.case("header-correlation-id-02")
@pytest.mark.parametrize("native", NATIVE)
def test_bytes_arrive_unchanged(session: Session, queue: Queue, native: bytes) -> None:
    message = Message()
    message.jms_correlation_id_as_bytes = native
    assert message.jms_correlation_id_as_bytes == native
    assert exchange(session, queue, message).jms_correlation_id_as_bytes == native


@pytest.mark.requirement("message.correlation.bytes")
@pytest.mark.case("header-correlation-id-02")
def test_text_can_be_read_as_bytes_and_bytes_as_text(session: Session, queue: Queue) -> None:
    message = Message()
    message.jms_correlation_id = "größe"
    assert exchange(session, queue, message).jms_correlation_id_as_bytes == "größe".encode()
    message.jms_correlation_id_as_bytes = "größe".encode()
    assert exchange(session, queue, message).jms_correlation_id == "größe"


@pytest.mark.requirement("message.correlation")
@pytest.mark.case("header-correlation-id-03")
@pytest.mark.parametrize("kind", CLASSES)
def test_it_can_be_set_to_none_before_the_send_and_after_it_was_received(
    session: Session, queue: Queue, kind: type[Message]
) -> None:
    message = filled(kind)
    assert message.jms_correlation_id is None
    message.jms_correlation_id = None
    assert exchange(session, queue, message).jms_correlation_id is None
    message.jms_correlation_id = "order 7"
    received = exchange(session, queue, message)
    received.jms_correlation_id = None
    onward = exchange(session, queue, received)
    assert onward.jms_correlation_id is None
    assert onward.jms_correlation_id_as_bytes is None


@pytest.mark.requirement("message.correlation")
@pytest.mark.parametrize("value", [1, b"bytes", object()])
def test_anything_else_is_refused(session: Session, queue: Queue, value: object) -> None:
    message = Message()
    with pytest.raises(MessageFormatException):
        message.jms_correlation_id = value  # type: ignore[assignment]
    session.create_producer(queue).send(message)
    assert [received.jms_correlation_id for received in receive_all(session.create_consumer(queue))] == [None]
