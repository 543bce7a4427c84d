"""JMSReplyTo: JMS 1.1 chapters 2.10 and 3.4.6."""

from __future__ import annotations

import pytest

from jmsql import Destination, InvalidDestinationException, Message, Queue, Session, Topic
from tests.compliance.filled_messages import CLASSES, filled
from tests.exchange import exchange
from tests.texts import receive

pytestmark = [pytest.mark.requirement("message.replyTo"), pytest.mark.usefixtures("shared_connection")]


@pytest.mark.case("header-reply-to-01")
@pytest.mark.parametrize("kind", CLASSES)
def test_answer_reaches_the_waiting_requestor(session: Session, queue: Queue, kind: type[Message]) -> None:
    answers = Queue("answers")
    request = filled(kind)
    request.jms_reply_to = answers
    received = exchange(session, queue, request)
    answer = session.create_text_message("answer")
    answer.jms_correlation_id = received.jms_message_id
    session.create_producer().send(answer, received.jms_reply_to)
    selector = f"JMSCorrelationID = '{request.jms_message_id}'"
    assert receive(session.create_consumer(answers, selector)).get_body(str) == "answer"


@pytest.mark.parametrize(
    "destination", [Queue("answers"), Queue("a://b?c=d %s 'x' 名前"), Queue("\ufffe"), Topic("news"), None], ids=str
)
def test_it_arrives_as_the_sender_set_it(session: Session, queue: Queue, destination: Destination | None) -> None:
    message = Message()
    message.jms_reply_to = destination
    received = exchange(session, queue, message)
    assert received.jms_reply_to == destination
    assert type(received.jms_reply_to) is type(destination)


def test_none_says_that_no_answer_is_expected(session: Session, queue: Queue) -> None:
    message = Message()
    assert message.jms_reply_to is None
    message.jms_reply_to = Queue("answers")
    message.jms_reply_to = None
    received = exchange(session, queue, message)
    assert received.jms_reply_to is None
    received.jms_reply_to = Queue("answers")
    received.jms_reply_to = None
    assert exchange(session, queue, received).jms_reply_to is None


@pytest.mark.parametrize("value", ["queue://answers", object(), 1])
def test_anything_else_is_refused(value: object) -> None:
    message = Message()
    with pytest.raises(InvalidDestinationException):
        message.jms_reply_to = value  # type: ignore[assignment]
    assert message.jms_reply_to is None
